"""Keys that the user has stored: in the keychain, or in a file that only the user can read.

Owns: keys.toml in the configuration directory. It is the list of stored keys, because keychains cannot be listed: for
each provider it says where the key is, or holds it.
Must not know: how a key is chosen among several places (find.py).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from msgspec import Struct

from dragoman.chat.toml.file import TomlFile, read_toml, shown_path, warn_of
from dragoman.directories import config_directory
from dragoman.engines.factory import is_registered
from dragoman.engines.keys import Secret
from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import provider_of

from . import keychain
from .reference import KeyReference

__all__ = ["KeyStore", "StoredKey", "delete_key", "keys_file", "list_keys", "store_key", "stored_references"]

KeyStore: TypeAlias = Literal["keychain", "file"]

_FILE: Final = "keys.toml"
_for_the_owner: Final = partial(os.open, mode=0o600)
_HEAD: Final = "# Written by dragoman; only you should be able to read it.\n"


class StoredKey(Struct, frozen=True, kw_only=True):
    """A stored key, as it may be shown."""

    provider: str
    store: KeyStore
    place: str
    """The entry of the keychain, or the path of the file."""
    masked: str
    """The end of the key, where showing it needs no keychain."""


def keys_file(environ: Mapping[str, str] | None = None) -> Path:
    """The file that lists the stored keys."""
    return config_directory(environ) / _FILE


def stored_references(environ: Mapping[str, str] | None = None) -> dict[str, KeyReference]:
    """What is stored, by provider; nothing where there is no home directory to store it in."""
    try:
        path = keys_file(environ)
    except ConfigurationError:  # a user without a name, as in many containers
        return {}
    return _references(path)


def list_keys(*, environ: Mapping[str, str] | None = None) -> tuple[StoredKey, ...]:
    """The stored keys, without the keys. The keychain is not asked."""
    path = keys_file(environ)
    found: list[StoredKey] = []
    for provider, reference in sorted(_references(path).items()):
        if reference.keychain is not None:
            entry = reference.keychain
            found.append(StoredKey(provider=provider, store="keychain", place=entry, masked="…"))
        elif reference.key is not None:
            masked = reference.key.masked
            found.append(StoredKey(provider=provider, store="file", place=str(path), masked=masked))
    return tuple(found)


def store_key(
    provider: str, key: str | Secret, *, store: KeyStore = "keychain", environ: Mapping[str, str] | None = None
) -> StoredKey:
    """Store a key for a provider, in the place of one stored before."""
    name = _canonical(provider)
    secret = key if isinstance(key, Secret) else Secret(key)
    _check(name, secret.reveal())
    path = keys_file(environ)
    if store == "keychain":
        entry = f"{keychain.SERVICE}/{name}"
        keychain.write(entry, secret.reveal())
        _change(path, lambda known: {**known, name: KeyReference(keychain=entry)})
        return StoredKey(provider=name, store=store, place=entry, masked=secret.masked)
    _change(path, lambda known: {**known, name: KeyReference(key=secret)})
    return StoredKey(provider=name, store=store, place=str(path), masked=secret.masked)


def delete_key(provider: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Forget a stored key; False if there was none. Environment variables and other files are left as they are."""
    name, path = _canonical(provider), keys_file(environ)
    reference = _references(path).get(name)
    if reference is None:
        return False
    if reference.keychain is not None:
        keychain.delete(reference.keychain)
    _change(path, lambda known: {other: kept for other, kept in known.items() if other != name})
    return True


def _canonical(provider: str) -> str:
    return provider if is_registered(provider) else provider_of(provider)


def _check(provider: str, key: str) -> None:
    if not key or not key.isascii() or not key.isprintable() or key != key.strip():
        message = f"This is not a key for {provider}: it is empty, or contains characters that no key has."
        raise ConfigurationError(message, hint="Copy it again, without quotes, spaces or line ends.")


# --- the file ---------------------------------------------------------------------------------------------------------


def _references(path: Path) -> dict[str, KeyReference]:
    if not path.exists():
        return {}
    file = read_toml(path)
    found: dict[str, KeyReference] = {}
    for provider, table in file.data.items():
        found[provider] = _reference(file, provider, table)
    if file.others_can_write or (file.others_can_read and any(reference.key for reference in found.values())):
        warn_of(f"{file.shown} holds keys, and others can read or change it. Run: chmod 600 {file.shown}")
    return found


def _reference(file: TomlFile, provider: str, table: object) -> KeyReference:
    members = cast("dict[str, object]", table) if isinstance(table, dict) else {}
    entry, key = members.get("keychain"), members.get("key")
    if len(members) == 1 and isinstance(entry, str):
        return KeyReference(keychain=entry, origin=file.where((provider,)))
    if len(members) == 1 and isinstance(key, str):
        return KeyReference(key=Secret(key), origin=file.where((provider,)))
    problem = f"[{provider}] must have one member, keychain or key, which is a text."
    raise file.error(problem, (provider,), hint="Store the key again, or take the table out.")


def _change(path: Path, change: Callable[[dict[str, KeyReference]], dict[str, KeyReference]]) -> None:
    """Rewrite the file at one stroke: a reader, or a crash, sees the old one or the new one."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path):
            _replace(path, _written(change(_references(path) if path.exists() else {})))
    except OSError as error:
        message = f"{shown_path(path)} cannot be written: {error.strerror or type(error).__name__}."
        raise ConfigurationError(message, hint="Check the permissions of its directory.") from None


def _written(references: Mapping[str, KeyReference]) -> str:
    tables = [_HEAD]
    for provider, reference in sorted(references.items()):
        name, value = (
            ("keychain", reference.keychain)
            if reference.keychain
            else ("key", reference.key and reference.key.reveal())
        )
        # What is stored is printable ASCII, where the strings of JSON and TOML are the same.
        tables.append(f"[{json.dumps(provider)}]\n{name} = {json.dumps(value)}\n")
    return "\n".join(tables)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "x", encoding="utf-8", opener=_for_the_owner) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """One writer at a time, where the platform has locks for it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_suffix(".lock"), "ab", opener=_for_the_owner) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
