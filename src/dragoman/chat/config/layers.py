"""What each source says, in one form.

Owns: Layer, and reading one from arguments, from the environment and from a file.
Must not know: how layers are laid over each other (load.py), where files are (places.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.chat.credentials.reference import KeyReference
from dragoman.chat.toml.file import TomlFile, warn_of
from dragoman.engines.keys import Secret
from dragoman.errors import ConfigurationError

from .fields import CODE_ONLY, FIELDS, TABLES, Path, checked, from_text, nearest, variable_of
from .tables import FileTables

__all__ = ["Layer", "Setting", "SourceKind", "of_arguments", "of_environment", "of_file"]

SourceKind: TypeAlias = Literal["argument", "environment", "project", "user", "default"]


class Setting(Struct, frozen=True):
    """A value and where it comes from."""

    value: object
    origin: str


class Layer(Struct, frozen=True, kw_only=True):
    """What one source says."""

    kind: SourceKind
    settings: Mapping[Path, Setting] = {}
    keys: Mapping[str, KeyReference] = {}
    sections: Mapping[str, tuple[Mapping[str, object], Path]] = {}
    file: TomlFile | None = None
    trusted: bool = True
    """False: the file of a project that the user has not declared trusted."""


# --- arguments --------------------------------------------------------------------------------------------------------


def of_arguments(arguments: Mapping[str, object], known: Mapping[str, object]) -> Layer:
    """What the caller says. None means that it says nothing."""
    settings: dict[Path, Setting] = {}
    for name, given in arguments.items():
        value = Secret(given) if name == "token" and isinstance(given, str) else given  # from here on it does not print
        origin = f"the argument {name}"
        if name not in known:
            message = f"There is no setting {name!r} (an argument)."
            raise ConfigurationError(message, hint=nearest(name, list(known)))
        if value is None:
            continue
        if name in TABLES:
            settings.update(_of_table(name, value, origin))
        elif (field := FIELDS.get((name,))) is not None and field.simple:
            settings[name,] = Setting(checked(field, value, origin), origin)
        else:
            settings[name,] = Setting(value, origin)
    return Layer(kind="argument", settings=settings)


def _of_table(table: str, value: object, origin: str) -> dict[Path, Setting]:
    """A value such as ModelOptions, or a mapping: whatever differs from the default counts as said."""
    struct = TABLES[table]
    if isinstance(value, Mapping):
        try:
            given = msgspec.convert(cast("Mapping[str, object]", value), struct)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"{origin} does not fit: {error}.") from None
        said = set(cast("Mapping[str, object]", value))
    elif isinstance(value, struct):
        given, plain = value, struct()
        said = {name for name in struct.__struct_fields__ if getattr(given, name) != getattr(plain, name)}
    else:
        message = f"{origin} must be a {struct.__name__}, not {type(value).__name__}."
        raise ConfigurationError(message)
    return {(table, name): Setting(getattr(given, name), origin) for name in sorted(said)}


# --- the environment --------------------------------------------------------------------------------------------------

_PREFIX: Final = "DRAGOMAN_"
_OTHERS: Final = frozenset({"DRAGOMAN_CONFIG", "DRAGOMAN_MODEL_DIR", "DRAGOMAN_PROFILE"})
_KEYS: Final = frozenset({"DRAGOMAN_API_KEY", "DRAGOMAN_KEY", "DRAGOMAN_TOKEN"})


def of_environment(environ: Mapping[str, str]) -> Layer:
    """What the variables say: AI_PROVIDER, and DRAGOMAN_ and the name of a field. An empty one says nothing."""
    settings: dict[Path, Setting] = {}
    if provider := environ.get("AI_PROVIDER", "").strip():
        settings["provider",] = Setting(provider, "environment variable AI_PROVIDER")
    fields = {variable_of(field): field for field in FIELDS.values()}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(_PREFIX) or not text.strip() or variable in _OTHERS:
            continue
        origin = f"environment variable {variable}"
        if (field := fields.get(variable)) is not None:
            settings[field.path] = Setting(from_text(field, text, origin), origin)
        else:
            _refuse_variable(variable, list(fields))
    return Layer(kind="environment", settings=settings)


def _refuse_variable(variable: str, known: list[str]) -> None:
    """Others may have variables of this prefix, so one that we do not know is no error; a misspelt one is told of."""
    if variable in _KEYS:
        message = f"A key belongs to one provider; {variable} does not say which."
        raise ConfigurationError(message, hint="Put it into that provider's variable, e.g. OPENAI_API_KEY.")
    for name, instead in CODE_ONLY.items():
        if variable == _PREFIX + name.replace(".", "_").upper():
            raise ConfigurationError(f"{name} cannot be set by an environment variable ({variable}).", hint=instead)
    if near := get_close_matches(variable, known, n=1, cutoff=0.85):
        warn_of(f"The environment variable {variable} is not known and has no effect. Did you mean {near[0]}?")


# --- files ------------------------------------------------------------------------------------------------------------


def of_file(file: TomlFile, tables: FileTables, kind: SourceKind, *, profile: str, trusted: bool) -> Layer:
    """What a file says: its top level, and the profile's table laid over it."""
    settings: dict[Path, Setting] = {}
    keys: dict[str, KeyReference] = {}
    sections: dict[str, tuple[Mapping[str, object], Path]] = {}
    for part in tables.parts(profile):
        for path, (value, at) in part.settings.items():
            field = FIELDS[path]
            if not trusted and not field.project:
                raise not_for_projects(file, at, field.name)
            settings[path] = Setting(checked(field, value, file.where(at)), file.where(at))
        for name, (reference, at) in part.keys.items():
            if not trusted:
                raise not_for_projects(file, at, f"keys.{name}")
            keys[name] = reference
        sections.update(part.sections)
    return Layer(kind=kind, settings=settings, keys=keys, sections=sections, file=file, trusted=trusted)


def not_for_projects(file: TomlFile, at: Path, name: str) -> ConfigurationError:
    """The error for what only the user's own file may say."""
    directory = file.path.resolve().parent
    return file.error(
        f"the file of a project may not set {name}.",
        at,
        hint=(
            "It could send your data or keys elsewhere, or run programs. If you trust this project, write "
            f'trusted_projects = ["{directory}"] into your own configuration file; otherwise take the line out.'
        ),
    )
