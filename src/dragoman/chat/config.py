"""How a chat is set up, in one value, and load_config, which puts it together from all sources.

A Config made by hand is as good as a loaded one. A LoadedConfig can also say where each setting comes from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path as FilePath
from typing import Any, Final, TypedDict, TypeVar, Unpack, cast

import msgspec
from msgspec import Struct

from dragoman.engines import EngineOptions, Secret, given_key, hosts_of
from dragoman.errors import ConfigurationError, InvalidBaseURLError
from dragoman.providers import PROVIDERS, ModelOptions, Profile, profile_of, split_model
from dragoman.tools import ToolConfig
from dragoman.transport import RetryPolicy, Timeouts, Transport, validate_base_url

from .config_files import SECTIONS, read_files
from .credentials import Found, KeyReference, find_key, reference_for, resolve_provider
from .fields import FIELDS, TABLES, Path, check_value
from .layers import (
    BASE_URL,
    PROVIDER,
    Known,
    Layer,
    merge_layers,
    read_arguments,
    read_environment,
    refuse_in_project,
    split_address,
)

T = TypeVar("T")

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


class Config(Struct, frozen=True, kw_only=True):
    """How a chat is set up. Every field has a default; what is empty is filled in by the provider's own."""

    # --- which model, where, by which key ---
    provider: str = ""
    """As before the colon in `provider:model`; empty: the one that the model's name says."""
    model: str = ""
    """With or without its provider; empty: the provider's default model."""
    token: str | Secret | None = None
    """The key. Kept as a Secret; None: it is looked up (see dragoman.chat.credentials)."""
    base_url: str = ""
    """Empty: the provider's own address."""
    keys: Mapping[str, KeyReference] = {}
    """Where keys are to be found, by provider."""
    # --- what is said ---
    system_prompt: str = ""
    response_schema: object = None
    """The type, or the JSON Schema, of every answer; None: text."""
    schema_name: str = ""
    schema_description: str = ""
    # --- how far it may go ---
    max_steps: int = 20
    """Calls of the model for one question."""
    max_tokens: int | None = None
    """The most tokens of one reply; None: 4096 for OpenAI, 8192 for Claude and Gemini, else as the provider does."""
    parallel_tools: bool = True
    """Whether the tools of one step run at the same time."""
    max_parallel_tools: int = 5
    """… and how many of them, if they do."""
    strict: bool = False
    """Refuse a history of which the model would not get every part."""
    options: ModelOptions = ModelOptions()
    """What else is asked of the model: temperature, reasoning, …"""
    tool_config: ToolConfig = ToolConfig()
    """How else tools are used: timeouts, budgets, errors."""
    retry: RetryPolicy = RetryPolicy()
    timeouts: Timeouts = Timeouts()
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
        if isinstance(self.token, str):
            msgspec.structs.force_setattr(self, "token", Secret(self.token) if self.token else None)
        for field in FIELDS.values():
            if len(field.path) == 1 and field.name != "response_schema":
                check_value(field, getattr(self, field.name), f"the argument {field.name}")
        validate_base_url(self.base_url, allow_insecure=self.allow_insecure_base_url)

    def __repr__(self) -> str:
        """What differs from the defaults; keys, headers and the query of the base URL are not shown."""
        hidden = {"base_url": repr(hide_query(self.base_url)), "token": "Secret('…')", "headers": "{…}"}
        changed = [name for name in self.__struct_fields__ if getattr(self, name) != getattr(_PLAIN, name)]
        return f"Config({', '.join([f'{name}={hidden.get(name) or repr(getattr(self, name))}' for name in changed])})"

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

    def _address(self) -> tuple[str, str]:
        provider, model = split_address(self.provider, self.model)
        if model and not provider:
            provider, model = split_model(model)  # raises: nobody says which provider has it
        provider = resolve_provider(provider or _DEFAULT_PROVIDER)
        return provider, model or default_model(provider)

    @property
    def secret(self) -> Secret | None:
        """The token, where one was given."""
        return self.token if isinstance(self.token, Secret) else None

    def key(self, environ: Mapping[str, str] | None = None) -> Found | None:
        """The key and where it was found; None where none is needed. Raises MissingKeyError."""
        return find_key(self.provider_name, token=self.secret, keys=self.keys, environ=environ)

    def for_model(self) -> ModelOptions:
        """What is asked of the model."""
        limit = self.max_tokens or self.options.max_tokens or _DEFAULT_MAX_TOKENS.get(self.provider_name)
        return msgspec.structs.replace(self.options, max_tokens=limit)

    def for_tools(self) -> ToolConfig:
        """How tools are used."""
        at_once = self.max_parallel_tools if self.parallel_tools else 1
        return msgspec.structs.replace(self.tool_config, max_iterations=self.max_steps, max_parallel_tools=at_once)

    def for_engine(self, environ: Mapping[str, str] | None = None) -> EngineOptions:
        """What `engine` and `async_engine` take beside `model_name`. The key is looked up now."""
        found = self.key(environ)
        options: EngineOptions = {
            "key": None if found is None else found.secret,
            "base_url": self.base_url or None,
            "options": self.for_model(),
            "profile": self.model_profile,
            "strict": self.strict,
            "retry": self.retry,
            "timeouts": self.timeouts,
            "headers": self.headers,
            "allow_insecure_base_url": self.allow_insecure_base_url,
        }
        if self.find_program is not None:
            options["find_program"] = self.find_program
        return options


_PLAIN: Final = Config()


class ConfigArguments(TypedDict, total=False):
    """The fields of Config, as arguments of load_config; None says nothing."""

    provider: str | None
    model: str | None
    token: str | Secret | None
    base_url: str | None
    keys: Mapping[str, KeyReference] | None
    system_prompt: str | None
    response_schema: object
    schema_name: str | None
    schema_description: str | None
    max_steps: int | None
    max_tokens: int | None
    parallel_tools: bool | None
    max_parallel_tools: int | None
    strict: bool | None
    options: ModelOptions | Mapping[str, object] | None
    tool_config: ToolConfig | Mapping[str, object] | None
    retry: RetryPolicy | Mapping[str, object] | None
    timeouts: Timeouts | Mapping[str, object] | None
    allow_insecure_base_url: bool | None
    headers: Mapping[str, str] | None
    model_profile: Profile | Mapping[str, object] | None
    transport: Transport | None
    async_transport: Transport | None
    find_program: Callable[[str], str | None] | None


# --- loading ----------------------------------------------------------------------------------------------------------


def load_config(
    *,
    profile: str | None = None,
    file: str | FilePath | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str | FilePath | None = None,
    **arguments: Unpack[ConfigArguments],
) -> LoadedConfig:
    """The configuration that holds here, and where each part of it comes from.

    `profile` is the name of a table [profiles.…]; `file` is read instead of the project's and the user's file;
    `environment` stands for the variables and `directory` for the place where the search for a project begins.
    """
    environ = os.environ if environment is None else environment
    chosen = profile if profile is not None else environ.get("DRAGOMAN_PROFILE", "").strip()
    named = file if file is not None else environ.get("DRAGOMAN_CONFIG", "").strip()
    try:
        start = FilePath.cwd() if directory is None else FilePath(directory)
    except OSError:  # the working directory is no longer there
        start = None
    given = read_arguments(cast("Mapping[str, object]", arguments), Config.__struct_fields__)
    return _merge((given, read_environment(environ), *read_files(named, environ, start, chosen)), chosen)


def _merge(layers: tuple[Layer, ...], profile: str) -> LoadedConfig:
    known = merge_layers(layers)
    values: dict[str, Any] = {}
    for path, one in known.items():
        if len(path) == 1:
            values[path[0]] = one.value
        else:
            values.setdefault(path[0], {})[path[1]] = one.value
    for table in TABLES.keys() & values:
        values[table] = TABLES[table](**values[table])
    keys: dict[str, KeyReference] = {}
    for layer in reversed(layers):
        keys.update(layer.keys)
    if (url := known.get(BASE_URL)) is not None:
        try:
            validate_base_url(str(url.value), allow_insecure=bool(values.get("allow_insecure_base_url")))
        except InvalidBaseURLError as error:
            message = f"{error.message.removesuffix('.')} (base_url, from {url.origin})."
            raise InvalidBaseURLError(message, reason=error.reason, hint=error.hint) from None
    values["token"] = _bind_token(given_key(values.get("token")), known, keys)
    return LoadedConfig(config=Config(**values, keys=keys), known=known, layers=layers, profile=profile)


def _bind_token(token: Secret | None, known: Mapping[Path, Known], keys: Mapping[str, KeyReference]) -> Secret | None:
    """The key of the argument, bound to its provider's hosts unless the address was given along with it."""
    provider = known.get(PROVIDER)
    if token is None or token.hosts is not None or provider is None:
        return token
    name = str(provider.value)
    if not provider.trusted:
        message = f"The token does not say for which provider it is, and {name} was chosen by {provider.origin}."
        raise ConfigurationError(message, hint="Give provider='…' together with token='…'.")
    if BASE_URL not in known or known[BASE_URL].kind == "argument":
        return token
    hosts = hosts_of(PROVIDERS[name]) if name in PROVIDERS else None
    reference = reference_for(name, keys) or KeyReference()
    return token.bound_to(None if hosts is None else hosts | set(reference.hosts))


# --- explaining -------------------------------------------------------------------------------------------------------


class Row(Struct, frozen=True, kw_only=True):
    """One setting: its value as it may be shown, and who set it."""

    field: str
    value: str
    origin: str
    overridden: tuple[str, ...] = ()
    """Who else has set it, to no effect, the nearest first."""


class Explanation(Struct, frozen=True):
    """Where every setting comes from. Print it, or go through its rows."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __str__(self) -> str:
        wide = max(len(row.field) for row in self.rows), max(len(row.value) for row in self.rows)
        lines: list[str] = []
        for row in self.rows:
            instead = f" (instead of {', '.join(row.overridden)})" if row.overridden else ""
            lines.append(f"{row.field:<{wide[0]}}  {row.value:<{wide[1]}}  {row.origin}{instead}")
        return "\n".join(lines)


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """The configuration that holds, and where each part of it comes from."""

    config: Config
    known: Mapping[Path, Known]
    """What was set, by path; what is not here has its default."""
    layers: tuple[Layer, ...]
    profile: str = ""

    def __repr__(self) -> str:
        return f"LoadedConfig({self.config!r})"

    @property
    def files(self) -> tuple[FilePath, ...]:
        """The files that were read, those that win first."""
        return tuple(layer.file.path for layer in self.layers if layer.file is not None)

    def change(self, **arguments: Unpack[ConfigArguments]) -> LoadedConfig:
        """The configuration with further arguments over it. Files and variables are not read again."""
        given = read_arguments(cast("Mapping[str, object]", arguments), Config.__struct_fields__)
        return _merge((given, *self.layers), self.profile)

    def origin(self, field: str) -> str:
        """Where a setting comes from: `environment variable DRAGOMAN_MODEL`, `dragoman.toml, line 3`, `default`."""
        path = tuple(field.split("."))
        if path in self.known:
            return self.known[path].origin
        if path in FIELDS or field in Config.__struct_fields__:
            return "default"
        raise ConfigurationError(f"There is no setting {field!r}.")

    def explain(self) -> Explanation:
        """Every setting, its value and where it comes from. Secrets are masked; no key is looked up."""
        rows = [self._explain(path) for path in dict.fromkeys([*FIELDS, *self.known])]
        for name, reference in self.config.keys.items():
            origin = reference.origin or "the argument keys"
            rows.append(Row(field=f"keys.{name}", value=show_value("keys", reference), origin=origin))
        return Explanation(tuple(rows))

    def _explain(self, path: Path) -> Row:
        name = ".".join(path)
        if (known := self.known.get(path)) is not None:
            return Row(
                field=name, value=show_value(name, known.value), origin=known.origin, overridden=known.overridden
            )
        value: object = self.config
        for step in path:
            value = getattr(value, step)
        if path == PROVIDER:
            value = _DEFAULT_PROVIDER
        elif name in ("model", "max_tokens"):
            value = self._find_default(name)
        return Row(field=name, value=show_value(name, value), origin="default")

    def _find_default(self, name: str) -> object:
        """The model, or the limit of its replies, that holds by default; None where the configuration has none."""
        try:
            provider, _, model = self.config.model_name.partition(":")
        except ConfigurationError:
            return None
        of_profile = profile_of(provider, model).default_max_tokens if provider in PROVIDERS else None
        return model if name == "model" else self.config.for_model().max_tokens or of_profile

    def section(self, name: str, kind: type[T]) -> T:
        """A table of another room as a value of its own type, such as a Struct with defaults for all fields.

        Tables of higher layers win key by key. The file of a project that is not trusted may not have one.
        """
        if name not in SECTIONS:
            message = f"There is no section {name!r}."
            raise ConfigurationError(message, hint=f"Sections are {', '.join(sorted(SECTIONS))}.")
        merged: dict[str, object] = {}
        for layer in reversed(self.layers):
            if name not in layer.sections or layer.file is None:
                continue
            table, at = layer.sections[name]
            if not layer.trusted:
                raise refuse_in_project(layer.file, at, f"[{name}]")
            try:
                msgspec.convert(table, kind)
            except msgspec.ValidationError as error:
                problem = f"[{name}] does not fit: {str(error).replace('`', '')}."
                raise layer.file.error(problem, at) from None
            merged.update(table)
        return msgspec.convert(merged, kind)


def hide_query(url: str) -> str:
    """The address without its query, which may hold a key."""
    before, mark, _ = url.partition("?")
    return f"{before}?…" if mark else before


def show_value(name: str, value: object) -> str:
    """The value on one line, as a file would have it, at most 60 letters of it; secrets are masked."""
    if value is None or value == "":
        return "-"
    if isinstance(value, Secret):
        return value.masked
    if isinstance(value, KeyReference):
        said = {"env": value.env, "keychain": value.keychain, "key": value.key and value.key.masked}
        said["hosts"] = ", ".join(value.hosts)
        return "; ".join([f"{name} {text}" for name, text in said.items() if text]) or "-"
    if name.rpartition(".")[2] in ("headers", "extra_headers"):
        return "…"
    if name == "base_url":
        return json.dumps(hide_query(str(value)), ensure_ascii=False)
    try:
        plain: object = value.value if isinstance(value, Enum) else msgspec.to_builtins(value, order="deterministic")
        text = json.dumps(plain, ensure_ascii=False)
    except (TypeError, ValueError):
        text = value.__name__ if isinstance(value, type) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"
