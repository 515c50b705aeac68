"""Engines by name: `engine("anthropic:claude-sonnet-4-5")`, or several: `engine(["anthropic:…", "openai:…"])`.

Must not know: configuration files and keychains (the chat room does). A key is passed, or found in the provider's
environment variable; keys.py decides whether it may be sent to the address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, cast

import dragoman.engines
import dragoman.transport
from dragoman._checks import check_names
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

from .base import AsyncEngine, Engine, adopt
from .credential import AnyKey
from .http import AsyncHttpEngine, Connection, HttpEngine
from .keys import belongs_elsewhere, key_of, may_go

if TYPE_CHECKING:
    from dragoman.providers import Prices

    from .fallback import Fallback
    from .limiter import RateLimiter

E = TypeVar("E", bound=Engine | AsyncEngine)

Models: TypeAlias = str | Sequence[str | E]
"""A model by its name; or several, by name or as engines: if one fails, the next one answers."""

ENTRY_POINTS = "dragoman.providers"
"""The entry point group in which a package registers a ProviderFactory under its provider's name."""


class EngineOptions(TypedDict, total=False):
    """Options of an engine."""

    key: AnyKey | Mapping[str, AnyKey] | None
    """The key, or a function that returns one, instead of the key in the environment; for several models, by
    provider."""
    base_url: str | None
    """The address, instead of the provider's own."""
    region: str
    """For models in a cloud: the region, such as `us-east-1`, instead of the environment's."""
    project: str
    """For models on Vertex AI: the Google Cloud project, instead of the environment's."""
    options: ModelOptions
    """Defaults for calls."""
    prices: Prices | None
    """The model's prices, instead of those in the table."""
    profile: Profile | Mapping[str, Any]
    """A whole profile, or the fields in which this model differs from the catalogue."""
    strict: bool
    """Refuse a conversation if this model would not get every part of it."""
    retry: RetryPolicy
    """When and how soon a failed call is retried."""
    timeouts: Timeouts
    """Timeouts for connecting, for the next bytes, and for the whole call."""
    headers: Mapping[str, str]
    """Sent with every request."""
    limiter: RateLimiter
    """Client-side rate limits for all engines of the process with the same key."""
    fallback: Fallback
    """For several models: when the next one is called, and which one."""
    allow_insecure_base_url: bool
    """For tests with a server without TLS. Cannot be set in a file."""
    find_program: Callable[[str], str | None] | None
    """For providers that are programs: looks one up by its name, like shutil.which. Cannot be set in a file."""


class ProviderFactory:
    """Creates the engines of a third party's provider, sync, async or both. Override what you support."""

    def engine(self, model: str, **options: Unpack[EngineOptions]) -> Engine:
        """An engine for a sync program."""
        raise self._unsupported(model, "sync programs")

    def async_engine(self, model: str, **options: Unpack[EngineOptions]) -> AsyncEngine:
        """An engine for a program on an event loop."""
        raise self._unsupported(model, "async programs")

    def _unsupported(self, model: str, programs: str) -> ConfigurationError:
        message = f"{type(self).__name__} has no engine for {programs} (model {model!r})."
        return ConfigurationError(message, hint="Use ChatClient or AsyncChatClient instead, or another provider.")


_registered: dict[str, ProviderFactory] = {}


def register_provider(name: str, factory: ProviderFactory, *, replace: bool = False) -> None:
    """Use this factory for `name:model`. A name that is taken is an error, unless `replace` is true."""
    if not replace and (name in _registered or name in PROVIDERS or name in PROGRAMS):
        message = f"There is a provider named {name!r} already."
        raise ConfigurationError(message, hint="Choose another name, or say replace=True.")
    _registered[name] = factory


def is_registered(name: str) -> bool:
    """Whether a factory creates the engines of this provider: a third party's, or the one of a local program."""
    return name in PROGRAMS or _factory_named(name) is not None


def engine(model: Models[Engine], *, transport: Transport | None = None, **options: Unpack[EngineOptions]) -> Engine:
    """An engine for a sync program, by `provider:model`, `provider/model` or a well-known model's bare name.

    Of several models the first one answers, and if it fails the next one: `engine(["anthropic:…", "openai:…"])`.
    """
    return _make(Engine, model, transport, options)


def async_engine(
    model: Models[AsyncEngine], *, transport: Transport | None = None, **options: Unpack[EngineOptions]
) -> AsyncEngine:
    """`engine` for a program on an event loop."""
    return _make(AsyncEngine, model, transport, options)


def _make(kind: type[E], model: Models[E], transport: Transport | None, options: EngineOptions) -> E:
    check_names(options, EngineOptions.__annotations__, "An engine", _ELSEWHERE)
    is_plain: bool = kind is Engine
    if not isinstance(model, str):
        engines, made = _engines(kind, model, transport, options)
        chain: Any = dragoman.engines.FallbackEngine if is_plain else dragoman.engines.AsyncFallbackEngine
        return engines[0] if len(engines) == 1 else chain(engines, options.get("fallback"), owned=made)
    own = _options_for(model, options, [model])
    parts = divided(model)
    if parts is not None and (factory := _factory_named(parts[0])) is not None:
        if parts[0].lower() in PROGRAMS:
            _refuse_places(parts[0], own)
        return cast("E", (factory.engine if is_plain else factory.async_engine)(parts[1], **own))
    found = connection(model, **own)
    if is_plain:  # only the transport that is used is loaded
        return cast("E", HttpEngine(found, transport or dragoman.transport.SocketTransport()))
    return cast("E", AsyncHttpEngine(found, transport or dragoman.transport.AsyncioTransport()))


def _engines(
    kind: type[E], models: Sequence[str | E], transport: Transport | None, options: EngineOptions
) -> tuple[list[E], list[E]]:
    """The engines of a list, and those of them that were created here, with these options."""
    if not isinstance(cast("object", models), Sequence):  # whatever the types say
        models = [cast("Any", models)]
    names = [each for each in models if isinstance(each, str)]
    given = [*[name for name in options if name != "fallback"], *([] if transport is None else ["transport"])]
    if given and models and not names:
        message = f"{given[0]!r} is given together with engines, which have their own."
        raise ConfigurationError(message, hint=f"Pass {given[0]} to the engines, or name models instead of them.")
    _refuse_shared(options, names)
    made: dict[int, E] = {}
    for at, each in enumerate(models):
        if isinstance(each, str):
            made[at] = _make(kind, each, transport, _options_for(each, options, names))
    return [made[at] if at in made else adopt(each, kind) for at, each in enumerate(models)], list(made.values())


_OF_ONE: Final = {
    "key": "provider",
    "base_url": "provider",
    "headers": "provider",
    "profile": "model",
    "prices": "model",
}


def _refuse_shared(options: EngineOptions, names: Sequence[str]) -> None:
    """Raise ConfigurationError for an option of one provider or model that is given for several."""
    counts = {"provider": len({_providers_of(name)[-1] for name in names}), "model": len(names)}
    for name, owner in _OF_ONE.items():
        value = options.get(name)
        if value and counts[owner] > 1 and not (name == "key" and isinstance(value, Mapping)):
            hint = f"Create the engine that needs it first: engine([engine(model, {name}=…), …])."
            hint = 'Pass keys by provider: key={"openai": …, "anthropic": …}.' if name == "key" else hint
            raise ConfigurationError(f"{name!r} belongs to one {owner}, and there are {counts[owner]}.", hint=hint)


_PLACES: Final = ("region", "project")


def _options_for(model: str, options: EngineOptions, models: Sequence[str]) -> EngineOptions:
    """The options for one of these models: its own key, and region and project unless only other models have them."""
    own: dict[str, Any] = {name: value for name, value in options.items() if name != "fallback"}
    if isinstance(keys := own.get("key"), Mapping):
        own["key"] = _key_for(model, cast("Mapping[str, AnyKey]", keys), models)
    for place in _PLACES:
        if place in own and not _has_place(model, place) and any(_has_place(other, place) for other in models):
            del own[place]
    return cast("EngineOptions", own)


def _key_for(model: str, keys: Mapping[str, AnyKey], models: Sequence[str]) -> AnyKey | None:
    """The key for this model's provider. Raises ConfigurationError for a key without a model."""
    resolved = {ALIASES.get(name, name): key for name, key in keys.items()}
    known = list(dict.fromkeys(name for each in models for name in reversed(_providers_of(each))))
    for name in keys:
        if ALIASES.get(name, name) not in known:
            message = f"There is a key for {name!r}, but no model of that provider."
            raise ConfigurationError(message, hint=f"Remove it, or correct the name: {', '.join(known)}.")
    return next((resolved[name] for name in _providers_of(model) if name in resolved), None)


def _has_place(model: str, place: str) -> bool:
    """Whether the model takes a region, or a project: its cloud has them, or a third party decides."""
    provider = _providers_of(model)[0]
    if provider.lower() in PROGRAMS:
        return False
    return is_registered(provider) or place in PROVIDERS[provider].places


def _providers_of(model: str) -> tuple[str, str]:
    """The names of the model's provider: its own, and the one before the model, which may be a related provider's."""
    parts = divided(model)
    if parts is not None and is_registered(parts[0]):
        return parts[0], parts[0]
    own = split_model(model)[0]
    written = own if parts is None else parts[0].lower()
    return own, ALIASES.get(written, written)


def made_here(found: Engine | AsyncEngine, model: object) -> bool:
    """Whether an engine was created from a name, and is therefore closed by what uses it."""
    return isinstance(model, str) or (isinstance(model, Sequence) and found not in cast("Sequence[object]", model))


def connection(model: str, **options: Unpack[EngineOptions]) -> Connection:
    """The connection for a model's name."""
    provider_name, bare = split_model(model)
    provider = PROVIDERS[provider_name]
    base_url, place = options.get("base_url") or provider.base_url, None
    if provider.cloud is not None:
        from .clouds.places import locate  # few programs need it

        _refuse_places(provider_name, options, provider.places)
        region, project = options.get("region", ""), options.get("project", "")
        place = locate(provider, bare, base_url=options.get("base_url") or "", region=region, project=project)
        base_url = place.base_url
    else:
        _refuse_places(provider_name, options)
    if not base_url:
        message = f"The provider {provider_name!r} has no address of its own."
        raise ConfigurationError(message, hint="Pass base_url='https://…/v1'.")
    validate_base_url(base_url, allow_insecure=options.get("allow_insecure_base_url", False))
    key = key_of(provider, options.get("key"), base_url)
    if key is None and place is not None:
        key = place.identity()
        if not may_go(key, base_url):
            raise belongs_elsewhere(provider.name, key, base_url, "The identity of this machine")
    return Connection(
        provider=provider,
        model=bare,
        profile=profile_with(profile_of(provider_name, bare), options.get("profile", {})),
        base_url=base_url,
        key=key,
        sign=None if place is None else place.sign,
        **how_to_call(options),
    )


def _refuse_places(provider: str, options: EngineOptions, taken: Sequence[str] = ()) -> None:
    for name in _PLACES:
        if options.get(name) and name not in taken:
            others = ", ".join(f"{row}:" for row in ("bedrock", "vertex") if name in PROVIDERS[row].places)
            where = f"the argument, {name} in a configuration file or DRAGOMAN_{name.upper()}"
            hint = f"Remove {name} ({where}), or use a model that has one: {others}."
            raise ConfigurationError(f"{provider} has no {name}.", hint=hint)


def how_to_call(options: EngineOptions) -> dict[str, Any]:
    """The options that are fields of a Connection."""
    fields = ("options", "prices", "strict", "retry", "timeouts", "headers", "limiter")
    return {name: value for name, value in options.items() if name in fields}


_ELSEWHERE = {
    **{name: f"options=ModelOptions({name}=…)" for name in ModelOptions.__struct_fields__},
    "api_key": "key=…",
    "timeout": "timeouts=Timeouts(total=…)",
}


def _factory_named(name: str) -> ProviderFactory | None:
    if name not in _registered and name.lower() in _PROGRAM_FACTORIES:  # its package is loaded now
        return cast("ProviderFactory", import_module(_PROGRAM_FACTORIES[name.lower()], __package__))
    if name not in _registered and name not in PROVIDERS and name not in ALIASES:
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINTS, name=name):
            offered = cast("ProviderFactory | Callable[[], ProviderFactory]", point.load())
            _registered[name] = offered if isinstance(offered, ProviderFactory) else offered()
    return _registered.get(name)


_PROGRAM_FACTORIES = {"claude-local": ".claude_cli.engine", "local": ".local.factory"}
"""Modules that have what a ProviderFactory has."""
