"""The tables of a configuration file.

Owns: which keys and tables a file has, also under the names that other programs use, and the errors for the rest.
Must not know: values' types (fields.py), and which of several files counts.

    provider = "claude"              any field, at the top                    ai.provider is another name for it
    [options] [tool_config] …        fields of a table                        (fields.py)
    [keys.openai]                    where a key is: env, keychain, key, hosts    openai.api.env is another name
    [profiles.work]                  all of this again, laid over the top level
    [mcp] [permissions] …            tables of other rooms, checked by them   (SECTIONS)
    trusted_projects = ["~/work"]    in the user's own file: projects whose files may set everything
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, TypeGuard, cast

from msgspec import Struct

from dragoman.chat.credentials.reference import KeyReference
from dragoman.chat.toml.file import TomlFile
from dragoman.engines.factory import is_registered
from dragoman.engines.keys import Secret
from dragoman.providers.catalogue import ALIASES, PROVIDERS

from .address import canonical
from .fields import CODE_ONLY, FIELDS, TABLES, Path, nearest

__all__ = ["SECTIONS", "FileTables", "Part", "tables_of"]

SECTIONS: Final = frozenset({"cli", "mcp", "permissions", "skills", "store"})
"""Tables of other rooms: kept as they are, and checked by the room that asks for one (LoadedConfig.section)."""

Table: TypeAlias = Mapping[str, object]

_META: Final = ("profiles", "keys", "ai")
_REFERENCE: Final = ("env", "keychain", "key", "hosts")


class Part(Struct, frozen=True, kw_only=True):
    """The top level of a file, or one profile: each value with the place where it stands."""

    settings: Mapping[Path, tuple[object, Path]]
    keys: Mapping[str, tuple[KeyReference, Path]]
    sections: Mapping[str, tuple[Table, Path]]


class FileTables(Struct, frozen=True, kw_only=True):
    """A file, sorted."""

    top: Part
    profiles: Mapping[str, Part]
    trusted_projects: tuple[str, ...] = ()
    literal_keys: bool = False
    """Whether a key itself stands in it."""

    def parts(self, profile: str) -> Iterator[Part]:
        """The top level, and the profile if the file has it; later ones win."""
        yield self.top
        if profile in self.profiles:
            yield self.profiles[profile]


def tables_of(file: TomlFile, root: Path = ()) -> FileTables:
    """The content of a file, or of the table `root` in it, sorted; raises ConfigFileError for what is not known."""
    content = file.data
    for step in root:
        content = cast("Table", content[step])
    reader = _Reader(file)
    top = reader.part(content, root, top=True)
    profiles = {
        name: reader.part(reader.table(inner, (*root, "profiles", name)), (*root, "profiles", name))
        for name, inner in reader.table(content.get("profiles", {}), (*root, "profiles")).items()
    }
    trusted = content.get("trusted_projects", [])
    if not _is_texts(trusted):
        raise file.error("trusted_projects must be a list of texts.", (*root, "trusted_projects"))
    return FileTables(top=top, profiles=profiles, trusted_projects=tuple(trusted), literal_keys=reader.literal_keys)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))


class _Reader:
    def __init__(self, file: TomlFile) -> None:
        self._file: TomlFile = file
        self.literal_keys: bool = False

    def table(self, value: object, at: Path) -> Table:
        """The value, which must be a table."""
        if not isinstance(value, dict):
            # The value is not shown: it may be a key.
            raise self._file.error(f"{at[-1]} must be a table.", at, hint=f"Write [{'.'.join(at)}] above its keys.")
        return cast("Table", value)

    def part(self, content: Table, at: Path, *, top: bool = False) -> Part:
        settings: dict[Path, tuple[object, Path]] = {}
        keys: dict[str, tuple[KeyReference, Path]] = {}
        sections: dict[str, tuple[Table, Path]] = {}
        for name, value in content.items():
            here = (*at, name)
            if (name,) in FIELDS:
                self._set(settings, (name,), value, here)
            elif name in TABLES:
                for key, inner in self.table(value, here).items():
                    self._known(f"{name}.{key}", (name, key) in FIELDS, (*here, key), list(_keys_of(name)))
                    self._set(settings, (name, key), inner, (*here, key))
            elif name == "ai":
                self._ai(settings, self.table(value, here), here)
            elif name == "keys":
                for provider, inner in self.table(value, here).items():
                    self._key(keys, provider, self.table(inner, (*here, provider)), (*here, provider))
            elif name in SECTIONS:
                sections[name] = (self.table(value, here), here)
            elif isinstance(value, dict) and "api" in value and (name in PROVIDERS or name in ALIASES):
                self._service(keys, name, cast("Table", value), here)
            elif not (top and name in ("profiles", "trusted_projects")):
                self._known(name, False, here, [*_names(), *(_META if top else ("keys", "ai"))])
        return Part(settings=settings, keys=keys, sections=sections)

    def _known(self, name: str, known: bool, at: Path, others: list[str]) -> None:
        if known:
            return
        if (instead := CODE_ONLY.get(name)) is not None:
            raise self._file.error(f"{name} cannot be set in a file.", at, hint=instead)
        raise self._file.error(f"there is no setting {name!r}.", at, hint=nearest(name.rpartition(".")[2], others))

    def _set(self, settings: dict[Path, tuple[object, Path]], path: Path, value: object, at: Path) -> None:
        if path in settings:
            other = self._file.where(settings[path][1])
            raise self._file.error(f"{'.'.join(path)} is said twice; also at {other}.", at, hint="Take one out.")
        settings[path] = (value, at)

    def _ai(self, settings: dict[Path, tuple[object, Path]], table: Table, at: Path) -> None:
        for name, value in table.items():
            self._known(f"ai.{name}", name == "provider", (*at, name), ["provider"])
            self._set(settings, ("provider",), value, (*at, name))

    def _service(self, keys: dict[str, tuple[KeyReference, Path]], provider: str, table: Table, at: Path) -> None:
        """`openai.api.key` and its kin."""
        for name, value in table.items():
            self._known(f"{provider}.{name}", name == "api", (*at, name), ["api"])
            self._key(keys, provider, self.table(value, (*at, name)), (*at, name))

    def _key(self, keys: dict[str, tuple[KeyReference, Path]], provider: str, table: Table, at: Path) -> None:
        name = canonical(provider)
        if name not in PROVIDERS and not is_registered(name):
            problem = f"there is no provider {provider!r}."
            raise self._file.error(problem, at, hint=nearest(provider, [*PROVIDERS, *ALIASES]))
        if name in keys:
            other = self._file.where(keys[name][1])
            raise self._file.error(f"the key of {name} is said twice; also at {other}.", at, hint="Take one out.")
        for key, value in table.items():
            self._known(f"keys.{provider}.{key}", key in _REFERENCE, (*at, key), list(_REFERENCE))
            if not (_is_texts(value) if key == "hosts" else isinstance(value, str) and value.strip()):
                words = "a list of host names" if key == "hosts" else "a text"
                # The value is not shown: it may be the key.
                raise self._file.error(f"{key} of {provider} must be {words}.", (*at, key))
        keys[name] = (self._reference(table, at), at)

    def _reference(self, table: Table, at: Path) -> KeyReference:
        given = cast("dict[str, str]", table)
        key = given.get("key")
        self.literal_keys = self.literal_keys or key is not None
        return KeyReference(
            env=given.get("env"),
            keychain=given.get("keychain"),
            key=None if key is None else Secret(key),
            hosts=tuple(given.get("hosts", ())),
            origin=self._file.where((*at, "key") if key is not None else at),
        )


def _keys_of(table: str) -> Iterator[str]:
    return (path[1] for path in FIELDS if path[0] == table and len(path) == 2)


def _names() -> Iterator[str]:
    yield from dict.fromkeys(path[0] for path in FIELDS)
    yield from SECTIONS
