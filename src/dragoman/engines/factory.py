"""Engines by name: `engine("anthropic:claude-sonnet-4-5")`.

Owns: from a name and options to an engine; the registry of third parties' providers.
Must not know: configuration files and keychains (the chat room does). A key is given, or found in the provider's usual
environment variable; keys.py decides whether it may go to the address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypedDict, Unpack, cast

from dragoman.errors import ConfigurationError
from dragoman.providers import (
    ALIASES,
    PROGRAMS,
    PROVIDERS,
    ModelOptions,
    Profile,
    divided,
    profile_of,
    profile_with,
    split_model,
)
from dragoman.transport import RetryPolicy, Timeouts, Transport, validate_base_url

from .base import AsyncEngine, Engine
from .http import AsyncHttpEngine, Connection, HttpEngine
from .keys import Secret, key_of

ENTRY_POINTS = "dragoman.providers"
"""The group in which an installed package offers a ProviderFactory under its provider's name."""


class EngineOptions(TypedDict, total=False):
    """What an engine can be given beside its name."""

    key: str | Secret | None
    """The key, in place of the one that is found in the environment."""
    base_url: str | None
    """Where the provider is, in place of its own address."""
    options: ModelOptions
    """What is asked of the model where a call does not say."""
    profile: Profile | Mapping[str, Any]
    """A whole profile, or the fields in which this model differs from what the catalogue says."""
    strict: bool
    """Refuse a history of which this model would not get every part."""
    retry: RetryPolicy
    """When a failed call is made again, and after which pause."""
    timeouts: Timeouts
    """How long is waited for a connection, for the next bytes, and in all."""
    headers: Mapping[str, str]
    """Sent with every request."""
    allow_insecure_base_url: bool
    """For tests against a server without TLS. Only ever set in code."""
    find_program: Callable[[str], str | None] | None
    """For providers that are programs: how one is found by its name, as shutil.which does. Only ever set in code."""


class ProviderFactory:
    """What a third party's provider offers: engines for a model, in one colour or both. Override what you support."""

    def engine(self, model: str, **options: Unpack[EngineOptions]) -> Engine:
        """An engine for a plain program."""
        raise self._no_colour(model, "plain programs")

    def async_engine(self, model: str, **options: Unpack[EngineOptions]) -> AsyncEngine:
        """An engine for a program on an event loop."""
        raise self._no_colour(model, "async programs")

    def _no_colour(self, model: str, programs: str) -> ConfigurationError:
        message = f"{type(self).__name__} offers no engine for {programs} (model {model!r})."
        return ConfigurationError(message, hint="Use the other colour, or another provider.")


_registered: dict[str, ProviderFactory] = {}


def register_provider(name: str, factory: ProviderFactory, *, replace: bool = False) -> None:
    """Make `name:model` stand for engines of this factory. A name that is taken is an error unless replaced."""
    if not replace and (name in _registered or name in PROVIDERS or name in PROGRAMS):
        message = f"There is a provider named {name!r} already."
        raise ConfigurationError(message, hint="Choose another name, or say replace=True.")
    _registered[name] = factory


def is_registered(name: str) -> bool:
    """Whether engines of this name come from a factory: a third party's, or that of a program on this machine."""
    return name in PROGRAMS or _factory_named(name) is not None


def engine(model: str, *, transport: Transport | None = None, **options: Unpack[EngineOptions]) -> Engine:
    """An engine for a plain program, by `provider:model`, `provider/model` or a well-known model's bare name."""
    factory, bare = _factory_of(model)
    if factory is not None:
        return factory.engine(bare, **options)
    found = connection(model, **options)
    if transport is None:
        from dragoman.transport import SocketTransport

        transport = SocketTransport()
    return HttpEngine(found, transport)


def async_engine(model: str, *, transport: Transport | None = None, **options: Unpack[EngineOptions]) -> AsyncEngine:
    """`engine` for a program on an event loop."""
    factory, bare = _factory_of(model)
    if factory is not None:
        return factory.async_engine(bare, **options)
    found = connection(model, **options)
    if transport is None:
        from dragoman.transport import AsyncioTransport

        transport = AsyncioTransport()
    return AsyncHttpEngine(found, transport)


def connection(model: str, **options: Unpack[EngineOptions]) -> Connection:
    """The model, where it is and how it is to be called, from a name and what differs from the catalogue."""
    provider_name, bare = split_model(model)
    provider = PROVIDERS[provider_name]
    base_url = options.get("base_url") or provider.base_url
    if not base_url:
        message = f"The provider {provider_name!r} has no address of its own."
        raise ConfigurationError(message, hint="Say base_url='https://…/v1'.")
    validate_base_url(base_url, allow_insecure=options.get("allow_insecure_base_url", False))
    return Connection(
        provider=provider,
        model=bare,
        profile=profile_with(profile_of(provider_name, bare), options.get("profile", {})),
        base_url=base_url,
        key=key_of(provider, options.get("key"), base_url),
        **how_to_call(options),
    )


def how_to_call(options: EngineOptions) -> dict[str, Any]:
    """What of the options is a field of a Connection as it is."""
    fields = ("options", "strict", "retry", "timeouts", "headers")
    return {name: value for name, value in options.items() if name in fields}


def _factory_of(model: str) -> tuple[ProviderFactory | None, str]:
    """The factory for this name, and the model; None for a name that the catalogue knows."""
    parts = divided(model)
    return (None, model) if parts is None else (_factory_named(parts[0]), parts[1])


def _factory_named(name: str) -> ProviderFactory | None:
    if name not in _registered and name.lower() in _PROGRAM_FACTORIES:  # its package is loaded now
        return cast("ProviderFactory", import_module(_PROGRAM_FACTORIES[name.lower()], __package__).FACTORY)
    if name not in _registered and name not in PROVIDERS and name not in ALIASES:
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINTS, name=name):
            offered = cast("ProviderFactory | Callable[[], ProviderFactory]", point.load())
            _registered[name] = offered if isinstance(offered, ProviderFactory) else offered()
    return _registered.get(name)


_PROGRAM_FACTORIES = {"claude-local": ".claude_cli.engine", "local": ".local.factory"}
