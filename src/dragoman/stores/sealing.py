"""Sealing: encryption with AES-256-GCM (extra `crypto`), its keys, and the records of a store.

Must not know: where a record is stored.

    bytes    of a sealed record
    4        the magic number
    1        the version of this format
    8        the id of the key
    24       nonce
    rest     ciphertext, and the 16-byte tag that authenticates it, the header and `about`

Each record is encrypted with its own key, derived from the key and the first half of a random 24-byte nonce, as
XAES-256-GCM specifies (c2sp.org/XAES-256-GCM). Plain AES-GCM with random nonces must stop after 2³² records per key;
this has no limit in practice.

`about` says which record of which store it is. It is not stored but authenticated, so that a record cannot be put in
the place of another.

A store has one of two modes. `open`: nothing is sealed. `sealed`: everything is, including what lists show.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._checks import of_unmade
from dragoman._decoding import decoder_of
from dragoman.errors import (
    ConfigurationError,
    SnapshotCorruptError,
    SnapshotSealError,
    SnapshotVersionError,
    StoreError,
)

from .journal import JournalEntry, entry_from_json, entry_to_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# --- keys ------------------------------------------------------------------------------------------------------------

KEY_BYTES: Final = 32
_MAKE_ONE: Final = "Create a key with dragoman.generate_encryption_key() and keep it in a secret manager."
_COPY: Final = "Open it without a key and copy it into a new sealed store: copy_conversations(source, target)."
_TEXT_HINT: Final = "Write the 32 bytes of the key in base64 (44 characters) or in hex (64 characters)."


def generate_encryption_key() -> bytes:
    """A new random key of 32 bytes. A passphrase does not replace it."""
    return secrets.token_bytes(KEY_BYTES)


class EncryptionKey:
    """32 secret bytes that are never shown, and the id by which records name them."""

    __slots__ = ("_secret", "id")

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = f"An encryption key is bytes, not {type(secret).__name__}."
            raise ConfigurationError(message, hint="Use EncryptionKey.from_text for a key in base64 or hex.")
        if len(secret) != KEY_BYTES:
            message = f"An encryption key has {KEY_BYTES} bytes, not {len(secret)}."
            raise ConfigurationError(message, hint=_MAKE_ONE)
        if not any(secret):
            # Probably a buffer that was never filled.
            raise ConfigurationError("The encryption key is all zeros.", hint=_MAKE_ONE)
        self._secret: bytes = bytes(secret)
        # An HMAC under the key: the id in a file reveals nothing about the key.
        self.id: str = hmac.new(self._secret, b"dragoman key id", hashlib.sha256).digest()[:8].hex()
        """Visible in every record that the key seals."""

    @classmethod
    def from_text(cls, text: str, *, source: str = "The text") -> EncryptionKey:
        """Parse a key in base64 (either alphabet) or hex. `source` names its origin in error messages."""
        text = text.strip()
        try:
            if len(text) == 2 * KEY_BYTES:
                key = bytes.fromhex(text)
            else:
                padded = text.replace("-", "+").replace("_", "/").rstrip("=") + "="
                key = base64.b64decode(padded, validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            message = f"{source} is not an encryption key: {len(text)} characters are not 32 bytes in base64 or hex."
            raise ConfigurationError(message, hint=_TEXT_HINT if text else _MAKE_ONE)
        return cls(key)

    @classmethod
    def from_environment(cls, name: str, *, environ: Mapping[str, str] | None = None) -> EncryptionKey:
        """The key in an environment variable, in base64 or hex."""
        value = (os.environ if environ is None else environ).get(name)
        if value is None:
            raise ConfigurationError(f"There is no environment variable {name!r} with a key.", hint=_TEXT_HINT)
        return cls.from_text(value, source=f"The environment variable {name!r}")

    @of_unmade
    def __repr__(self) -> str:
        return f"EncryptionKey(id={self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptionKey) and hmac.compare_digest(other._secret, self._secret)

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> NoReturn:
        message = "an encryption key cannot be pickled; let the other process read it from its source"
        raise TypeError(message)


# --- sealed records -------------------------------------------------------------------------------------------------

VERSION: Final = 1
MAGIC: Final = b"\xd7DGS"
"""The first bytes of a sealed record. No UTF-8 text begins with them, so no plain record is taken for a sealed one."""
_PREFIX: Final = MAGIC + bytes([VERSION])
_HEADER: Final = len(_PREFIX) + 8
_NONCE: Final = 24
_TAG: Final = 16
_SHORTEST: Final = _HEADER + _NONCE + _TAG


def is_sealed(data: bytes) -> bool:
    """Whether this is a sealed record, of any version."""
    return data.startswith(MAGIC)


def sealed_with(data: bytes) -> str:
    """The id of the key that the record names; shorter if the record is truncated."""
    return data[len(_PREFIX) : _HEADER].hex()


class AesGcmSealing:
    """Seals records with one key, and opens those sealed with it or with one of the `older` keys.

    A record that is not sealed is refused: otherwise anyone who can write to the store could replace a sealed record.
    """

    __slots__ = ("_ciphers", "_failure", "key_id")

    def __init__(self, key: EncryptionKey | bytes, *, older: Iterable[EncryptionKey | bytes] = ()) -> None:
        try:
            from cryptography.exceptions import InvalidTag
        except ImportError as error:
            message = "Sealing needs the package `cryptography`."
            raise ConfigurationError(message, hint="Install it: pip install 'dragoman[crypto]'.") from error
        first, *others = [each if isinstance(each, EncryptionKey) else EncryptionKey(each) for each in (key, *older)]
        self.key_id: str = first.id
        """The id of the key that seals."""
        self._ciphers: dict[str, Callable[[bytes], AESGCM]] = {each.id: _cipher_of(each) for each in (*others, first)}
        self._failure: type[Exception] = InvalidTag

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys, the one that seals first."""
        return (self.key_id, *(each for each in self._ciphers if each != self.key_id))

    def seal(self, plain: bytes, *, about: bytes) -> bytes:
        """Seal one record; the result is different each time."""
        nonce = secrets.token_bytes(_NONCE)
        header = _PREFIX + bytes.fromhex(self.key_id)
        return b"".join((header, nonce, self._ciphers[self.key_id](nonce).encrypt(nonce[12:], plain, header + about)))

    def unseal(self, data: bytes, *, about: bytes) -> bytes:
        """Open a sealed record.

        Raises SnapshotSealError if the key is missing and SnapshotCorruptError if the bytes were truncated, edited or
        belong to another record.
        """
        if not is_sealed(data):
            if MAGIC.startswith(data):
                raise SnapshotCorruptError(f"The record is truncated: it has {len(data)} bytes.")
            message = "The record is not sealed, and this store only reads sealed records."
            raise SnapshotSealError(message, hint=_COPY)
        if (version := data[len(MAGIC) : len(_PREFIX)]) > bytes([VERSION]):
            message = f"The record is sealed in version {version[0]}; this dragoman reads up to version {VERSION}."
            raise SnapshotVersionError(message)
        if len(data) < _SHORTEST:
            raise SnapshotCorruptError(f"The sealed record is truncated: it has {len(data)} bytes.")
        cipher = self._ciphers.get(sealed_with(data))
        if cipher is None:
            held = ", ".join(self.key_ids)
            message = f"The record is sealed with key {sealed_with(data)}, which was not given (given: {held})."
            raise SnapshotSealError(message, hint="Pass that key, too: AesGcmSealing(key, older=[that_key]).")
        header, nonce = data[:_HEADER], data[_HEADER : _HEADER + _NONCE]
        try:
            return cipher(nonce).decrypt(nonce[12:], data[_HEADER + _NONCE :], header + about)
        except self._failure:
            message = f"The record names key {sealed_with(data)} but that key does not open it."
            hint = "It was truncated, edited or moved. Restore it from a backup; it was left unchanged."
            raise SnapshotCorruptError(message, hint=hint) from None

    @of_unmade
    def __repr__(self) -> str:
        return f"AesGcmSealing(key_ids={self.key_ids!r})"

    def __reduce__(self) -> NoReturn:
        message = "sealing holds keys and cannot be pickled; let the other process read them from their source"
        raise TypeError(message)


def _cipher_of(key: EncryptionKey) -> Callable[[bytes], AESGCM]:
    """The function that derives the cipher of a record from its nonce."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import ECB

    # Single blocks for a key-derivation function, which ECB is right for.
    cipher = Cipher(AES(key._secret), ECB())  # noqa: S305  # pyright: ignore[reportPrivateUsage]
    # The first subkey of CMAC over AES.
    zero = int.from_bytes(cipher.encryptor().update(bytes(16)), "big")
    mask = (zero << 1) & ((1 << 128) - 1) ^ (0x87 if zero >> 127 else 0)

    def derive(nonce: bytes) -> AESGCM:
        blocks = [int.from_bytes(bytes((0, number, 0x58, 0)) + nonce[:12], "big") for number in (1, 2)]
        masked = b"".join((block ^ mask).to_bytes(16, "big") for block in blocks)
        return AESGCM(cipher.encryptor().update(masked))

    return derive


# --- the records of a store ------------------------------------------------------------------------------------------

Mode: TypeAlias = Literal["open", "sealed"]


class Records:
    """Seals and checks the records of one store: a digest, or the key, binds each of them to its name."""

    __slots__ = ("mode", "sealing", "store")

    def __init__(self, store: str, sealing: AesGcmSealing | None) -> None:
        self.store: Final = store
        """The kind of store, a part of every name."""
        self.sealing: Final = sealing
        self.mode: Final[Mode] = "open" if sealing is None else "sealed"

    def ensure_mode(self, found: object) -> None:
        """Refuse to write records of one mode into a store of another."""
        if found == self.mode:
            return
        if found == "sealed":
            message = "The store is sealed and was opened without a key."
            raise SnapshotSealError(message, hint="Open it with its key: sealing=AesGcmSealing(key).")
        if found == "open":
            message = "The store was opened with a key, but its conversations are not sealed."
            raise ConfigurationError(message, hint=_COPY)
        message = "The store is damaged: it does not say whether it is sealed."
        raise StoreError(message, hint="Restore it from a backup.")

    def ensure_key(self, found: object) -> None:
        """Refuse to list a sealed store without a key: one error instead of a page of them."""
        if found == "sealed":
            self.ensure_mode(found)

    # --- records, by their names -------------------------------------------------------------------------------------

    def seal(self, data: bytes, *name: str | int) -> bytes:
        """The stored form of a record, which is JSON."""
        about = self._about(name)
        record = b'{"check":"%s","record":%s}' % (_digest(data, about).encode(), data)
        return record if self.sealing is None else self.sealing.seal(record, about=about)

    def unseal(self, data: bytes, *name: str | int) -> bytes:
        """The record of this name. Raises SnapshotCorruptError if another one was sealed under it."""
        about = self._about(name)
        if self.sealing is not None:
            data = self.sealing.unseal(data, about=about)
        elif is_sealed(data):
            message = f"The record is sealed with key {sealed_with(data)} and the store was opened without a key."
            raise SnapshotSealError(message, hint="Open the store with sealing=AesGcmSealing(key).")
        try:
            stored = _stored.decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise SnapshotCorruptError(f"The record cannot be read: {str(error).rstrip('.')}.") from None
        record = bytes(stored.record)
        if stored.check != _digest(record, about):
            raise SnapshotCorruptError("The record was changed, or belongs to another place.")
        return record

    def _about(self, name: tuple[str | int, ...]) -> bytes:
        return "/".join(["dragoman.store", "1", self.store, *map(str, name)]).encode()

    def seal_entry(self, entry: JournalEntry, root: str, newest: str, position: int) -> bytes:
        # Bound to the snapshot that it follows, so that older entries are not taken for later ones.
        return self.seal(entry_to_json(entry), "entry", root, newest, position)

    def read_entry(self, data: bytes, root: str, newest: str, position: int) -> JournalEntry:
        return entry_from_json(self.unseal(data, "entry", root, newest, position))


class _Stored(Struct, frozen=True):
    check: str
    record: Raw


_stored = decoder_of(_Stored)


def _digest(record: bytes, about: bytes) -> str:
    """Detects damage: not every disk and database notices changed or misplaced bytes."""
    return hashlib.sha256(about + b"\n" + record).hexdigest()[:32]
