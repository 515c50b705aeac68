"""load_config: reads every source into a layer, merges the layers, and explains where each setting comes from.

    arguments  >  environment  >  the project's file  >  the user's file  >  defaults

A file has

    provider = "claude"              any field, at the top                    ai.provider is another name for it
    [options] [tool_config] …        the fields of a table
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
from operator import attrgetter
from pathlib import Path as FilePath
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from dragoman._checks import check_names, list_changes, nearest, suggest
from dragoman._decoding import convert_to
from dragoman.directories import home_directory
from dragoman.engines import Confidential, Credential, Secret, given_key, hosts_of, is_registered
from dragoman.errors import ConfigurationError, InvalidBaseURLError
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
from .config_files import Table, TomlFile, UntrustedWarning, find_files, is_texts, is_trusted, warn
from .credentials import KeyReference, read_reference, reference_for

T = TypeVar("T")

SECTIONS: Final = frozenset({"cli", "fleet", "mcp", "permissions", "skills"})
"""Tables of other rooms, checked by the room that asks for one (LoadedConfig.section)."""

PROVIDER: Final[Path] = ("provider",)
MODEL: Final[Path] = ("model",)
BASE_URL: Final[Path] = ("base_url",)
_PLACES: Final = (BASE_URL, ("region",), ("project",))
"""Where a provider is."""

SourceKind: TypeAlias = Literal["argument", "environment", "file", "project"]
"""`project` is the file of a project that the user has not declared trusted."""


class Setting(Confidential, frozen=True, kw_only=True):
    """A value and where it comes from."""

    value: object
    origin: str
    kind: SourceKind
    overridden: tuple[str, ...] = ()
    """Where else it was set, without effect, by priority."""


class Layer(Confidential, frozen=True, kw_only=True):
    """The settings of one source."""

    kind: SourceKind
    file: TomlFile | None = None
    settings: dict[Path, Setting] = msgspec.field(default_factory=dict)
    offered: dict[Path, Setting] = msgspec.field(default_factory=dict)
    """What an untrusted project says to models; it counts only once the user has agreed."""
    keys: dict[str, KeyReference] = msgspec.field(default_factory=dict)
    sections: dict[str, tuple[Table, Path]] = msgspec.field(default_factory=dict)
    """Tables of other rooms, and where they are in the file."""

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
    """Load the configuration that applies here, with the origin of each setting.

    `profile` is the name of a table [profiles.…]; `file` is read instead of the project's and the user's file;
    `environment` replaces the process's variables, and `directory` the one where the search for a project starts.
    Further arguments are the fields of Config, tables also as mappings; None counts as not given.
    """
    environ = os.environ if environment is None else environment
    chosen = profile if profile is not None else environ.get("DRAGOMAN_PROFILE", "").strip()
    named = file if file is not None else environ.get("DRAGOMAN_CONFIG", "").strip()
    try:
        start = FilePath.cwd() if directory is None else FilePath(directory)
    except OSError:  # the working directory no longer exists
        start = None
    found = find_files(named, environ, start)
    profiles = {name for each in found for name in _list_profiles(each)}
    if chosen and chosen not in profiles:
        known = f"The profiles are {', '.join(sorted(profiles))}." if profiles else "No file has any."
        raise ConfigurationError(f"There is no profile {chosen!r}.", hint=known)
    files = [_read_file(each, chosen) for each in found]
    loaded = _merge(_read_arguments(arguments), _read_environment(environ), *files)
    for path, setting in loaded.offered.items():
        project = next(str(layer.file.path.resolve().parent) for layer in files if layer.file and path in layer.offered)
        warn(
            f"{'.'.join(path)} is not used ({setting.origin}): models follow it, and you have not declared the project "
            f'trusted. If you trust it, write trusted_projects = ["{project}"] into your own configuration file.',
            UntrustedWarning,
        )
    return loaded


# --- arguments --------------------------------------------------------------------------------------------------------


def _read_arguments(arguments: Mapping[str, object]) -> Layer:
    """None counts as not given, and so do fields of a value such as ModelOptions that have their default."""
    layer = Layer(kind="argument")
    check_names(arguments, Config.__struct_fields__, "A configuration")
    for name, given in sorted(arguments.items(), key=lambda item: item[0] not in TABLES):
        value = given_key(cast("Any", given)) if name == "token" else given  # from here on it does not print
        if value is None:
            continue
        if name == "keys":
            layer.keys.update({resolve_alias(key): found for key, found in cast("dict[str, Any]", value).items()})
        elif name in TABLES:
            for inner, found in _list_values(TABLES[name], name, value):
                layer.set(SAME.get((name, inner), (name, inner)), found, f"the argument {name}")
        else:
            layer.set((name,), value, f"the argument {name}")
    return layer


def _list_values(struct: type[Struct], name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        made = struct(**cast("Mapping[str, object]", value))
        yield from [(inner, getattr(made, inner)) for inner in cast("Mapping[str, object]", value)]
    elif isinstance(value, struct):
        yield from list_changes(value)
    else:
        raise ConfigurationError(f"The argument {name} must be a {struct.__name__}, not {type(value).__name__}.")


def change_config(config: Config, arguments: Mapping[str, object]) -> Config:
    """The configuration with these arguments, which win field by field."""
    return _merge(_read_arguments(arguments), _read_arguments(dict(list_changes(config)))).config


# --- the environment --------------------------------------------------------------------------------------------------

_OTHERS: Final = frozenset({"DRAGOMAN_CONFIG", "DRAGOMAN_MODEL_DIR", "DRAGOMAN_PROFILE"})


def _read_environment(environ: Mapping[str, str]) -> Layer:
    """AI_PROVIDER, and DRAGOMAN_ with the name of a field. An empty variable counts as not set."""
    layer = Layer(kind="environment")
    fields = {f"DRAGOMAN_{'_'.join(path).upper()}": field for path, field in FIELDS.items()}
    fields |= dict.fromkeys(("DRAGOMAN_API_KEY", "DRAGOMAN_KEY"), FIELDS["token",])
    for variable, text in sorted(environ.items()):
        if not variable.startswith("DRAGOMAN_") or not text.strip() or variable in _OTHERS:
            continue
        field, origin = fields.get(variable), f"environment variable {variable}"
        if field is None:  # perhaps another program's, so it is not an error
            if near := nearest(variable, fields, cutoff=0.85):
                warn(f"The environment variable {variable} is not known and has no effect. Did you mean {near}?")
        elif field.code_only:
            message = f"{field.name} cannot be set by an environment variable ({variable})."
            raise ConfigurationError(message, hint=field.code_only)
        elif field.path in layer.settings:
            message = f"{field.name} is set twice: by {layer.settings[field.path].origin}, and by {variable}."
            raise ConfigurationError(message, hint="Unset one of them.")
        else:
            layer.set(field.path, parse_text(field, text, origin), origin)
    if PROVIDER not in layer.settings and (provider := environ.get("AI_PROVIDER", "").strip()):
        layer.set(PROVIDER, provider, "environment variable AI_PROVIDER")
    return layer


# --- files ------------------------------------------------------------------------------------------------------------


def _list_profiles(file: TomlFile) -> Table:
    return file.table(file.data.get("profiles", {}), ("profiles",))


def _read_file(file: TomlFile, profile: str) -> Layer:
    """The top level of a file, and the profile over it. The other profiles are checked, too."""
    reader = _FileReader(file)
    layer = reader.read(file.data, ())
    for name, table in _list_profiles(file).items():
        found = reader.read(file.table(table, ("profiles", name)), ("profiles", name))
        if name == profile:
            layer.settings.update(found.settings)
            layer.offered.update(found.offered)
            layer.keys.update(found.keys)
            layer.sections.update(found.sections)
    shown = file.where()
    if file.others_can_write:
        warn(f"Others can change {shown}, and with it what your programs do. Run: chmod go-w {shown}")
    if any(reference.key for reference in layer.keys.values()):
        also = f" Others can read it: run chmod 600 {shown}." if file.others_can_read else ""
        warn(f"{shown} contains a key. A variable (env) or the keychain (keychain) is a better place.{also}")
    return layer


class _FileReader:
    """Reads tables of one file into layers, and checks every value."""

    def __init__(self, file: TomlFile) -> None:
        self._file: TomlFile = file
        self._kind: SourceKind = "file" if file.is_trusted else "project"

    def read(self, content: Table, at: Path) -> Layer:
        """The top level (`at` is empty) or a profile."""
        layer = Layer(kind=self._kind, file=self._file)
        tables = {path[0] for path in FIELDS if len(path) == 2}
        for name, value in content.items():
            here = (*at, name)
            if name in tables:
                for key, inner in self._file.table(value, here).items():
                    self._set(layer, (name, key), inner, (*here, key))
            elif (name,) in FIELDS:
                self._set(layer, (name,), value, here)
            elif name == "keys":
                self._read_keys(layer, self._file.table(value, here), here)
            elif name in SECTIONS:
                self._refuse_in_project(f"[{name}]", here)
                layer.sections[name] = (self._file.table(value, here), here)
            elif at or name not in ("profiles", "trusted_projects"):
                others = [*(path[0] for path in FIELDS), *SECTIONS, "keys", *([] if at else ["profiles"])]
                raise self._file.error(f"there is no setting {name!r}.", here, hint=suggest(name, others))
        self._check_providers(layer, at)
        return layer

    def _check_providers(self, layer: Layer, at: Path) -> None:
        """Refuse a provider of an untrusted project that is not built in: it may be a program that is started."""
        provider, models = _find_address(layer)
        for chosen in [split_address(provider, models[0])[0], *[split_address("", each)[0] for each in models[1:]]]:
            if chosen and chosen not in PROVIDERS:
                self._refuse_in_project(f"a provider like {chosen!r}", (*at, "provider" if provider else "model"))

    def _set(self, layer: Layer, path: Path, value: object, at: Path) -> None:
        field = FIELDS.get(path)
        if field is None:
            others = [known[1] for known in FIELDS if known[:-1] == path[:-1]]
            raise self._file.error(f"there is no setting {'.'.join(path)!r}.", at, hint=suggest(path[-1], others))
        if field.code_only:
            raise self._file.error(f"{field.name} cannot be set in a file.", at, hint=field.code_only)
        if field.path in layer.settings or field.path in layer.offered:
            raise self._file.error(f"{field.name} is set twice.", at, hint="Remove one of them.")
        if not (field.of_projects or field.said_to_models):
            self._refuse_in_project(field.name, at)
        where = self._file.where(at)
        is_offer = field.said_to_models and self._kind == "project"
        setting = Setting(value=check_value(field, value, where), origin=where, kind=self._kind)
        (layer.offered if is_offer else layer.settings)[field.path] = setting

    def _read_keys(self, layer: Layer, tables: Table, at: Path) -> None:
        for provider, table in tables.items():
            here = (*at, provider)
            self._refuse_in_project(f"keys.{provider}", here)
            name = resolve_alias(provider)
            if name not in PROVIDERS and not is_registered(name):
                problem = f"there is no provider {provider!r}."
                raise self._file.error(problem, here, hint=suggest(provider, [*PROVIDERS, *ALIASES]))
            if name in layer.keys:
                raise self._file.error(f"the key of {name} is set twice.", here, hint="Remove one of them.")
            layer.keys[name] = read_reference(self._file, table, here)

    def _refuse_in_project(self, name: str, at: Path) -> None:
        if self._kind == "project":
            _refuse_in_project(self._file, name, at)


def _refuse_in_project(file: TomlFile, name: str, at: Path) -> NoReturn:
    """The file of a project that is not trusted may not set this."""
    hint = (
        "It could send your data or keys elsewhere, or run programs. If you trust this project, write "
        f'trusted_projects = ["{file.path.resolve().parent}"] into your own configuration file; '
        "otherwise remove the line."
    )
    raise file.error(f"the file of a project may not set {name}.", at, hint=hint)


# --- merging ----------------------------------------------------------------------------------------------------------


def _merge(*layers: Layer) -> LoadedConfig:
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
    return LoadedConfig(config=Config(**values, keys=keys), known=known, layers=layers)


def _find_address(layer: Layer) -> tuple[str, tuple[str, ...]]:
    """The provider and the models that a layer sets."""
    provider, model = layer.settings.get(PROVIDER), layer.settings.get(MODEL)
    return "" if provider is None else str(provider.value), ("",) if model is None else list_models(model.value)


def _merge_settings(layers: tuple[Layer, ...]) -> dict[Path, Setting]:
    """The settings of all layers; the first one wins.

    Models, addresses, regions and projects belong to a provider: if a layer names another provider, those of the
    layers below no longer apply.
    """
    known: dict[Path, Setting] = {}
    tied: set[Path] = set()  # settings whose source also names their provider

    def put(path: Path, setting: Setting, value: object) -> None:
        before = known.get(path)
        overridden = () if before is None else (before.origin, *before.overridden)
        known[path] = msgspec.structs.replace(setting, value=value, overridden=overridden)

    for layer in reversed(layers):
        before = str(known[PROVIDER].value) if PROVIDER in known else ""
        named, (first, *others) = _find_address(layer)
        provider, model = split_address(named, first, before)
        if provider:
            if before and not is_same_service(provider, before):
                for path in (MODEL, *(place for place in _PLACES if place in tied)):
                    known.pop(path, None)
            put(PROVIDER, layer.settings[PROVIDER if named else MODEL], provider)
        tied = {*(tied - layer.settings.keys()), *(layer.settings if provider else ())}
        for path, setting in layer.settings.items():
            if path == MODEL:
                put(path, setting, (model, *others) if others else model)
            elif path != PROVIDER:
                put(path, setting, setting.value)
    _check_model(layers, known)
    return known


def _check_model(layers: tuple[Layer, ...], known: Mapping[Path, Setting]) -> None:
    """Refuse an untrusted project's model for a provider that is not built in: it may be a file that is loaded."""
    provider, model = known.get(PROVIDER), known.get(MODEL)
    if provider is None or model is None or provider.value in PROVIDERS or model.kind != "project" or not model.value:
        return
    file = next(layer.file for layer in layers if layer.kind == "project")
    assert file is not None
    _refuse_in_project(file, f"the model of a provider like {provider.value!r}", MODEL)


def _bind_token(
    token: Secret | Credential | None, known: Mapping[Path, Setting], keys: Mapping[str, KeyReference]
) -> Secret | Credential | None:
    """The token, bound to its provider's hosts unless the address was passed with it."""
    provider = known.get(PROVIDER)
    if token is None or token.hosts is not None or provider is None:
        return token
    name = str(provider.value)
    if provider.kind == "project":
        message = f"It is not clear which provider the token is for: {name} was chosen by {provider.origin}."
        raise ConfigurationError(message, hint="Pass provider='…' together with token='…'.")
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
    """A setting, its value in a form that may be shown, and where it comes from."""

    field: str
    value: str
    origin: str
    overridden: tuple[str, ...] = ()
    """Where else it was set, without effect, by priority."""


class Explanation(tuple[Row, ...]):
    """Where every setting comes from. Print it, or iterate over its rows."""

    __slots__ = ()

    def __str__(self) -> str:
        wide = max(len(row.field) for row in self), max(len(row.value) for row in self)
        lines: list[str] = []
        for row in self:
            instead = f" (instead of {', '.join(row.overridden)})" if row.overridden else ""
            lines.append(f"{row.field:<{wide[0]}}  {row.value:<{wide[1]}}  {row.origin}{instead}")
        return "\n".join(lines)


class LoadedConfig(Confidential, frozen=True, kw_only=True):
    """A configuration, and where each part of it comes from."""

    config: Config
    known: Mapping[Path, Setting]
    """What was set, by path; everything else has its default."""
    layers: tuple[Layer, ...]

    @property
    def files(self) -> tuple[FilePath, ...]:
        """The files that were read, by priority."""
        return tuple(layer.file.path for layer in self.layers if layer.file is not None)

    def trusts(self, path: FilePath) -> bool:
        """Whether the file is in a project that the user has declared trusted."""
        listed = [layer.file.data.get("trusted_projects") for layer in self.layers if layer.file is not None]
        try:
            home = home_directory(os.environ).resolve()
        except ConfigurationError:  # a user without a home directory
            home = None
        return is_trusted(path, [name for names in listed if is_texts(names) for name in names], home)

    @property
    def offered(self) -> Mapping[Path, Setting]:
        """What a project that the user has not declared trusted says to models, left out of the configuration."""
        found = {path: setting for layer in self.layers for path, setting in layer.offered.items()}
        if not found:
            return {}
        accepted = self.accept_offered().known
        return {path: setting for path, setting in found.items() if accepted[path].kind == "project"}

    def accept_offered(self) -> LoadedConfig:
        """The configuration with that, once the user has agreed."""
        return _merge(
            *[structs.replace(layer, settings={**layer.settings, **layer.offered}, offered={}) for layer in self.layers]
        )

    def change(self, **arguments: object) -> LoadedConfig:
        """The configuration with further arguments. Files and variables are not read again."""
        return _merge(_read_arguments(arguments), *self.layers)

    def explain(self) -> Explanation:
        """Every setting, its value and where it comes from. Secrets are masked; no key is looked up."""
        rows: list[Row] = []
        for path in dict.fromkeys([*(field.path for field in FIELDS.values() if not field.code_only), *self.known]):
            name, known = ".".join(path), self.known.get(path)
            if known is None:
                known = Setting(value=attrgetter(name)(self.config), origin="default", kind="file")
            value, untrusted = _show(name, known.value), self.offered.get(path)
            overridden = known.overridden if untrusted is None else (*known.overridden, untrusted.origin)
            rows.append(Row(field=name, value=value, origin=known.origin, overridden=overridden))
        for name, reference in self.config.keys.items():
            origin = reference.origin or "the argument keys"
            rows.append(Row(field=f"keys.{name}", value=_show("keys", reference), origin=origin))
        return Explanation(rows)

    def section(self, name: str, kind: type[T]) -> T:
        """A table of another room as a value of this type, such as a Struct with defaults for all fields.

        Tables of higher layers win key by key.
        """
        if name not in SECTIONS:
            message = f"There is no section {name!r}."
            raise ConfigurationError(message, hint=f"Sections are {', '.join(sorted(SECTIONS))}.")
        merged: dict[str, object] = {}
        for layer in reversed(self.layers):
            if layer.file is not None and name in layer.sections:
                table, at = layer.sections[name]
                layer.file.convert(table, at, kind)
                merged.update(table)
        return convert_to(merged, kind)


def _show(name: str, value: object) -> str:
    """The value as a file would have it, on one line of at most 60 characters; secrets are masked."""
    if value is None or value == "":
        return "-"
    if isinstance(value, Secret | Credential):
        return value.masked
    if isinstance(value, KeyReference):
        parts = {"env": value.env, "keychain": value.keychain, "key": value.key and value.key.masked}
        parts["hosts"] = ", ".join(value.hosts)
        return "; ".join([f"{name} {text}" for name, text in parts.items() if text]) or "-"
    if name.rpartition(".")[2] in ("headers", "extra_headers"):
        return "…"
    if name == "base_url":
        value = hide_query(str(value))
    try:
        plain: object = value.value if isinstance(value, Enum) else msgspec.to_builtins(value, order="deterministic")
        text = json.dumps(plain, ensure_ascii=False)
    except (TypeError, ValueError):
        text = value.__name__ if isinstance(value, type) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"
