"""Configuration files: which ones are read, what they may say, and the errors for the rest.

provider = "claude"              any field, at the top                    ai.provider is another name for it
[options] [tool_config] …        fields of a table                        (fields.py)
[keys.openai]                    where a key is: env, keychain, key, hosts
[profiles.work]                  all of this again, over the top level
[mcp] [permissions] …            tables of other rooms, checked by them   (SECTIONS)
trusted_projects = ["~/work"]    in the user's own file: projects whose files may set everything
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Final, NamedTuple, TypeAlias, TypeGuard, cast

from dragoman.directories import config_directory, home_directory
from dragoman.engines import Secret, is_registered
from dragoman.errors import ConfigFileError, ConfigurationError
from dragoman.providers import ALIASES, PROVIDERS

from .credentials import KeyReference
from .fields import CODE_ONLY, FIELDS, TABLES, Path, check_value, suggest
from .layers import Layer, Section, Setting, SourceKind, refuse_in_project, resolve_alias
from .toml_file import TomlFile, read_toml, warn

SECTIONS: Final = frozenset({"cli", "mcp", "permissions", "skills", "store"})
"""Tables of other rooms: kept as they are, and checked by the room that asks for one (LoadedConfig.section)."""

Table: TypeAlias = Mapping[str, object]

_PYTHON_PROJECT: Final = "pyproject.toml"
_REFERENCE: Final = ("env", "keychain", "key", "hosts")


class _Source(NamedTuple):
    """A file, the table in it that is ours, and whose file it is."""

    file: TomlFile
    kind: SourceKind
    root: Path = ()

    @property
    def content(self) -> Table:
        found = self.file.data
        for size, step in enumerate(self.root, 1):
            found = _as_table(self.file, found[step], self.root[:size])
        return found


def read_files(
    named: str | FilePath, environ: Mapping[str, str], directory: FilePath | None, profile: str
) -> list[Layer]:
    """What the files say, those that win first: the named one alone, or the project's and the user's own."""
    if named:
        file = read_toml(FilePath(named).expanduser(), regular=False)
        sources = [_find_own_table(file, "user") or _Source(file, "user")]
    else:
        project = None if directory is None else _find_project(directory, environ)
        user = _find_user_file(environ)
        sources = [source for source in (project, user) if source is not None]
    profiles = {name for source in sources for name in _list_profiles(source)}
    if profile and profile not in profiles:
        known = f"The profiles are {', '.join(sorted(profiles))}." if profiles else "No file has any."
        raise ConfigurationError(f"There is no profile {profile!r}.", hint=known)
    trusted = [name for source in sources for name in _read_trust(source)]
    return [_read_source(source, profile, _is_trusted(source, trusted, environ)) for source in sources]


# --- which files ------------------------------------------------------------------------------------------------------


def user_file(environ: Mapping[str, str] | None = None) -> FilePath:
    """Where the user's own file is, or would be."""
    return config_directory(environ) / "config.toml"


def _find_user_file(environ: Mapping[str, str]) -> _Source | None:
    try:
        path = user_file(environ)
    except ConfigurationError:  # a user without a home directory, as in many containers
        return None
    return _Source(read_toml(path), "user") if _exists(path) else None


def _find_project(directory: FilePath, environ: Mapping[str, str]) -> _Source | None:
    """The nearest dragoman.toml, or pyproject.toml with [tool.dragoman].

    Looked for in the directory and those above it, up to the home directory or the root, but not in the home directory
    itself: what lies there is no project.
    """
    start, home = directory.resolve(), _find_home(environ)
    for place in (start, *start.parents):
        if place == home:
            return None
        if _exists(path := place / "dragoman.toml"):
            return _Source(read_toml(path), "project")
        if _exists(path := place / _PYTHON_PROJECT) and (found := _read_pyproject(path)) is not None:
            return found
    return None


def _find_home(environ: Mapping[str, str]) -> FilePath | None:
    try:
        return home_directory(environ).resolve()
    except ConfigurationError:
        return None


def _exists(path: FilePath) -> bool:
    try:
        return path.exists()
    except OSError:  # in a directory that we may not look into
        return False


def _read_pyproject(path: FilePath) -> _Source | None:
    try:
        return _find_own_table(read_toml(path), "project")
    except ConfigFileError:
        # It is first of all somebody else's file; that it is broken is our business only if we are in it.
        if "[tool.dragoman" in path.read_text(encoding="utf-8", errors="replace"):
            raise
        return None


def _find_own_table(file: TomlFile, kind: SourceKind) -> _Source | None:
    """The part of a pyproject.toml that is for us."""
    tool = file.data.get("tool") if file.path.name == _PYTHON_PROJECT else None
    return _Source(file, kind, ("tool", "dragoman")) if isinstance(tool, dict) and "dragoman" in tool else None


def _list_profiles(source: _Source) -> Table:
    return _as_table(source.file, source.content.get("profiles", {}), (*source.root, "profiles"))


def _read_trust(source: _Source) -> list[str]:
    names, at = source.content.get("trusted_projects", []), (*source.root, "trusted_projects")
    if not _is_texts(names):
        raise source.file.error("trusted_projects must be a list of texts.", at)
    if names and source.kind == "project":
        raise source.file.error("only your own file can say trusted_projects.", at)
    return names


def _is_trusted(source: _Source, directories: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Whether it is the user's own file, or lies in one of the directories, wherever links lead."""
    place = source.file.path.resolve()
    for name in directories:
        is_home = name == "~" or name.startswith("~/")
        directory = FilePath(f"{_find_home(environ)}{name[1:]}" if is_home else name)
        if directory.is_absolute() and place.is_relative_to(directory.resolve()):
            return True
    return source.kind == "user"


# --- what they say ----------------------------------------------------------------------------------------------------


def _read_source(source: _Source, profile: str, trusted: bool) -> Layer:
    """The top level of a file with the profile over it. Profiles that are not chosen are checked all the same."""
    file, root = source.file, source.root
    found = _Reader(file, trusted)
    found.read(source.content, root, top=True)
    for name, table in _list_profiles(source).items():
        at = (*root, "profiles", name)
        inside = found if name == profile else _Reader(file, trusted)
        inside.read(_as_table(file, table, at), at)
    shown = file.where()
    if file.others_can_write:
        warn(f"Others can change {shown}, and so what your programs do. Run: chmod go-w {shown}")
    if any(reference.key for reference in found.keys.values()):
        also = f" Others can read it: run chmod 600 {shown}." if file.others_can_read else ""
        warn(f"{shown} holds a key. A variable (env) or the keychain (keychain) is a better place.{also}")
    return Layer(
        kind=source.kind,
        settings=found.settings,
        keys=found.keys,
        sections=found.sections,
        file=file,
        trusted=trusted,
    )


class _Reader:
    """Sorts the tables of one file, each value checked."""

    def __init__(self, file: TomlFile, trusted: bool) -> None:
        self._file: TomlFile = file
        self._trusted: bool = trusted
        self.settings: dict[Path, Setting] = {}
        self.keys: dict[str, KeyReference] = {}
        self.sections: dict[str, Section] = {}

    def read(self, content: Table, at: Path, *, top: bool = False) -> None:
        """Take in the top level of a file, or one profile; what was there before is replaced."""
        if "provider" in content and "ai" in content:
            raise self._file.error("provider is set twice, also as ai.provider.", (*at, "ai"), hint="Take one out.")
        for name, value in content.items():
            here = (*at, name)
            if (name,) in FIELDS:
                self._set((name,), value, here)
            elif name in TABLES or name == "ai":
                for key, inner in _as_table(self._file, value, here).items():
                    path = (name, key) if (name, key) != ("ai", "provider") else ("provider",)
                    if path not in FIELDS:
                        others = ["provider"] if name == "ai" else [each[1] for each in FIELDS if each[:-1] == (name,)]
                        raise self._refuse(f"{name}.{key}", (*here, key), others)
                    self._set(path, inner, (*here, key))
            elif name == "keys":
                self._read_keys(_as_table(self._file, value, here), here)
            elif name in SECTIONS:
                self.sections[name] = (_as_table(self._file, value, here), here)
            elif not (top and name in ("profiles", "trusted_projects")):
                others = [*{path[0] for path in FIELDS}, *SECTIONS, "keys", "ai", *(["profiles"] if top else [])]
                raise self._refuse(name, here, others)

    def _refuse(self, name: str, at: Path, others: list[str]) -> ConfigFileError:
        if (instead := CODE_ONLY.get(name)) is not None:
            return self._file.error(f"{name} cannot be set in a file.", at, hint=instead)
        return self._file.error(f"there is no setting {name!r}.", at, hint=suggest(name.rpartition(".")[2], others))

    def _set(self, path: Path, value: object, at: Path) -> None:
        field, where = FIELDS[path], self._file.where(at)
        if not self._trusted and not field.project:
            raise refuse_in_project(self._file, at, field.name)
        self.settings[path] = Setting(check_value(field, value, where), where)

    def _read_keys(self, tables: Table, at: Path) -> None:
        seen: set[str] = set()
        for provider, inner in tables.items():
            here = (*at, provider)
            if not self._trusted:
                raise refuse_in_project(self._file, here, f"keys.{provider}")
            name = resolve_alias(provider)
            if name not in PROVIDERS and not is_registered(name):
                problem = f"there is no provider {provider!r}."
                raise self._file.error(problem, here, hint=suggest(provider, [*PROVIDERS, *ALIASES]))
            if name in seen:
                raise self._file.error(f"the key of {name} is set twice.", here, hint="Take one out.")
            seen.add(name)
            self.keys[name] = self._read_reference(provider, _as_table(self._file, inner, here), here)

    def _read_reference(self, provider: str, table: Table, at: Path) -> KeyReference:
        for key, value in table.items():
            if key not in _REFERENCE:
                raise self._refuse(f"keys.{provider}.{key}", (*at, key), list(_REFERENCE))
            if not (_is_texts(value) if key == "hosts" else isinstance(value, str) and value.strip()):
                words = "a list of host names" if key == "hosts" else "a text"
                # The value is not shown: it may be the key.
                raise self._file.error(f"{key} of {provider} must be {words}.", (*at, key))
        given = cast("dict[str, str]", table)
        return KeyReference(
            env=given.get("env"),
            keychain=given.get("keychain"),
            key=Secret(given["key"]) if "key" in given else None,
            hosts=tuple(given.get("hosts", ())),
            origin=self._file.where((*at, "key") if "key" in given else at),
        )


def _as_table(file: TomlFile, value: object, at: Path) -> Table:
    if not isinstance(value, dict):
        # The value is not shown: it may be a key.
        raise file.error(f"{at[-1]} must be a table.", at, hint=f"Write [{'.'.join(at)}] above its keys.")
    return cast("Table", value)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))
