"""Engines for `local:…`, and how fast one is here. Nothing is downloaded or run before the first call."""

from __future__ import annotations

import time
from typing import Unpack

from msgspec import Struct

from dragoman.conversation import Conversation, Message, TextDelta
from dragoman.engines.base import AsyncEngine, AsyncHttpEngine, Engine, HttpEngine
from dragoman.engines.connection import Connection
from dragoman.engines.factory import EngineOptions, ProviderFactory
from dragoman.errors import ConfigurationError
from dragoman.providers import Codec, ModelOptions, Profile, Provider, profile_with
from dragoman.transport import RetryPolicy, Timeouts

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
    from dragoman.transport import SocketTransport

    connection, lease = _connect(resolve_model(model), options, progress)
    return HttpEngine(connection, LocalTransport(lease, SocketTransport(), blocking=True))


def async_local_engine(
    model: str = "", *, progress: OnProgress | None = None, **options: Unpack[EngineOptions]
) -> AsyncEngine:
    """`local_engine` for a program on an event loop."""
    from dragoman.transport import AsyncioTransport

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


# --- how fast a model is ----------------------------------------------------------------------------------------------

_PROMPT = "The quick brown fox jumps over the lazy dog. " * 40 + "How many dogs are in this text?"


class Figures(Struct, frozen=True, kw_only=True):
    """What was measured."""

    model: str
    load_seconds: float
    """Until the first word of an answer to a word: fetching not included, loading included if it was not loaded."""
    prompt_tokens: int
    read_per_second: float
    """Tokens of a prompt."""
    written_tokens: int
    written_per_second: float
    """Tokens of an answer."""

    def __str__(self) -> str:
        return (
            f"{self.model}: ready in {self.load_seconds:.1f} s, reads {self.read_per_second:.0f} tokens a second, "
            f"writes {self.written_per_second:.1f}"
        )


def bench(name: str = "", *, tokens: int = 64, progress: OnProgress | None = None) -> Figures:
    """Measure a model. Other work on the machine makes it look slower than it is."""
    with local_engine(name, progress=progress) as engine:
        began = time.perf_counter()
        engine.reply(Conversation().plus(Message.user("Hi")), options=ModelOptions(max_tokens=1))
        loaded = time.perf_counter()
        # An answer may end early; asking for no end makes the figure comparable.
        options = ModelOptions(
            max_tokens=tokens, temperature=0.0, extra_body={"ignore_eos": True, "cache_prompt": False}
        )
        first: float | None = None
        with engine.stream(Conversation().plus(Message.user(_PROMPT)), options=options) as stream:
            for event in stream:
                if first is None and isinstance(event, TextDelta):
                    first = time.perf_counter()
        ended = time.perf_counter()
        usage = stream.message.usage
        read, wrote = (usage.input or 0, usage.output or 0) if usage is not None else (0, 0)
        first = ended if first is None else first
        return Figures(
            model=engine.name,
            load_seconds=loaded - began,
            prompt_tokens=read,
            read_per_second=read / max(first - loaded, 1e-9),
            written_tokens=wrote,
            written_per_second=max(wrote - 1, 0) / max(ended - first, 1e-9),
        )
