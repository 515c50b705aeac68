"""Config: how a chat is set up, which settings there are, and the check of a value that all sources share.

Config works the same whether a program creates it or `load_config` does (config_sources.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, cast, get_origin

import msgspec
from msgspec import Struct

from dragoman._checks import CheckedMeta, Positive, list_changes, reason_of
from dragoman._decoding import convert_to, decode
from dragoman.engines import (
    Credential,
    EngineOptions,
    Fallback,
    KeySource,
    RateLimiter,
    Secret,
    given_key,
    is_registered,
)
from dragoman.errors import ConfigurationError
from dragoman.providers import ALIASES, PROVIDERS, WELL_KNOWN_MODELS, ModelOptions, Prices, Profile, split_model
from dragoman.tools import ToolConfig
from dragoman.transport import RetryPolicy, Timeouts, Transport, validate_base_url

from .credentials import Found, KeyReference, find_key, resolve_provider

Path: TypeAlias = tuple[str, ...]
"""`("options", "temperature")` is `temperature` in the table `[options]`."""

_DEFAULT_PROVIDER: Final = "openai"
_DEFAULT_MODELS: Final = {
    "anthropic": "claude-sonnet-4-5",
    "claude-local": "default",
    "gemini": "gemini-3-flash-preview",
    "openai": "gpt-5",
    "openai-responses": "gpt-5",
}
# Not Anthropic's: its API requires a limit, so the profiles of its models have one.
_DEFAULT_MAX_TOKENS: Final = {"gemini": 8192, "openai": 4096, "openai-responses": 4096}


def default_model(provider: str) -> str:
    """The provider's default model; empty if it has none."""
    return _DEFAULT_MODELS.get(provider, "")


class Config(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    """How a chat is set up. Every field has a default; empty means the provider's own."""

    # --- the model, its address and its key ---
    provider: str = ""
    """As before the colon in `provider:model`; empty: derived from the model's name."""
    model: str | tuple[str, ...] = ""
    """With or without its provider; empty: the provider's default model. If there are several and one fails, the next
    one answers; those after the first need their provider in the name."""
    token: str | Secret | KeySource | Credential | None = None
    """The key (kept as a Secret), or a function that generates one (kept as a Credential); None: it is looked up."""
    base_url: str = ""
    """Empty: the provider's own address."""
    region: str = ""
    """For models in a cloud; empty: from the cloud's own variables."""
    project: str = ""
    """For models on Vertex AI; empty: from Google's own variables."""
    keys: Mapping[str, KeyReference] = {}
    """Where to find keys, by provider."""
    # --- prompt and answer ---
    system_prompt: str = ""
    response_schema: object = None
    """The type, or the JSON Schema, of every answer; None: text."""
    schema_name: str = ""
    schema_description: str = ""
    # --- limits and behaviour ---
    max_steps: Positive = 20
    """Model calls for one question."""
    max_tokens: Positive | None = None
    """The most tokens of one reply; None: 4096 for OpenAI, 8192 for Claude and Gemini, else the provider's default."""
    parallel_tools: bool = True
    """Whether the tools of one step run at the same time."""
    max_parallel_tools: Positive = 5
    """… and how many of them."""
    strict: bool = False
    """Refuse a history that the model would not get completely."""
    options: ModelOptions = ModelOptions()
    """Further options of the model: temperature, reasoning, …"""
    prices: Prices | None = None
    """What the model costs; None: as in the price table."""
    tool_config: ToolConfig = ToolConfig()
    """Further options of tools: timeouts, budgets, errors."""
    retry: RetryPolicy = RetryPolicy()
    timeouts: Timeouts = Timeouts()
    fallback: Fallback = Fallback()
    """With several models: when the next one is asked, and which."""
    limiter: RateLimiter = RateLimiter()
    """How many requests and tokens per minute and at once; unlimited by default."""
    # --- for code only: neither a file nor a variable can set these ---
    allow_insecure_base_url: bool = False
    """Allow http:// on another machine as base URL, for tests."""
    headers: Mapping[str, str] = {}
    """Further headers of every request."""
    model_profile: Profile | Mapping[str, object] = {}
    """What the model can do, or the fields in which it differs from the catalogue."""
    transport: Transport | None = None
    async_transport: Transport | None = None
    find_program: Callable[[str], str | None] | None = None
    """How to find a program such as `claude`, as shutil.which does."""

    def __post_init__(self) -> None:
        if not isinstance(self.token, Secret):
            msgspec.structs.force_setattr(self, "token", given_key(self.token))
        for (table, inner), (top,) in SAME.items():
            value, default = getattr(getattr(self, table), inner), getattr(TABLES[table](), inner)
            if value != default:
                if getattr(self, top) not in (default, value):
                    message = (
                        f"{top} and {table}.{inner} are the same setting, but are {getattr(self, top)} and {value}."
                    )
                    raise ConfigurationError(message, hint=f"Set only {top}.")
                msgspec.structs.force_setattr(self, top, value)
        validate_base_url(self.base_url, allow_insecure=self.allow_insecure_base_url)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What differs from the defaults, without keys, headers and the query of the base URL."""
        hidden = {"base_url": hide_query(self.base_url), "headers": "…"}
        return [(name, hidden.get(name, value)) for name, value in list_changes(self)]

    def __repr__(self) -> str:
        return f"Config({', '.join([f'{name}={value!r}' for name, value in self.__rich_repr__()])})"

    @property
    def provider_name(self) -> str:
        """The provider's own name: `anthropic` for `claude`."""
        return _resolve(self.provider, list_models(self.model)[0])[0]

    @property
    def model_name(self) -> str:
        """The first model as `provider:model`."""
        return self.model_names[0]

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every model as `provider:model`."""
        first, *others = list_models(self.model)
        provider, model = _resolve(self.provider, first)
        if not model:
            message = f"No model was chosen, and {provider} has no default."
            raise ConfigurationError(message, hint=f"Choose one: model='{provider}:…'.")
        return f"{provider}:{model}", *[":".join(_resolve("", each)) for each in others]

    def key(self, environ: Mapping[str, str] | None = None) -> Found | None:
        """The key and where it was found; None if none is needed. Raises MissingKeyError."""
        return find_key(self.provider_name, token=self.token, keys=self.keys, environ=environ)

    def for_model(self) -> ModelOptions:
        """The options of the model."""
        limit = self.max_tokens or _DEFAULT_MAX_TOKENS.get(self.provider_name)
        return msgspec.structs.replace(self.options, max_tokens=limit)

    def for_tools(self) -> ToolConfig:
        """The options of tools."""
        at_once = self.max_parallel_tools if self.parallel_tools else 1
        return msgspec.structs.replace(self.tool_config, max_iterations=self.max_steps, max_parallel_tools=at_once)

    def for_engine(self, environ: Mapping[str, str] | None = None) -> EngineOptions:
        """The options for `engine` and `async_engine` that differ from their defaults. Looks up the keys."""
        changed = {ENGINE_OPTIONS[name]: value for name, value in list_changes(self) if name in ENGINE_OPTIONS}
        return cast("EngineOptions", {**changed, "key": self._keys(environ), "options": self.for_model()})

    def _keys(self, environ: Mapping[str, str] | None) -> Secret | Credential | dict[str, Secret | Credential] | None:
        """The key; with several providers, the key of each."""
        providers = list(dict.fromkeys([name.partition(":")[0] for name in self.model_names]))
        if len(providers) == 1:
            found = self.key(environ)
            return None if found is None else found.secret
        if self.token is not None:
            message = f"The token belongs to one provider, but there are {len(providers)}: {', '.join(providers)}."
            raise ConfigurationError(message, hint="Write [keys.…] for each of them, or set their variables.")
        found = {name: find_key(name, keys=self.keys, environ=environ) for name in providers}
        return {name: each.secret for name, each in found.items() if each is not None}


ENGINE_OPTIONS: Final = {
    **{name: name for name in Config.__struct_fields__ if name in EngineOptions.__annotations__},
    "token": "key",
    "model_profile": "profile",
}
"""The fields that are options of engines, and the names of these options."""


# --- settings ---------------------------------------------------------------------------------------------------------

TABLES: Final[Mapping[str, type[Struct]]] = {
    "options": ModelOptions,
    "tool_config": ToolConfig,
    "retry": RetryPolicy,
    "timeouts": Timeouts,
    "fallback": Fallback,
    "limiter": RateLimiter,
}
"""Tables whose keys are the fields of a value that the rest of the library uses too."""

SAME: Final[Mapping[Path, Path]] = {
    ("options", "max_tokens"): ("max_tokens",),
    ("tool_config", "max_iterations"): ("max_steps",),
    ("tool_config", "max_parallel_tools"): ("max_parallel_tools",),
}
"""Fields of tables that are also fields of Config."""

_CODE_ONLY: Final[Mapping[str, str]] = {
    **dict.fromkeys(("allow_insecure_base_url", "headers", "model_profile"), "Pass it as an argument."),
    **dict.fromkeys(("transport", "async_transport", "find_program"), "Pass it as an argument."),
    **dict.fromkeys(("options.extra_headers", "options.server_tools"), "Pass it as an argument."),
    "options.response_format": "Write response_schema, outside of any table.",
    "options.tool_choice": "Write it in [tool_config].",
    "token": "Set the provider's own variable, or write [keys.openai] with env, keychain or key.",
}
"""What neither a file nor a variable can set, and what to do instead."""

_OF_PROJECTS: Final = frozenset(
    [
        *("provider", "model"),
        *("max_steps", "max_tokens", "parallel_tools", "max_parallel_tools", "strict"),
        *("options.reasoning", "options.temperature", "options.top_p", "options.top_k", "options.stop"),
        *("options.seed", "options.cache", "options.adapt"),
    ]
)
"""What a project may set: which model answers and how, but not where requests go, which keys are used or what runs."""

_SAID_TO_MODELS: Final = frozenset({"system_prompt", "response_schema", "schema_name", "schema_description"})
"""What a project may offer: models follow it, so it counts only once the user has agreed."""

_TYPES: Final[Mapping[str, object]] = {  # of what a file can say, where code can say more
    "response_schema": dict[str, object],
    "tool_choice": Literal["auto", "none", "required"],
}


class Field(Struct, frozen=True, kw_only=True):
    """One setting."""

    path: Path
    type: object
    """Of its value in a file."""
    code_only: str
    """What to do if a file or a variable sets it; empty: they can."""
    of_projects: bool
    """Whether the file of a project that the user has not declared trusted may set it."""
    said_to_models: bool
    """Whether such a file may only offer it."""

    @property
    def name(self) -> str:
        return ".".join(self.path)


def _list_fields(struct: type[Struct], *table: str) -> Iterator[Field]:
    for info in msgspec.structs.fields(struct):
        path = (*table, info.name)
        name = ".".join(path)
        if name not in (*TABLES, "keys") and path not in SAME:
            yield Field(
                path=path,
                type=_TYPES.get(info.name, info.type),
                code_only=_CODE_ONLY.get(name, ""),
                of_projects=name in _OF_PROJECTS,
                said_to_models=name in _SAID_TO_MODELS,
            )


FIELDS: Final[dict[Path, Field]] = {
    field.path: field
    for fields in (_list_fields(Config), *(_list_fields(struct, table) for table, struct in TABLES.items()))
    for field in fields
}
"""Every setting by its path, some of them by two."""
FIELDS.update({path: FIELDS[same] for path, same in {**SAME, ("ai", "provider"): ("provider",)}.items()})


def check_value(field: Field, value: object, where: str, *, from_text: bool = False) -> Any:
    """Convert a value to the field's type; raises ConfigurationError with what was expected and `where` it is."""
    table, name = field.path[0], field.path[-1]
    try:
        found = convert_to(value, cast("Any", field.type), strict=not from_text)
        if found == math.inf and table != "options":
            found = None  # how TOML writes "no limit"
        elif isinstance(found, float) and not math.isfinite(found):
            raise _refuse(field, where, f"expected a number, got {found}")
        if table in TABLES:
            TABLES[table](**cast("dict[str, Any]", {name: found}))  # which has checks of its own
    except msgspec.ValidationError as error:
        raise _refuse(field, where, reason_of(error)) from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{field.name} ({where}): {error.message}", hint=error.hint) from None
    return found


def parse_text(field: Field, text: str, where: str) -> Any:
    """Parse the text of a variable or an option: a plain word, a list `a, b`, or JSON."""
    if field.type in (str, str | None):
        return check_value(field, text, where)
    word = text.strip()
    if word.startswith(("[", "{")):
        try:
            decoded: object = decode(word)
        except msgspec.DecodeError:
            raise _refuse(field, where, "it is not valid JSON") from None
        return check_value(field, decoded, where)
    if field.name == "model" and "," not in word:
        return check_value(field, word, where)
    if get_origin(field.type) in (tuple, frozenset) or field.type in (str | tuple[str, ...], frozenset[str] | None):
        return check_value(field, [part.strip() for part in word.split(",") if part.strip()], where)
    return check_value(field, word, where, from_text=True)


def _refuse(field: Field, where: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{field.name} does not fit ({where}): {reason}.", hint=f"Correct {field.name}.")


# --- provider and model -----------------------------------------------------------------------------------------------

_MAKERS: Final = frozenset({"anthropic", "gemini", "openai", "openai-responses"})
"""Providers that serve only their own models: the name of another maker's model cannot mean one of theirs."""

_TAG: Final = re.compile(r"latest|[a-z]?[0-9.]+[bm](?:-.*)?").fullmatch
"""What Ollama writes behind the colon, as in `mistral:7b`."""


def list_models(model: object) -> tuple[str, ...]:
    """The models of a setting that may be one name or several."""
    return (model,) if isinstance(model, str) else cast("tuple[str, ...]", model) or ("",)


def _resolve(provider: str, model: str) -> tuple[str, str]:
    """The provider's own name and its model, with the defaults of both."""
    provider, model = split_address(provider, model)
    if model and not provider:
        provider, model = split_model(model)  # raises: the name does not say which provider has it
    provider = resolve_provider(provider or _DEFAULT_PROVIDER)
    return provider, model or default_model(provider)


def resolve_alias(provider: str) -> str:
    """The provider's own name; an unknown one is returned as it is, for the error to show it."""
    lower = provider.strip().lower()
    name = ALIASES.get(lower, lower)
    return name if name in PROVIDERS else provider.strip()


def split_address(provider: str, model: str, below: str = "") -> tuple[str, str]:
    """The provider and the bare model of one source; `below` is the provider of the sources below it.

    The provider is empty if this source does not set it.
    """
    before, colon, after = model.partition(":")
    if provider:
        name = resolve_alias(provider)
        return name, after if colon and resolve_alias(before) == name else model
    if after and _is_provider(before) and not (below == "ollama" and _TAG(after)):
        return resolve_alias(before), after
    if below and below not in _MAKERS:  # it also serves other makers' models, under names of its own
        return "", model
    before, _, after = model.partition("/")
    if after and _is_provider(before):
        return resolve_alias(before), after
    for pattern, maker in WELL_KNOWN_MODELS:
        if fnmatchcase(model, pattern) and not (below and is_same_service(below, maker)):
            return maker, model
    return "", model


def _is_provider(word: str) -> bool:
    return bool(word) and (resolve_alias(word) in PROVIDERS or is_registered(word))


def is_same_service(one: str, other: str) -> bool:
    """Whether two providers share their models and addresses."""
    if one == other or one not in PROVIDERS or other not in PROVIDERS:
        return one == other
    return PROVIDERS[one].base_url == PROVIDERS[other].base_url != ""


def hide_query(url: str) -> str:
    """The address without its query, which may contain a key."""
    before, mark, _ = url.partition("?")
    return f"{before}?…" if mark else before
