"""Sealing: encryption with AES-256-GCM (extra `crypto`), the keys for it, and which records of a store are sealed.

Owns: EncryptionKey, which never shows itself; AesGcmSealing with its sealed form; Records, which names, seals and
opens the records of a store.
Must not know: where a record is kept.

    bytes    what
    4        the magic number
    1        the version of this form
    8        the id of the key
    24       nonce
    rest     ciphertext, and 16 bytes that authenticate it, all of the above and `about`

Each record is sealed under a key of its own, which is derived from the key and the first half of a random 24-byte
nonce as XAES-256-GCM lays down (c2sp.org/XAES-256-GCM). Plain AES-GCM with random nonces must stop after 2³² records of
one key; this does not come to a limit in practice.

`about` says which record of which store it is. It is not written but bound to the sealed form, so that a record cannot
be put in another's place.

A store is in one of two modes. `open`: nothing is sealed. `sealed`: everything is, also what lists show.
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
_MAKE_ONE: Final = "Make a key with dragoman.generate_encryption_key() and keep it in a secret manager."
_COPY: Final = "Open it without a key and copy it into a new, sealed store: copy_conversations(source, target)."
_TEXT_HINT: Final = "Write the 32 bytes of the key in base64 (44 characters) or in hex (64 characters)."


def generate_encryption_key() -> bytes:
    """A new random key of 32 bytes. A passphrase is no substitute for it."""
    return secrets.token_bytes(KEY_BYTES)


class EncryptionKey:
    """32 secret bytes that do not print, and the id by which records name them."""

    __slots__ = ("_secret", "id")

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = f"An encryption key is bytes, not {type(secret).__name__}."
            raise ConfigurationError(message, hint="Use EncryptionKey.from_text for a key that is written as text.")
        if len(secret) != KEY_BYTES:
            message = f"An encryption key has {KEY_BYTES} bytes, and this one {len(secret)}."
            raise ConfigurationError(message, hint=_MAKE_ONE)
        if not any(secret):
            # What a buffer holds that nobody has filled.
            raise ConfigurationError("The encryption key is all zeros.", hint=_MAKE_ONE)
        self._secret: bytes = bytes(secret)
        # Derived with the key as key: whoever reads the id in a file learns nothing about the key itself.
        self.id: str = hmac.new(self._secret, b"dragoman key id", hashlib.sha256).digest()[:8].hex()
        """Written in the clear into every record that the key seals."""

    @classmethod
    def from_text(cls, text: str, *, source: str = "The text") -> EncryptionKey:
        """The key written in base64 (either alphabet) or hex. `source` names where it stood, for messages."""
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
            message = f"{source} does not hold an encryption key: {len(text)} characters are neither form of 32 bytes."
            raise ConfigurationError(message, hint=_TEXT_HINT if text else _MAKE_ONE)
        return cls(key)

    @classmethod
    def from_environment(cls, name: str, *, environ: Mapping[str, str] | None = None) -> EncryptionKey:
        """The key in the variable of this name, in base64 or hex."""
        value = (os.environ if environ is None else environ).get(name)
        if value is None:
            raise ConfigurationError(f"There is no environment variable {name!r} with a key.", hint=_TEXT_HINT)
        return cls.from_text(value, source=f"The environment variable {name!r}")

    def reveal(self) -> bytes:
        """The bytes themselves, for the cipher."""
        return self._secret

    def __repr__(self) -> str:
        return f"EncryptionKey(id={self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptionKey) and hmac.compare_digest(other._secret, self._secret)

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> NoReturn:
        message = "an encryption key is not pickled; let the other process read it from its own source"
        raise TypeError(message)


# --- the sealed form -------------------------------------------------------------------------------------------------

VERSION: Final = 1
MAGIC: Final = b"\xd7DGS"
"""How sealed bytes begin. The first is no beginning of UTF-8 text, so nothing plain is ever taken for sealed."""
_PREFIX: Final = MAGIC + bytes([VERSION])
_HEADER: Final = len(_PREFIX) + 8
_NONCE: Final = 24
_TAG: Final = 16
_SHORTEST: Final = _HEADER + _NONCE + _TAG


def is_sealed(data: bytes) -> bool:
    """Whether these bytes are in a sealed form (of any version)."""
    return data.startswith(MAGIC)


def sealed_with(data: bytes) -> str:
    """The id of the key that the bytes claim to be sealed with; less than that if they are cut."""
    return data[len(_PREFIX) : _HEADER].hex()


class AesGcmSealing:
    """Seals with one key, and opens what that key or one of the `older` keys has sealed.

    A record that is not sealed at all is refused: whoever can write to the store could otherwise put anything in the
    place of a sealed record.
    """

    __slots__ = ("_boxes", "key_id")

    def __init__(self, key: EncryptionKey | bytes, *, older: Iterable[EncryptionKey | bytes] = ()) -> None:
        first, *others = [each if isinstance(each, EncryptionKey) else EncryptionKey(each) for each in (key, *older)]
        self.key_id: str = first.id
        """The id of the key that seals."""
        self._boxes: dict[str, _Box] = {each.id: _Box(each) for each in (*others, first)}

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys that open, the one that seals first."""
        return (self.key_id, *(each for each in self._boxes if each != self.key_id))

    def seal(self, plain: bytes, *, about: bytes) -> bytes:
        """The sealed form of one record; another one each time."""
        nonce = secrets.token_bytes(_NONCE)
        header = _PREFIX + bytes.fromhex(self.key_id)
        return b"".join((header, nonce, self._boxes[self.key_id].encrypt(nonce, plain, header + about)))

    def unseal(self, data: bytes, *, about: bytes) -> bytes:
        """The plain bytes of a record.

        Raises SnapshotSealError where the key is missing and SnapshotCorruptError where the bytes were cut, edited or
        belong to another record.
        """
        if not is_sealed(data):
            if MAGIC.startswith(data):
                raise SnapshotCorruptError(f"The record has {len(data)} bytes: it is cut.")
            message = "The record is not sealed, and this store reads sealed records only."
            raise SnapshotSealError(message, hint=_COPY)
        if (version := data[len(MAGIC) : len(_PREFIX)]) > bytes([VERSION]):
            message = f"The record is sealed in version {version[0]} of the form; this dragoman reads up to {VERSION}."
            raise SnapshotVersionError(message)
        if len(data) < _SHORTEST:
            message = f"The sealed record is cut: {len(data)} bytes are fewer than the shortest has."
            raise SnapshotCorruptError(message)
        box = self._boxes.get(sealed_with(data))
        if box is None:
            held = ", ".join(self.key_ids)
            message = f"The record is sealed with key {sealed_with(data)}, which was not given (given: {held})."
            raise SnapshotSealError(message, hint="Give that key too: AesGcmSealing(key, older=[that_key]).")
        header, nonce = data[:_HEADER], data[_HEADER : _HEADER + _NONCE]
        plain = box.decrypt(nonce, data[_HEADER + _NONCE :], header + about)
        if plain is None:
            message = f"The record names key {sealed_with(data)} but that key does not open it."
            hint = "It was cut, edited, or belongs to another place. Restore it from a copy; it was left where it is."
            raise SnapshotCorruptError(message, hint=hint)
        return plain

    def __repr__(self) -> str:
        return f"AesGcmSealing(key_ids={self.key_ids!r})"

    def __reduce__(self) -> NoReturn:
        message = "sealing holds keys and is not pickled; let the other process read them from their own source"
        raise TypeError(message)


class _Box:
    """One key, ready to be used."""

    __slots__ = ("_aes_gcm", "_block", "_failure", "_mask")

    def __init__(self, key: EncryptionKey) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers import Cipher
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.ciphers.algorithms import AES
            from cryptography.hazmat.primitives.ciphers.modes import ECB
        except ImportError as error:
            message = "Sealing needs the package `cryptography`."
            raise ConfigurationError(message, hint="Install it: pip install 'dragoman[crypto]'.") from error
        # One block at a time of a key-derivation function, which is what ECB is still good for.
        cipher = Cipher(AES(key.reveal()), ECB())  # noqa: S305
        self._block: Callable[[bytes], bytes] = lambda data: cipher.encryptor().update(data)
        self._aes_gcm: type[AESGCM] = AESGCM
        self._failure: type[Exception] = InvalidTag
        # The first subkey of CMAC over AES.
        zero = int.from_bytes(self._block(bytes(16)), "big")
        self._mask: int = (zero << 1) & ((1 << 128) - 1) ^ (0x87 if zero >> 127 else 0)

    def encrypt(self, nonce: bytes, plain: bytes, bound: bytes) -> bytes:
        return self._derived(nonce).encrypt(nonce[12:], plain, bound)

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes) -> bytes | None:
        try:
            return self._derived(nonce).decrypt(nonce[12:], sealed, bound)
        except self._failure:
            return None

    def _derived(self, nonce: bytes) -> AESGCM:
        blocks = [int.from_bytes(bytes((0, number, 0x58, 0)) + nonce[:12], "big") for number in (1, 2)]
        masked = b"".join((block ^ self._mask).to_bytes(16, "big") for block in blocks)
        return self._aes_gcm(self._block(masked))


# --- the records of a store ------------------------------------------------------------------------------------------

Mode: TypeAlias = Literal["open", "sealed"]


class Records:
    """Guards the records of one store: each is bound to its name, by a digest, and under a seal by the key."""

    __slots__ = ("mode", "sealing", "store")

    def __init__(self, store: str, sealing: AesGcmSealing | None) -> None:
        self.store: Final = store
        """The kind of store; sealing is bound to it."""
        self.sealing: Final = sealing
        self.mode: Final[Mode] = "open" if sealing is None else "sealed"

    def ensure_mode(self, found: object) -> None:
        """Refuse to write records of one mode into a store of another."""
        if found == self.mode:
            return
        if found == "sealed":
            message = "The store is sealed and was opened without a key."
            raise SnapshotSealError(message, hint="Open it with the key that it is sealed with: sealing=….")
        if found == "open":
            message = "The store was opened with a key, but holds conversations that are not sealed."
            raise ConfigurationError(message, hint=_COPY)
        message = "The store does not say whether it is sealed: it is damaged."
        raise StoreError(message, hint="Restore it from a copy.")

    def ensure_key(self, found: object) -> None:
        """Refuse to list a sealed store without a key: rather one error than a page of them."""
        if found == "sealed":
            self.ensure_mode(found)

    # --- records of any kind; `name` says which one it is ------------------------------------------------------------

    def seal(self, data: bytes, *name: str | int) -> bytes:
        """What is kept of a record, which is JSON."""
        about = self._about(name)
        record = b'{"check":"%s","record":%s}' % (_digest(data, about).encode(), data)
        return record if self.sealing is None else self.sealing.seal(record, about=about)

    def unseal(self, data: bytes, *name: str | int) -> bytes:
        """The record of this name. Raises SnapshotCorruptError if it is not the one that was sealed under it."""
        about = self._about(name)
        if self.sealing is not None:
            data = self.sealing.unseal(data, about=about)
        elif is_sealed(data):
            message = f"The record is sealed with key {sealed_with(data)} and the store was opened without a key."
            raise SnapshotSealError(message, hint="Open the store with sealing=AesGcmSealing(key).")
        try:
            kept = _kept.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SnapshotCorruptError(f"The record cannot be read: {str(error).rstrip('.')}.") from None
        record = bytes(kept.record)
        if kept.check != _digest(record, about):
            raise SnapshotCorruptError("The record is not what was written, or belongs to another place.")
        return record

    def _about(self, name: tuple[str | int, ...]) -> bytes:
        return "/".join(["dragoman.store", "1", self.store, *map(str, name)]).encode()

    def seal_entry(self, entry: JournalEntry, root: str, newest: str, position: int) -> bytes:
        # Bound to the snapshot it follows: entries of an earlier time do not pass for later ones.
        return self.seal(entry_to_json(entry), "entry", root, newest, position)

    def read_entry(self, data: bytes, root: str, newest: str, position: int) -> JournalEntry:
        return entry_from_json(self.unseal(data, "entry", root, newest, position))


class _Kept(Struct, frozen=True):
    check: str
    record: Raw


_kept = msgspec.json.Decoder(_Kept)


def _digest(record: bytes, about: bytes) -> str:
    """Tells damage: not every disk and database notices when bytes change, or come to stand in another place."""
    return hashlib.sha256(about + b"\n" + record).hexdigest()[:32]
