"""How a chat is set up: Config, what can be set in it, and the check that every source of a value shares.

A Config made by hand is as good as a loaded one (load_config, in config_sources.py).
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
# Anthropic's is not here: its API cannot do without a limit, so the profiles of its models have one.
_DEFAULT_MAX_TOKENS: Final = {"gemini": 8192, "openai": 4096, "openai-responses": 4096}


def default_model(provider: str) -> str:
    """The model of a provider where none is named; empty if it has no default."""
    return _DEFAULT_MODELS.get(provider, "")


class Config(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    """How a chat is set up. Every field has a default; what is empty is filled in by the provider's own."""

    # --- which model, where, by which key ---
    provider: str = ""
    """As before the colon in `provider:model`; empty: the one that the model's name says."""
    model: str | tuple[str, ...] = ""
    """With or without its provider; empty: the provider's default model. Of several, which after the first say their
    provider, the next one answers where one fails."""
    token: str | Secret | KeySource | Credential | None = None
    """The key, kept as a Secret, or a function that makes one, as a Credential; None: it is looked up."""
    base_url: str = ""
    """Empty: the provider's own address."""
    region: str = ""
    """For models in a cloud; empty: the one that the cloud's own variables name."""
    project: str = ""
    """For models on Vertex AI; empty: the one that Google's own variables name."""
    keys: Mapping[str, KeyReference] = {}
    """Where keys are to be found, by provider."""
    # --- what is said ---
    system_prompt: str = ""
    response_schema: object = None
    """The type, or the JSON Schema, of every answer; None: text."""
    schema_name: str = ""
    schema_description: str = ""
    # --- how far it may go ---
    max_steps: Positive = 20
    """Calls of the model for one question."""
    max_tokens: Positive | None = None
    """The most tokens of one reply; None: 4096 for OpenAI, 8192 for Claude and Gemini, else as the provider does."""
    parallel_tools: bool = True
    """Whether the tools of one step run at the same time."""
    max_parallel_tools: Positive = 5
    """… and how many of them, if they do."""
    strict: bool = False
    """Refuse a history of which the model would not get every part."""
    options: ModelOptions = ModelOptions()
    """What else is asked of the model: temperature, reasoning, …"""
    prices: Prices | None = None
    """What the model costs; None: as the table says."""
    tool_config: ToolConfig = ToolConfig()
    """How else tools are used: timeouts, budgets, errors."""
    retry: RetryPolicy = RetryPolicy()
    timeouts: Timeouts = Timeouts()
    fallback: Fallback = Fallback()
    """Of several models, when the next one is asked, and which one that is."""
    limiter: RateLimiter = RateLimiter()
    """How much is asked for in a minute and at once; with nothing said it is off."""
    # --- code only: neither a file nor a variable can say these ---
    allow_insecure_base_url: bool = False
    """Let the base URL be http:// on another machine, for tests."""
    headers: Mapping[str, str] = {}
    """Further headers of every request."""
    model_profile: Profile | Mapping[str, object] = {}
    """What the model can do, or the fields in which it differs from what the catalogue says."""
    transport: Transport | None = None
    async_transport: Transport | None = None
    find_program: Callable[[str], str | None] | None = None
    """How a program such as `claude` is found, as shutil.which does."""

    def __post_init__(self) -> None:
        if not isinstance(self.token, Secret):
            msgspec.structs.force_setattr(self, "token", given_key(self.token))
        for (table, inner), top in SAME.items():
            said, default = getattr(getattr(self, table), inner), getattr(TABLES[table](), inner)
            if said != default:
                if getattr(self, top) not in (default, said):
                    message = f"{top} and {table}.{inner} are the same, and say {getattr(self, top)} and {said}."
                    raise ConfigurationError(message, hint=f"Say {top} alone.")
                msgspec.structs.force_setattr(self, top, said)
        validate_base_url(self.base_url, allow_insecure=self.allow_insecure_base_url)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What differs from the defaults; keys, headers and the query of the base URL are not shown."""
        hidden = {"base_url": hide_query(self.base_url), "headers": "…"}
        return [(name, hidden.get(name, value)) for name, value in list_changes(self)]

    def __repr__(self) -> str:
        return f"Config({', '.join([f'{name}={value!r}' for name, value in self.__rich_repr__()])})"

    @property
    def provider_name(self) -> str:
        """The provider by its own name: `anthropic` for `claude`."""
        return self._address()[0]

    @property
    def model_name(self) -> str:
        """`provider:model`, as engines are named."""
        provider, model = self._address()
        if not model:
            message = f"No model was chosen, and {provider} has no default."
            raise ConfigurationError(message, hint=f"Say which: model='{provider}:…'.")
        return f"{provider}:{model}"

    @property
    def model_names(self) -> tuple[str, ...]:
        """`provider:model` of every model, those that answer where one fails behind the first."""
        return self.model_name, *map(_complete_name, list_models(self.model)[1:])

    def _address(self) -> tuple[str, str]:
        provider, model = split_address(self.provider, list_models(self.model)[0])
        if model and not provider:
            provider, model = split_model(model)  # raises: nobody says which provider has it
        provider = resolve_provider(provider or _DEFAULT_PROVIDER)
        return provider, model or default_model(provider)

    def key(self, environ: Mapping[str, str] | None = None) -> Found | None:
        """The key and where it was found; None where none is needed. Raises MissingKeyError."""
        return find_key(self.provider_name, token=self.token, keys=self.keys, environ=environ)

    def for_model(self) -> ModelOptions:
        """What is asked of the model."""
        limit = self.max_tokens or _DEFAULT_MAX_TOKENS.get(self.provider_name)
        return msgspec.structs.replace(self.options, max_tokens=limit)

    def for_tools(self) -> ToolConfig:
        at_once = self.max_parallel_tools if self.parallel_tools else 1
        return msgspec.structs.replace(self.tool_config, max_iterations=self.max_steps, max_parallel_tools=at_once)

    def for_engine(self, environ: Mapping[str, str] | None = None) -> EngineOptions:
        """What `engine` and `async_engine` take beside `model_names`. Keys are looked up now."""
        options: EngineOptions = {
            "key": self._keys(environ),
            "base_url": self.base_url or None,
            "region": self.region,
            "project": self.project,
            "options": self.for_model(),
            "prices": self.prices,
            "profile": self.model_profile,
            "strict": self.strict,
            "retry": self.retry,
            "timeouts": self.timeouts,
            "headers": self.headers,
            "allow_insecure_base_url": self.allow_insecure_base_url,
        }
        if self.find_program is not None:
            options["find_program"] = self.find_program
        if self.fallback != Fallback():
            options["fallback"] = self.fallback
        if self.limiter != RateLimiter():
            options["limiter"] = self.limiter
        return options

    def _keys(self, environ: Mapping[str, str] | None) -> Secret | Credential | dict[str, Secret | Credential] | None:
        """The key, or of several providers the key of each."""
        providers = list(dict.fromkeys([name.partition(":")[0] for name in self.model_names]))
        if len(providers) == 1:
            found = self.key(environ)
            return None if found is None else found.secret
        if self.token is not None:
            message = f"The token belongs to one provider, and there are {len(providers)}: {', '.join(providers)}."
            raise ConfigurationError(message, hint="Say with [keys.…] where the key of each is, or set its variable.")
        found = {name: find_key(name, keys=self.keys, environ=environ) for name in providers}
        return {name: each.secret for name, each in found.items() if each is not None}


# --- what can be set --------------------------------------------------------------------------------------------------

TABLES: Final[Mapping[str, type[Struct]]] = {
    "options": ModelOptions,
    "tool_config": ToolConfig,
    "retry": RetryPolicy,
    "timeouts": Timeouts,
    "fallback": Fallback,
    "limiter": RateLimiter,
}
"""Tables whose keys are the fields of a value that the rest of the library uses too."""

SAME: Final[Mapping[Path, str]] = {
    ("options", "max_tokens"): "max_tokens",
    ("tool_config", "max_iterations"): "max_steps",
    ("tool_config", "max_parallel_tools"): "max_parallel_tools",
}
"""Fields of tables that are fields of Config, too."""

_ELSEWHERE: Final[Mapping[str, str]] = {
    "options.response_format": "Write response_schema, outside of any table.",
    "options.tool_choice": "Write it in [tool_config].",
    "token": "Keep keys out of settings: write [keys.openai] with env, keychain or key.",
    **{".".join(path): f"Write {top}, outside of any table." for path, top in SAME.items()},
}
_CODE_ONLY: Final = {
    *("allow_insecure_base_url", "headers", "model_profile", "find_program", "transport", "async_transport"),
    *("options.extra_headers", "options.server_tools"),
}
"""What neither a file nor a variable can set; the rest of these is set elsewhere."""

# A project may say which model answers and how, but not where requests go, which keys are used or what may run.
_OWN: Final = ("base_url", "region", "project", "prices", "tool_config", "retry", "timeouts", "fallback", "limiter")
_OF_PROJECTS: Final = frozenset({"reasoning", "temperature", "top_p", "top_k", "stop", "seed", "cache", "adapt"})
_TYPES: Final[Mapping[str, object]] = {  # which a file can say, where code can say more
    "response_schema": dict[str, object],
    "tool_choice": Literal["auto", "none", "required"],
}


class Field(Struct, frozen=True, kw_only=True):
    """One thing that can be set."""

    path: Path
    type: object
    """Of what a file can say."""
    code_only: str
    """What to do where a file or a variable sets it; empty: they can."""
    of_projects: bool
    """Whether the file of a project that the user has not declared trusted may set it."""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return "DRAGOMAN_" + "_".join(self.path).upper()


def _list_fields(struct: type[Struct], *table: str) -> Iterator[Field]:
    for info in msgspec.structs.fields(struct):
        path, name = (*table, info.name), ".".join((*table, info.name))
        if not table and info.name in (*TABLES, "keys"):
            continue
        yield Field(
            path=path,
            type=_TYPES.get(info.name, info.type),
            code_only="Pass it as an argument." if name in _CODE_ONLY else _ELSEWHERE.get(name, ""),
            of_projects=path[0] not in _OWN and (not table or info.name in _OF_PROJECTS),
        )


FIELDS: Final[Mapping[Path, Field]] = {
    field.path: field
    for fields in (_list_fields(Config), *(_list_fields(struct, table) for table, struct in TABLES.items()))
    for field in fields
}


def check_value(field: Field, value: object, where: str, *, from_text: bool = False) -> Any:
    """The value as the field has it; raises ConfigurationError, which says what was expected and where it stands."""
    table, name = field.path[0], field.path[-1]
    try:
        found = msgspec.convert(value, cast("Any", field.type), strict=not from_text)
        if found == math.inf and table != "options":
            found = None  # how TOML says "without end"
        elif isinstance(found, float) and not math.isfinite(found):
            raise _describe_wrong(field, where, f"expected a number, got {found}")
        if table in TABLES:
            said: dict[str, Any] = {name: found}
            TABLES[table](**said)  # which has checks of its own
    except msgspec.ValidationError as error:
        raise _describe_wrong(field, where, reason_of(error)) from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{field.name} ({where}): {error.message}", hint=error.hint) from None
    return found


def parse_text(field: Field, text: str, where: str) -> Any:
    """The value that the text of a variable or an option stands for: a plain word, a list `a, b`, or JSON."""
    if field.type in (str, str | None):
        return check_value(field, text, where)
    word = text.strip()
    if word.startswith(("[", "{")):
        try:
            decoded: object = msgspec.json.decode(word)
        except msgspec.DecodeError:
            raise _describe_wrong(field, where, "it is no JSON") from None
        return check_value(field, decoded, where)
    if field.name == "model" and "," not in word:
        return check_value(field, word, where)
    if get_origin(field.type) in (tuple, frozenset) or field.type in (str | tuple[str, ...], frozenset[str] | None):
        return check_value(field, [part.strip() for part in word.split(",") if part.strip()], where)
    return check_value(field, word, where, from_text=True)


def _describe_wrong(field: Field, where: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{field.name} does not fit ({where}): {reason}.", hint=f"Correct {field.name}.")


# --- provider and model -----------------------------------------------------------------------------------------------

_MAKERS: Final = frozenset({"anthropic", "gemini", "openai", "openai-responses"})
"""Providers that have their own models only: the name of somebody else's cannot mean one of theirs."""

_TAG: Final = re.compile(r"latest|[a-z]?[0-9.]+[bm](?:-.*)?").fullmatch
"""What Ollama writes behind the colon, as in `mistral:7b`."""


def list_models(model: object) -> tuple[str, ...]:
    """The models that a setting names, one or more."""
    return (model,) if isinstance(model, str) else cast("tuple[str, ...]", model) or ("",)


def _complete_name(model: str) -> str:
    """`provider:model`, for a model that is not the first: it says its provider, or everybody knows it."""
    provider, bare = split_address("", model)
    if not provider:
        provider, bare = split_model(model)
    provider = resolve_provider(provider)
    return f"{provider}:{bare or default_model(provider)}"


def resolve_alias(provider: str) -> str:
    """The provider's own name; what is not known is left as it is, for the error to show it."""
    lower = provider.strip().lower()
    name = ALIASES.get(lower, lower)
    return name if name in PROVIDERS else provider.strip()


def split_address(provider: str, model: str, below: str = "") -> tuple[str, str]:
    """The provider and the bare model that one source means; `below` is the provider that lower sources have said.

    The provider is empty where this source says nothing about it.
    """
    before, colon, after = model.partition(":")
    if provider:
        name = resolve_alias(provider)
        return name, after if colon and resolve_alias(before) == name else model
    if after and _is_provider(before) and not (below == "ollama" and _TAG(after)):
        return resolve_alias(before), after
    if below and below not in _MAKERS:  # it serves models of others too, under names of its own
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
    """Whether models and addresses of one provider are also those of the other."""
    if one == other or one not in PROVIDERS or other not in PROVIDERS:
        return one == other
    return PROVIDERS[one].base_url == PROVIDERS[other].base_url != ""


# --- showing ----------------------------------------------------------------------------------------------------------


def hide_query(url: str) -> str:
    """The address without its query, which may hold a key."""
    before, mark, _ = url.partition("?")
    return f"{before}?…" if mark else before
