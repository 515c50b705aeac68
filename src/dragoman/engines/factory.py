"""Engines by name: `engine("anthropic:claude-sonnet-4-5")`, or several: `engine(["anthropic:…", "openai:…"])`.

Owns: from names and options to an engine; the registry of third parties' providers.
Must not know: configuration files and keychains (the chat room does). A key is given, or found in the provider's usual
environment variable; keys.py decides whether it may go to the address.
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
"""A model by its name; or several, by name or as engines, of which the next one answers where one fails."""

ENTRY_POINTS = "dragoman.providers"
"""The group in which an installed package offers a ProviderFactory under its provider's name."""


class EngineOptions(TypedDict, total=False):
    """What an engine can be given beside its name."""

    key: AnyKey | Mapping[str, AnyKey] | None
    """The key, or a function that makes one, in place of the one that is found in the environment; for several models,
    by provider."""
    base_url: str | None
    """Where the provider is, in place of its own address."""
    region: str
    """For models in a cloud: the region, such as `us-east-1`; in place of that of the environment."""
    project: str
    """For models on Vertex AI: the project of Google Cloud; in place of that of the environment."""
    options: ModelOptions
    """What is asked of the model where a call does not say."""
    prices: Prices | None
    """What the model costs, in place of what the table says."""
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
    limiter: RateLimiter
    """How much is asked for in a minute and at once, by all engines of the process with the same key."""
    fallback: Fallback
    """For several models: when the next one is asked, and which one that is."""
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


def engine(model: Models[Engine], *, transport: Transport | None = None, **options: Unpack[EngineOptions]) -> Engine:
    """An engine for a plain program, by `provider:model`, `provider/model` or a well-known model's bare name.

    Of several models the first one answers, and where it fails the next: `engine(["anthropic:…", "openai:…"])`.
    """
    if not isinstance(model, str):
        engines, made = _engines(model, transport, options, Engine)
        if len(engines) == 1:
            return engines[0]
        return dragoman.engines.FallbackEngine(engines, options.get("fallback"), owned=made)
    factory, bare, options = _factory_of(model, options)
    if factory is not None:
        return factory.engine(bare, **options)
    found = connection(model, **options)
    if transport is None:
        transport = dragoman.transport.SocketTransport()  # of the two, the one that is used is loaded
    return HttpEngine(found, transport)


def async_engine(
    model: Models[AsyncEngine], *, transport: Transport | None = None, **options: Unpack[EngineOptions]
) -> AsyncEngine:
    """`engine` for a program on an event loop."""
    if not isinstance(model, str):
        engines, made = _engines(model, transport, options, AsyncEngine)
        if len(engines) == 1:
            return engines[0]
        return dragoman.engines.AsyncFallbackEngine(engines, options.get("fallback"), owned=made)
    factory, bare, options = _factory_of(model, options)
    if factory is not None:
        return factory.async_engine(bare, **options)
    found = connection(model, **options)
    if transport is None:
        transport = dragoman.transport.AsyncioTransport()
    return AsyncHttpEngine(found, transport)


_OF_ONE_PROVIDER: Final = ("key", "base_url", "headers")
_PLACES: Final = ("region", "project")


def _engines(
    models: Sequence[str | E], transport: Transport | None, options: EngineOptions, kind: type[E]
) -> tuple[list[E], list[E]]:
    """The engines of a list, and those of them that were made here; options hold for all that are.

    Of keys by provider each gets its own, and a region and a project go to those that have one.
    """
    check_names(options, EngineOptions.__annotations__, "An engine", _ELSEWHERE)
    models = (
        models if isinstance(cast("object", models), Sequence) else [cast("Any", models)]
    )  # whatever the types promise
    if not models:
        message = "The list of models is empty."
        raise ConfigurationError(message, hint='Name one or more, such as ["anthropic:claude-sonnet-4-5", "local:"].')
    names = [each for each in models if isinstance(each, str)]
    given = [*[name for name in options if name != "fallback"], *([] if transport is None else ["transport"])]
    if given and not names:
        message = f"{given[0]!r} is given together with engines, which have their own."
        raise ConfigurationError(message, hint=f"Give {given[0]} to the engines, or names of models instead of them.")
    providers = {_names_for(name)[-1] for name in names}
    for name in _OF_ONE_PROVIDER if len(providers) > 1 else ():
        if options.get(name) and not (name == "key" and isinstance(options.get(name), Mapping)):
            hint = f"Make the engine that needs it first: engine([engine(model, {name}=…), …])."
            hint = 'Give keys by provider: key={"openai": …, "anthropic": …}.' if name == "key" else hint
            raise ConfigurationError(f"{name!r} belongs to one provider, and there are {len(providers)}.", hint=hint)
    for name in ("profile", "prices") if len(names) > 1 else ():
        if options.get(name):
            hint = f"Make the engine that needs it first: engine([engine(model, {name}=…), …])."
            raise ConfigurationError(f"{name!r} belongs to one model, and there are {len(names)}.", hint=hint)
    make: Any = engine if kind is Engine else async_engine
    keys = _keys_by_provider(options, names)
    meant = {place: [name for name in names if _has_place(name, place)] for place in _PLACES}
    made: dict[int, E] = {}
    for at, each in enumerate(models):
        if isinstance(each, str):
            own: dict[str, Any] = {**options}
            if keys is not None:
                own["key"] = _key_for(each, keys)
            for place, takers in meant.items():
                if takers and each not in takers:
                    own.pop(place, None)
            made[at] = make(each, transport=transport, **own)
    return [made[at] if at in made else adopt(each, kind) for at, each in enumerate(models)], list(made.values())


def made_here(found: Engine | AsyncEngine, model: object) -> bool:
    """Whether an engine was made for the names that were given, and is therefore to be closed with what uses it."""
    return isinstance(model, str) or (isinstance(model, Sequence) and found not in cast("Sequence[object]", model))


def connection(model: str, **options: Unpack[EngineOptions]) -> Connection:
    """The model, where it is and how it is to be called, from a name and what differs from the catalogue."""
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
        raise ConfigurationError(message, hint="Say base_url='https://…/v1'.")
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
            hint = f"Leave {name} out ({where}), or use a model that has one: {others}."
            raise ConfigurationError(f"{provider} has no {name}.", hint=hint)


def how_to_call(options: EngineOptions) -> dict[str, Any]:
    """What of the options is a field of a Connection as it is."""
    fields = ("options", "prices", "strict", "retry", "timeouts", "headers", "limiter")
    return {name: value for name, value in options.items() if name in fields}


_ELSEWHERE = {
    **{name: f"options=ModelOptions({name}=…)" for name in ModelOptions.__struct_fields__},
    "api_key": "key=…",
    "timeout": "timeouts=Timeouts(total=…)",
}


def _factory_of(model: str, options: EngineOptions) -> tuple[ProviderFactory | None, str, EngineOptions]:
    """The factory for this name, None for one that the catalogue knows; the model; what of the options is for it."""
    check_names(options, EngineOptions.__annotations__, "An engine", _ELSEWHERE)
    keys = _keys_by_provider(options, [model])
    if "fallback" in options or keys is not None:
        options = {name: value for name, value in options.items() if name != "fallback"}  # type: ignore[assignment]
        if keys is not None:
            options["key"] = _key_for(model, keys)
    parts = divided(model)
    if parts is not None and parts[0].lower() in PROGRAMS:
        _refuse_places(parts[0], options)
    return (None, model, options) if parts is None else (_factory_named(parts[0]), parts[1], options)


def _names_for(model: str) -> tuple[str, str]:
    """The names that the model's provider has: its own, and the one before the model, which may be a sibling's."""
    provider, parts = _divide(model)[0], divided(model)
    written = provider if parts is None else parts[0]
    return provider, written if is_registered(written) else ALIASES.get(written.lower(), written.lower())


def _has_place(model: str, place: str) -> bool:
    """Whether a region, or a project, can be given to it: its cloud has such, or a third party decides."""
    provider = _divide(model)[0]
    if provider.lower() in PROGRAMS:
        return False
    return is_registered(provider) or place in PROVIDERS[provider].places


def _keys_by_provider(options: EngineOptions, models: Sequence[str]) -> Mapping[str, AnyKey] | None:
    """The keys, if they are given by provider; every one must be for one of the models."""
    given = options.get("key")
    if not isinstance(given, Mapping):
        return None
    keys = cast("Mapping[str, AnyKey]", given)
    known = list(dict.fromkeys(name for model in models for name in reversed(_names_for(model))))
    for name in keys:
        if ALIASES.get(name, name) not in known:
            message = f"There is a key for {name!r}, and no model of that provider."
            raise ConfigurationError(message, hint=f"Leave it out, or correct the name: {', '.join(known)}.")
    return keys


def _key_for(model: str, keys: Mapping[str, AnyKey]) -> AnyKey | None:
    meant = {ALIASES.get(name, name): key for name, key in keys.items()}
    return next((meant[name] for name in _names_for(model) if name in meant), None)


def _divide(model: str) -> tuple[str, str]:
    """The provider and the model that a name means, whoever offers the provider."""
    parts = divided(model)
    return parts if parts is not None and is_registered(parts[0]) else split_model(model)


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
