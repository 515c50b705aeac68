"""Keys of providers: where they are looked for, in which order, and where they are stored.

keys.toml in the configuration directory lists the stored keys, because a keychain cannot be listed: for each provider
it has the key, or the name of its keychain entry. dragoman.engines.keys decides which key may go to which host.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, structs

from dragoman._checks import suggest
from dragoman._descriptors import replace_file
from dragoman.directories import config_directory
from dragoman.engines import Credential, KeySource, Secret, given_key, hosts_of, is_registered, missing_key
from dragoman.errors import ConfigurationError, KeychainError
from dragoman.providers import ALIASES, PROVIDERS, Provider, provider_of

from .config_files import KeyPath, TomlFile, read_toml, shorten_path, warn

KeyStore: TypeAlias = Literal["keychain", "file"]

_HEAD: Final = "# Written by dragoman; only you should be able to read it.\n"
_MEMBERS: Final = ("env", "keychain", "key", "hosts")


class KeyReference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the key of one provider is. Several places may be named; they are tried in this order."""

    env: str | None = None
    """The name of the environment variable that holds the key."""
    keychain: str | None = None
    """The entry of the system's keychain: `service/user`, or `user` alone for the service `dragoman`."""
    key: Secret | None = None
    """The key itself."""
    hosts: tuple[str, ...] = ()
    """Hosts that the key may be sent to in addition to the provider's own: `name` or `name:port`."""
    origin: str = ""
    """Where this was written, for messages: `config.toml, line 3`."""


class Found(Struct, frozen=True):
    """A key, and where it was found."""

    secret: Secret | Credential
    origin: str


class StoredKey(Struct, frozen=True, kw_only=True):
    """A stored key in a form that may be shown."""

    provider: str
    store: KeyStore
    place: str
    """The entry of the keychain, or the path of the file."""
    masked: str
    """The end of the key, if showing it needs no keychain."""


# --- finding ----------------------------------------------------------------------------------------------------------


def find_key(
    provider: str,
    *,
    token: str | Secret | KeySource | Credential | None = None,
    keys: Mapping[str, KeyReference] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Found | None:
    """Find the key for a provider, bound to the hosts that it may be sent to; None if none is needed.

    A `token` may be sent anywhere. Raises MissingKeyError, which lists every place that was looked at.
    """
    name = ALIASES.get(provider.lower(), provider.lower())
    if (secret := given_key(token)) is not None:
        return Found(secret, "the argument token")
    row = PROVIDERS.get(name) or Provider(name=name, dialect="openai_chat", base_url="", needs_key=False)
    environment = os.environ if environ is None else environ
    path = _find_file(environment)
    given, stored = reference_for(name, keys or {}), reference_for(name, {} if path is None else _read_references(path))
    hosts = hosts_of(row, environment)
    if given is not None and given.hosts:
        hosts = (hosts or frozenset()) | set(given.hosts)
    places = ["the argument token"]
    for place, look_up in _list_places(row, given, stored, environment):
        if value := look_up():
            return Found(Secret(value, hosts=hosts), place)
        places.append(place)
    if row.needs_key:
        raise missing_key(row, tuple(places))
    return None


def _list_places(
    provider: Provider, given: KeyReference | None, stored: KeyReference | None, environ: Mapping[str, str]
) -> Iterator[tuple[str, Callable[[], str | None]]]:
    """The places where a key may be, in order, each with the function that looks there."""
    if given is None:
        yield f"[keys.{provider.name}] of the configuration", lambda: None
    elif given.env:
        yield f"the environment variable {given.env}{_name_origin(given)}", partial(environ.get, given.env)
    for reference in (given, stored):
        if reference is not None and reference.keychain:
            place = f"the keychain entry {reference.keychain!r}{_name_origin(reference)}"
            yield place, partial(_read_entry, reference.keychain)
    for reference in (given, stored):
        if reference is not None and reference.key:
            yield reference.origin or "the argument keys", reference.key.reveal
    if stored is None:
        path = _find_file(environ)
        yield f"the stored keys ({shorten_path(path) if path else 'none without a home directory'})", lambda: None
    for variable in provider.key_variables:
        yield f"the environment variable {variable}", partial(environ.get, variable)


def _name_origin(reference: KeyReference) -> str:
    return f" (named by {reference.origin})" if reference.origin else ""


def reference_for(provider: str, keys: Mapping[str, KeyReference]) -> KeyReference | None:
    """The reference for a provider: under its own name, an alias, or a service that shares its key."""
    names = [provider, *(alias for alias, name in ALIASES.items() if name == provider)]
    if (row := PROVIDERS.get(provider)) is not None:
        shared = (row.key_variables, row.base_url)
        names += [other.name for other in PROVIDERS.values() if (other.key_variables, other.base_url) == shared]
    return next((keys[name] for name in names if name in keys), None)


def read_reference(file: TomlFile, value: object, at: KeyPath) -> KeyReference:
    """Read the table of one key."""
    for name, member in file.table(value, at).items():
        if name not in _MEMBERS:
            raise file.error(f"a key has no {name!r}.", (*at, name), hint=suggest(name, _MEMBERS))
        if isinstance(member, str) and not member.strip():
            raise file.error(f"{name} is empty.", (*at, name))
    found = file.convert(value, at, KeyReference, dec_hook=_decode_secret)
    return structs.replace(found, origin=file.where((*at, "key") if found.key else at))


def _decode_secret(_kind: type, value: object) -> Secret:
    if not isinstance(value, str):
        raise TypeError("expected str")
    return Secret(value)


# --- storing ----------------------------------------------------------------------------------------------------------


def keys_file(environ: Mapping[str, str] | None = None) -> Path:
    return config_directory(environ) / "keys.toml"


def _find_file(environ: Mapping[str, str]) -> Path | None:
    try:
        return keys_file(environ)
    except ConfigurationError:  # a user without a name and a home directory, as in many containers
        return None


def list_keys(*, environ: Mapping[str, str] | None = None) -> tuple[StoredKey, ...]:
    """List the stored keys, masked, without opening the keychain."""
    path = keys_file(environ)
    return tuple(
        [
            StoredKey(provider=provider, store="keychain", place=each.keychain, masked="…")
            if each.keychain is not None
            else StoredKey(provider=provider, store="file", place=str(path), masked=(each.key or Secret("")).masked)
            for provider, each in sorted(_read_references(path).items())
            if each.keychain or each.key
        ]
    )


def store_key(
    provider: str, key: str | Secret, *, store: KeyStore = "keychain", environ: Mapping[str, str] | None = None
) -> StoredKey:
    """Store a key for a provider, replacing one stored before."""
    name = resolve_provider(provider)
    secret = key if isinstance(key, Secret) else Secret(key)
    if not secret or not secret.is_sendable:
        message = f"This is not a key for {name}: it is empty, or contains characters that no key has."
        raise ConfigurationError(message, hint="Copy it again, without quotes, spaces or line ends.")
    path = keys_file(environ)
    place, reference = str(path), KeyReference(key=secret)
    if store == "keychain":
        place = f"{_SERVICE}/{name}"
        _write_entry(place, secret.reveal())
        reference = KeyReference(keychain=place)
    _change(path, lambda known: {**known, name: reference})
    return StoredKey(provider=name, store=store, place=place, masked=secret.masked)


def delete_key(provider: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Delete a stored key; False if there was none. Variables and other files are not touched."""
    name, path = resolve_provider(provider), keys_file(environ)
    reference = _read_references(path).get(name)
    if reference is None:
        return False
    if reference.keychain is not None:
        _write_entry(reference.keychain, None)
    _change(path, lambda known: {other: kept for other, kept in known.items() if other != name})
    return True


def resolve_provider(name: str) -> str:
    """The provider's own name; raises ConfigurationError if there is no such provider."""
    return name if is_registered(name) else provider_of(name)


# --- the file ---------------------------------------------------------------------------------------------------------


def _read_references(path: Path) -> dict[str, KeyReference]:
    if not path.exists():
        return {}
    file = read_toml(path)
    found = {provider: read_reference(file, table, (provider,)) for provider, table in file.data.items()}
    if file.others_can_write or (file.others_can_read and any(reference.key for reference in found.values())):
        warn(f"{file.where()} contains keys, and others can read or change it. Run: chmod 600 {file.where()}")
    return found


def _change(path: Path, change: Callable[[dict[str, KeyReference]], dict[str, KeyReference]]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(path):
            replace_file(path, _encode(change(_read_references(path))).encode())
    except OSError as error:
        message = f"{shorten_path(path)} cannot be written: {error.strerror or type(error).__name__}."
        raise ConfigurationError(message, hint="Check the permissions of its directory.") from None


def _encode(references: Mapping[str, KeyReference]) -> str:
    tables = [_HEAD]
    for provider, each in sorted(references.items()):
        parts = {"env": each.env, "keychain": each.keychain, "key": each.key and each.key.reveal(), "hosts": each.hosts}
        # For printable ASCII, texts and lists are written the same in JSON and TOML.
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in parts.items() if value]
        tables.append(f"[{json.dumps(provider)}]\n{''.join(lines)}")
    return "\n".join(tables)


@contextmanager
def _lock(path: Path) -> Generator[None]:
    """One writer at a time, on platforms with fcntl."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_suffix(".lock"), "ab", opener=partial(os.open, mode=0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- the keychain -----------------------------------------------------------------------------------------------------

# An entry is `service/user`; `user` alone means the service `dragoman`.
_SERVICE: Final = "dragoman"

_INSTEAD: Final = "or keep the key in an environment variable"
_START: Final = "Start one (on Linux a Secret Service such as gnome-keyring)"


def _read_entry(entry: str) -> str | None:
    with _open_keyring(entry) as (keyring, place):
        found: object = keyring.get_password(*place)
    return found if isinstance(found, str) and found else None


def _write_entry(entry: str, secret: str | None) -> None:
    """Write a secret to the keychain; None deletes the entry."""
    with _open_keyring(entry) as (keyring, place):
        if secret is not None:
            keyring.set_password(*place, secret)
        elif keyring.get_password(*place) is not None:
            keyring.delete_password(*place)


def _split_entry(text: str) -> tuple[str, str]:
    service, slash, user = text.rpartition("/")
    service = service if slash else _SERVICE
    if not service.strip() or not user.strip():
        message = f"{text!r} does not name an entry of the keychain."
        raise KeychainError(message, reason="refused", hint="Write service/user, or user alone.")
    return service, user


@contextmanager
def _open_keyring(entry: str) -> Generator[tuple[Any, tuple[str, str]]]:
    """The library, and service and user of the entry. Its errors become ours, without text that may hold the secret."""
    place = _split_entry(entry)
    try:
        import keyring
        from keyring import errors
    except ImportError:
        message = "The keychain needs the library keyring, which is not installed."
        hint = f"Install it with pip install 'dragoman[keyring]', {_INSTEAD}."
        raise KeychainError(message, reason="not_installed", hint=hint) from None
    try:
        yield keyring, place
    except errors.KeyringLocked:
        reason, message, hint = "locked", f"The keychain is locked; the entry {entry!r} cannot be used.", "Unlock it"
    except (errors.NoKeyringError, errors.InitError):
        reason, message, hint = "no_backend", "This machine has no usable keychain.", _START
    except Exception as error:  # noqa: BLE001 -- backends raise whatever their system's library raises
        reason, hint = "failed", "Check that it works, and its permissions"
        message = f"The keychain failed for the entry {entry!r} ({type(error).__name__})."
    else:
        return
    raise KeychainError(message, reason=reason, hint=f"{hint}, {_INSTEAD}.")
