"""Configuration from all of its sources: what each says, in one form, merged once; and where each setting comes from.

    arguments  >  environment  >  the project's file  >  the user's file  >  defaults

A file has

    provider = "claude"              any field, at the top                    ai.provider is another name for it
    [options] [tool_config] …        fields of a table
    [keys.openai]                    where a key is: env, keychain, key, hosts
    [profiles.work]                  all of this again, over the top level
    [mcp] [permissions] …            tables of other rooms, checked by them   (SECTIONS)
    trusted_projects = ["~/work"]    in the user's own file: projects whose files may set everything
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path as FilePath
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from dragoman._checks import check_names, list_changes, nearest, suggest
from dragoman.directories import home_directory
from dragoman.engines import Confidential, Credential, Secret, given_key, hosts_of, is_registered
from dragoman.errors import ConfigFileError, ConfigurationError, InvalidBaseURLError
from dragoman.providers import ALIASES, PROVIDERS
from dragoman.transport import validate_base_url

from .config import (
    FIELDS,
    SAME,
    TABLES,
    Config,
    Path,
    check_value,
    hide_query,
    is_same_service,
    list_models,
    parse_text,
    resolve_alias,
    split_address,
)
from .config_files import Table, TomlFile, find_files, is_texts, is_trusted, warn
from .credentials import KeyReference, read_reference, reference_for

T = TypeVar("T")

SECTIONS: Final = frozenset({"cli", "fleet", "mcp", "permissions", "skills"})
"""Tables of other rooms: kept as they are, and checked by the room that asks for one (LoadedConfig.section)."""

PROVIDER: Final[Path] = ("provider",)
MODEL: Final[Path] = ("model",)
BASE_URL: Final[Path] = ("base_url",)
_ADDRESS: Final = (PROVIDER, MODEL)
_PLACES: Final = (BASE_URL, ("region",), ("project",))
"""Where a provider is."""

SourceKind: TypeAlias = Literal["argument", "environment", "file", "project"]
"""`project` is the file of a project that the user has not declared trusted."""


Section: TypeAlias = tuple[Table, TomlFile, Path]
"""A table of another room, and where it stands."""


class Setting(Confidential, frozen=True, kw_only=True):
    """A value and where it comes from."""

    value: object
    origin: str
    kind: SourceKind
    tied: bool = False
    """Whether its source also said for which provider it is meant."""
    overridden: tuple[str, ...] = ()
    """Where else it was set, to no effect, the nearest first."""


class Layer(Confidential, frozen=True, kw_only=True):
    """What one source says."""

    kind: SourceKind
    file: TomlFile | None = None
    settings: dict[Path, Setting] = msgspec.field(default_factory=dict)
    keys: dict[str, KeyReference] = msgspec.field(default_factory=dict)
    sections: dict[str, Section] = msgspec.field(default_factory=dict)

    def set(self, path: Path, value: object, origin: str) -> None:
        self.settings[path] = Setting(value=value, origin=origin, kind=self.kind)


def load_config(
    *,
    profile: str | None = None,
    file: str | FilePath | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str | FilePath | None = None,
    **arguments: object,
) -> LoadedConfig:
    """The configuration that holds here, and where each part of it comes from.

    `profile` is the name of a table [profiles.…]; `file` is read instead of the project's and the user's file;
    `environment` stands for the variables and `directory` for the place where the search for a project begins.
    Further arguments are the fields of Config, tables also as mappings; None says nothing.
    """
    environ = os.environ if environment is None else environment
    chosen = profile if profile is not None else environ.get("DRAGOMAN_PROFILE", "").strip()
    named = file if file is not None else environ.get("DRAGOMAN_CONFIG", "").strip()
    try:
        start = FilePath.cwd() if directory is None else FilePath(directory)
    except OSError:  # the working directory is no longer there
        start = None
    found = find_files(named, environ, start)
    profiles = {name for each in found for name in _list_profiles(each)}
    if chosen and chosen not in profiles:
        known = f"The profiles are {', '.join(sorted(profiles))}." if profiles else "No file has any."
        raise ConfigurationError(f"There is no profile {chosen!r}.", hint=known)
    files = [_read_file(each, chosen) for each in found]
    return _merge((_read_arguments(arguments), _read_environment(environ), *files), chosen)


# --- arguments --------------------------------------------------------------------------------------------------------


def _read_arguments(arguments: Mapping[str, object]) -> Layer:
    """What the caller says. None means that it says nothing, and in a value such as ModelOptions the default does."""
    layer = Layer(kind="argument")
    check_names(arguments, Config.__struct_fields__, "A configuration")
    for name, given in sorted(arguments.items(), key=lambda item: item[0] not in TABLES):
        value = given_key(cast("Any", given)) if name == "token" else given  # from here on it does not print
        origin = f"the argument {name}"
        if value is None:
            continue
        if name == "keys":
            layer.keys.update({resolve_alias(key): found for key, found in cast("dict[str, Any]", value).items()})
        elif name in TABLES:
            for inner, found in _read_table(TABLES[name], name, value):
                path = (name, inner)
                layer.set((SAME[path],) if path in SAME else path, found, origin)
        else:
            layer.set((name,), value, origin)
    return layer


def _read_table(struct: type[Struct], name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        made = struct(**cast("Mapping[str, object]", value))
        yield from [(inner, getattr(made, inner)) for inner in cast("Mapping[str, object]", value)]
    elif isinstance(value, struct):
        yield from list_changes(value)
    else:
        raise ConfigurationError(f"The argument {name} must be a {struct.__name__}, not {type(value).__name__}.")


def change_config(config: Config, arguments: Mapping[str, object]) -> Config:
    """The configuration with these arguments over it, which win field by field."""
    base = dict(list_changes(config))
    return _merge((_read_arguments(arguments), _read_arguments(base)), "").config if arguments else config


# --- the environment --------------------------------------------------------------------------------------------------

_OTHERS: Final = frozenset({"DRAGOMAN_CONFIG", "DRAGOMAN_MODEL_DIR", "DRAGOMAN_PROFILE"})
_KEYS: Final = frozenset({"DRAGOMAN_API_KEY", "DRAGOMAN_KEY", "DRAGOMAN_TOKEN"})


def _read_environment(environ: Mapping[str, str]) -> Layer:
    """What the variables say: AI_PROVIDER, and DRAGOMAN_ and the name of a field. An empty one says nothing."""
    layer = Layer(kind="environment")
    if provider := environ.get("AI_PROVIDER", "").strip():
        layer.set(PROVIDER, provider, "environment variable AI_PROVIDER")
    fields = {field.variable: field for field in FIELDS.values()}
    for variable, text in sorted(environ.items()):
        if not variable.startswith("DRAGOMAN_") or not text.strip() or variable in _OTHERS:
            continue
        field, origin = fields.get(variable), f"environment variable {variable}"
        if variable in _KEYS:
            message = f"A key belongs to one provider; {variable} does not say which."
            raise ConfigurationError(message, hint="Put it into that provider's variable, e.g. OPENAI_API_KEY.")
        if field is None:  # perhaps somebody else's, so it is no error
            if near := nearest(variable, fields, cutoff=0.85):
                warn(f"The environment variable {variable} is not known and has no effect. Did you mean {near}?")
        elif field.code_only:
            message = f"{field.name} cannot be set by an environment variable ({variable})."
            raise ConfigurationError(message, hint=field.code_only)
        else:
            layer.set(field.path, parse_text(field, text, origin), origin)
    return layer


# --- files ------------------------------------------------------------------------------------------------------------


def _list_profiles(file: TomlFile) -> Table:
    return file.table(file.data.get("profiles", {}), ("profiles",))


def _read_file(file: TomlFile, profile: str) -> Layer:
    """The top level of a file with the profile over it. Profiles that are not chosen are checked all the same."""
    kind: SourceKind = "file" if file.is_trusted else "project"
    layer = Layer(kind=kind, file=file)
    _FileReader(file, layer).read(file.data, ())
    for name, table in _list_profiles(file).items():
        at = ("profiles", name)
        _FileReader(file, layer if name == profile else Layer(kind=kind)).read(file.table(table, at), at)
    shown = file.where()
    if file.others_can_write or file.is_foreign:
        warn(f"Others can change {shown}, and so what your programs do. Run: chmod go-w {shown}")
    if any(reference.key for reference in layer.keys.values()):
        also = f" Others can read it: run chmod 600 {shown}." if file.others_can_read else ""
        warn(f"{shown} holds a key. A variable (env) or the keychain (keychain) is a better place.{also}")
    return layer


class _FileReader(Struct):
    """Sorts a table of one file into a layer, each value checked."""

    _file: TomlFile
    _layer: Layer

    def read(self, content: Table, at: Path) -> None:
        """Take in the top level (`at` is empty) or a profile."""
        for name, value in content.items():
            here = (*at, name)
            if (name,) in FIELDS:
                self._set((name,), value, here)
            elif name in TABLES or name == "ai":
                for key, inner in self._file.table(value, here).items():
                    if (name, key) == ("ai", "provider"):
                        if "provider" in content:
                            raise self._file.error("provider is set twice.", (*here, key), hint="Take one out.")
                        self._set(PROVIDER, inner, (*here, key))
                    else:
                        self._set((name, key), inner, (*here, key))
            elif name == "keys":
                self._read_keys(self._file.table(value, here), here)
            elif name in SECTIONS:
                self._refuse_in_project(f"[{name}]", here)
                self._layer.sections[name] = (self._file.table(value, here), self._file, here)
            elif at or name not in ("profiles", "trusted_projects"):
                others = [*(path[0] for path in FIELDS), *SECTIONS, "keys", "ai", *([] if at else ["profiles"])]
                raise self._refuse_unknown(name, here, others)
        said = {path: list_models(found.value) for path, found in self._layer.settings.items() if path in _ADDRESS}
        provider, (first, *others) = said.get(PROVIDER, ("",))[0], said.get(MODEL, ("",))
        for chosen in [split_address(provider, first)[0], *[split_address("", each)[0] for each in others]]:
            if chosen and chosen not in PROVIDERS:  # which may be anything, also a program that is started
                where = (*at, "provider" if PROVIDER in said else "model")
                self._refuse_in_project(f"a provider like {chosen!r}", where)

    def _set(self, path: Path, value: object, at: Path) -> None:
        field = FIELDS.get(path)
        if field is None:
            others = ["provider"] if path[0] == "ai" else [known[1] for known in FIELDS if known[:-1] == path[:-1]]
            raise self._refuse_unknown(".".join(path), at, others)
        if field.code_only:
            raise self._file.error(f"{field.name} cannot be set in a file.", at, hint=field.code_only)
        if not field.of_projects:
            self._refuse_in_project(field.name, at)
        where = self._file.where(at)
        self._layer.set(path, check_value(field, value, where), where)

    def _read_keys(self, tables: Table, at: Path) -> None:
        seen: set[str] = set()
        for provider, table in tables.items():
            here = (*at, provider)
            self._refuse_in_project(f"keys.{provider}", here)
            name = resolve_alias(provider)
            if name not in PROVIDERS and not is_registered(name):
                problem = f"there is no provider {provider!r}."
                raise self._file.error(problem, here, hint=suggest(provider, [*PROVIDERS, *ALIASES]))
            if name in seen:
                raise self._file.error(f"the key of {name} is set twice.", here, hint="Take one out.")
            seen.add(name)
            self._layer.keys[name] = read_reference(self._file, table, here)

    def _refuse_unknown(self, name: str, at: Path, others: list[str]) -> ConfigFileError:
        return self._file.error(f"there is no setting {name!r}.", at, hint=suggest(name.rpartition(".")[2], others))

    def _refuse_in_project(self, name: str, at: Path) -> None:
        if self._layer.kind == "project":
            hint = (
                "It could send your data or keys elsewhere, or run programs. If you trust this project, write "
                f'trusted_projects = ["{self._file.path.resolve().parent}"] into your own configuration file; '
                "otherwise take the line out."
            )
            raise self._file.error(f"the file of a project may not set {name}.", at, hint=hint)


# --- merging ----------------------------------------------------------------------------------------------------------


def _merge(layers: tuple[Layer, ...], profile: str) -> LoadedConfig:
    known = _merge_settings(layers)
    values: dict[str, Any] = {}
    for path, one in known.items():
        if len(path) == 1:
            values[path[0]] = one.value
        else:
            values.setdefault(path[0], {})[path[1]] = one.value
    for table in TABLES.keys() & values:
        values[table] = TABLES[table](**values[table])
    keys = {name: reference for layer in reversed(layers) for name, reference in layer.keys.items()}
    if (url := known.get(BASE_URL)) is not None:
        try:
            validate_base_url(str(url.value), allow_insecure=bool(values.get("allow_insecure_base_url")))
        except InvalidBaseURLError as error:
            message = f"{error.message.removesuffix('.')} (base_url, from {url.origin})."
            raise InvalidBaseURLError(message, reason=error.reason, hint=error.hint) from None
    values["token"] = _bind_token(given_key(values.get("token")), known, keys)
    return LoadedConfig(config=Config(**values, keys=keys), known=known, layers=layers, profile=profile)


def _merge_settings(layers: tuple[Layer, ...]) -> dict[Path, Setting]:
    """The settings of all layers, of which the first wins.

    A model means something at its own provider only, and so does a place: where a layer names another provider, the
    model and the address, region and project of the layers below no longer hold.
    """
    known: dict[Path, Setting] = {}

    def put(path: Path, setting: Setting, value: object, *, tied: bool = False) -> None:
        before = known.get(path)
        overridden = () if before is None else (before.origin, *before.overridden)
        known[path] = msgspec.structs.replace(setting, value=value, tied=tied, overridden=overridden)

    for layer in reversed(layers):
        said = {path: list_models(layer.settings[path].value) for path in _ADDRESS if path in layer.settings}
        before = str(known[PROVIDER].value) if PROVIDER in known else ""
        first, *others = said.get(MODEL, ("",))
        provider, model = split_address(said.get(PROVIDER, ("",))[0], first, before)
        if provider:
            if before and not is_same_service(provider, before):
                known.pop(MODEL, None)
                for place in _PLACES:
                    if place in known and known[place].tied:
                        del known[place]
            put(PROVIDER, layer.settings[PROVIDER if PROVIDER in said else MODEL], provider)
        for path, setting in layer.settings.items():
            if path == MODEL:
                put(path, setting, (model, *others) if others else model)
            elif path != PROVIDER:
                put(path, setting, setting.value, tied=bool(provider))
    return known


def _bind_token(
    token: Secret | Credential | None, known: Mapping[Path, Setting], keys: Mapping[str, KeyReference]
) -> Secret | Credential | None:
    """The key of the argument, bound to its provider's hosts unless the address was given along with it."""
    provider = known.get(PROVIDER)
    if token is None or token.hosts is not None or provider is None:
        return token
    name = str(provider.value)
    if provider.kind == "project":
        message = f"The token does not say for which provider it is, and {name} was chosen by {provider.origin}."
        raise ConfigurationError(message, hint="Give provider='…' together with token='…'.")
    if BASE_URL not in known or known[BASE_URL].kind == "argument":
        return token
    hosts = hosts_of(PROVIDERS[name]) if name in PROVIDERS else None
    reference = reference_for(name, keys) or KeyReference()
    hosts = None if hosts is None else hosts | set(reference.hosts)
    return (
        Credential(token.source, hosts=hosts) if isinstance(token, Credential) else Secret(token.reveal(), hosts=hosts)
    )


# --- explaining -------------------------------------------------------------------------------------------------------


class Row(Struct, frozen=True, kw_only=True):
    """One setting: its value as it may be shown, and who set it."""

    field: str
    value: str
    origin: str
    overridden: tuple[str, ...] = ()
    """Who else has set it, to no effect, the nearest first."""


class Explanation(tuple[Row, ...]):
    """Where every setting comes from. Print it, or go through its rows."""

    __slots__ = ()

    def __str__(self) -> str:
        wide = max(len(row.field) for row in self), max(len(row.value) for row in self)
        lines: list[str] = []
        for row in self:
            instead = f" (instead of {', '.join(row.overridden)})" if row.overridden else ""
            lines.append(f"{row.field:<{wide[0]}}  {row.value:<{wide[1]}}  {row.origin}{instead}")
        return "\n".join(lines)


class LoadedConfig(Confidential, frozen=True, kw_only=True):
    """The configuration that holds, and where each part of it comes from."""

    config: Config
    known: Mapping[Path, Setting]
    """What was set, by path; what is not here has its default."""
    layers: tuple[Layer, ...]
    profile: str = ""

    @property
    def files(self) -> tuple[FilePath, ...]:
        """The files that were read, those that win first."""
        return tuple(layer.file.path for layer in self.layers if layer.file is not None)

    def trusts(self, path: FilePath) -> bool:
        """Whether the file lies in a project that the user has declared trusted."""
        listed = [layer.file.data.get("trusted_projects") for layer in self.layers if layer.file is not None]
        try:
            home = home_directory(os.environ).resolve()
        except ConfigurationError:  # a user without a home directory
            home = None
        return is_trusted(path, [name for names in listed if is_texts(names) for name in names], home)

    def change(self, **arguments: object) -> LoadedConfig:
        """The configuration with further arguments over it. Files and variables are not read again."""
        return _merge((_read_arguments(arguments), *self.layers), self.profile)

    def origin(self, field: str) -> str:
        """Where a setting comes from: `environment variable DRAGOMAN_MODEL`, `dragoman.toml, line 3`, `default`."""
        path = tuple(field.split("."))
        if path in self.known:
            return self.known[path].origin
        if path in FIELDS:
            return "default"
        raise ConfigurationError(f"There is no setting {field!r}.")

    def explain(self) -> Explanation:
        """Every setting, its value and where it comes from. Secrets are masked; no key is looked up."""
        paths = dict.fromkeys([*(path for path, field in FIELDS.items() if not field.code_only), *self.known])
        rows = [self._explain(path) for path in paths]
        for name, reference in self.config.keys.items():
            origin = reference.origin or "the argument keys"
            rows.append(Row(field=f"keys.{name}", value=_show("keys", reference), origin=origin))
        return Explanation(rows)

    def _explain(self, path: Path) -> Row:
        name = ".".join(path)
        if (known := self.known.get(path)) is not None:
            return Row(field=name, value=_show(name, known.value), origin=known.origin, overridden=known.overridden)
        value: object = self.config
        for step in path:
            value = getattr(value, step)
        return Row(field=name, value=_show(name, value), origin="default")

    def section(self, name: str, kind: type[T]) -> T:
        """A table of another room as a value of its own type, such as a Struct with defaults for all fields.

        Tables of higher layers win key by key.
        """
        if name not in SECTIONS:
            message = f"There is no section {name!r}."
            raise ConfigurationError(message, hint=f"Sections are {', '.join(sorted(SECTIONS))}.")
        merged: dict[str, object] = {}
        for table, file, at in [layer.sections[name] for layer in reversed(self.layers) if name in layer.sections]:
            try:
                msgspec.convert(table, kind)
            except msgspec.ValidationError as error:
                raise file.error(f"[{name}] does not fit: {str(error).replace('`', '')}.", at) from None
            merged.update(table)
        return msgspec.convert(merged, kind)


def _show(name: str, value: object) -> str:
    """The value on one line, as a file would have it, at most 60 letters of it; secrets are masked."""
    if value is None or value == "":
        return "-"
    if isinstance(value, Secret | Credential):
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
