"""Engines for `local:…`. Nothing is downloaded or run before the first call."""

from __future__ import annotations

from typing import Unpack

from dragoman.engines.connection import Connection
from dragoman.engines.engine import AsyncEngine, AsyncHttpEngine, Engine, HttpEngine
from dragoman.engines.factory import EngineOptions, ProviderFactory
from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import Provider
from dragoman.providers.codec import Codec
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile
from dragoman.providers.programs import profile_with
from dragoman.transport.protocol import Timeouts
from dragoman.transport.retry import RetryPolicy

from .codec import LocalCodec
from .models import ModelChoice, Thinks, resolve_model
from .progress import OnProgress
from .server import PLACE, Lease, LocalTransport

_PROVIDER = Provider(name="local", dialect="openai_chat", base_url=PLACE, needs_key=False)
_CODECS: dict[Thinks, LocalCodec] = {thinks: LocalCodec(thinks) for thinks in ("never", "maybe", "always")}


class LocalConnection(Connection, frozen=True, kw_only=True, dict=True):
    """A model on this machine, and how it is called."""

    thinks: Thinks = "never"

    @property
    def codec(self) -> Codec:
        """The codec for a model that thinks in this way."""
        return _CODECS[self.thinks]


class LocalFactory(ProviderFactory):
    """Models on this machine."""

    def engine(self, model: str, **options: Unpack[EngineOptions]) -> Engine:
        """An engine for a plain program."""
        return local_engine(model, **options)

    def async_engine(self, model: str, **options: Unpack[EngineOptions]) -> AsyncEngine:
        """An engine for a program on an event loop."""
        return async_local_engine(model, **options)


def local_engine(
    model: str = "", *, progress: OnProgress | None = None, **options: Unpack[EngineOptions]
) -> HttpEngine:
    """An engine for a model's name, for the path of a GGUF file, or (an empty name) for the default model.

    `progress` is told how far the download of the model has got; without it a bar is shown if stderr is a terminal.
    """
    from dragoman.transport.socket_transport import SocketTransport

    connection, lease = _connect(resolve_model(model), options, progress)
    return HttpEngine(connection, LocalTransport(lease, SocketTransport(), blocking=True))


def async_local_engine(
    model: str = "", *, progress: OnProgress | None = None, **options: Unpack[EngineOptions]
) -> AsyncEngine:
    """`local_engine` for a program on an event loop."""
    from dragoman.transport.asyncio_transport import AsyncioTransport

    connection, lease = _connect(resolve_model(model), options, progress)
    return AsyncHttpEngine(connection, LocalTransport(lease, AsyncioTransport(), blocking=False))


def _connect(choice: ModelChoice, options: EngineOptions, progress: OnProgress | None) -> tuple[LocalConnection, Lease]:
    if options.get("base_url"):
        message = "A local model has no address: it is run by this program."
        raise ConfigurationError(message, hint="For a server of your own use llamacpp:, ollama: or openai-compatible:.")
    profile = _profile(choice, options)
    connection = LocalConnection(
        provider=_PROVIDER,
        model=choice.name,
        profile=profile,
        base_url=PLACE,
        options=options.get("options", ModelOptions()),
        strict=options.get("strict", False),
        retry=options.get("retry", RetryPolicy()),
        timeouts=options.get("timeouts", Timeouts()),
        headers=options.get("headers", {}),
        thinks=choice.thinks,
    )
    return connection, Lease(choice, profile.context_window or choice.context, progress)


def _profile(choice: ModelChoice, options: EngineOptions) -> Profile:
    given = options.get("profile", {})
    if isinstance(given, Profile) or "context_window" in given:
        return profile_with("local", given)
    return profile_with("local", {**given, "context_window": choice.context})


FACTORY = LocalFactory()
