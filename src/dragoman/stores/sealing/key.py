"""Keys that seal records, and where they come from.

Owns: EncryptionKey, which never shows itself; reading a key from bytes, from an environment variable and from the
keychain of the system; making a new one.
Must not know: how a key is used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, Protocol, cast

from dragoman.errors import ConfigurationError

__all__ = ["KEY_BYTES", "EncryptionKey", "Keychain", "generate_encryption_key"]

KEY_BYTES: Final = 32
_MAKE_ONE: Final = "Make a key with dragoman.generate_encryption_key() and keep it in a secret manager."
_TEXT_HINT: Final = "Write the 32 bytes of the key in base64 (44 characters) or in hex (64 characters)."
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{43}=?")


class Keychain(Protocol):
    """The part of the package `keyring` that is used here."""

    def get_password(self, service_name: str, username: str, /) -> str | None: ...


def generate_encryption_key() -> bytes:
    """A new random key of 32 bytes. A passphrase is no substitute for it."""
    return secrets.token_bytes(KEY_BYTES)


class EncryptionKey:
    """32 secret bytes that do not print, and the id by which records name them."""

    __slots__ = ("_secret", "id")

    def __init__(self, secret: bytes) -> None:
        _check(secret)
        self._secret: bytes = bytes(secret)
        # Derived with the key as key: whoever reads the id in a file learns nothing about the key itself.
        self.id: str = hmac.new(self._secret, b"dragoman key id", hashlib.sha256).digest()[:8].hex()
        """Written in the clear into every record that the key seals."""

    @classmethod
    def from_text(cls, text: str, *, source: str = "The text") -> EncryptionKey:
        """The key written in base64 (either alphabet) or hex. `source` names where it stood, for messages."""
        text = text.strip()
        if not text:
            raise ConfigurationError(f"{source} holds an empty encryption key.", hint=_MAKE_ONE)
        for form, decode in _DECODERS:
            if form.fullmatch(text):
                try:
                    return cls(decode(text))
                except binascii.Error:
                    break
        message = f"{source} does not hold an encryption key: {len(text)} characters that are neither form of 32 bytes."
        raise ConfigurationError(message, hint=_TEXT_HINT)

    @classmethod
    def from_environment(cls, name: str, *, environ: Mapping[str, str] | None = None) -> EncryptionKey:
        """The key in the variable of this name, in base64 or hex."""
        value = (os.environ if environ is None else environ).get(name)
        if value is None:
            raise ConfigurationError(f"There is no environment variable {name!r} with a key.", hint=_TEXT_HINT)
        return cls.from_text(value, source=f"The environment variable {name!r}")

    @classmethod
    def from_keychain(cls, service: str, account: str, *, keychain: Keychain | None = None) -> EncryptionKey:
        """The key in the keychain of the system, in base64 or hex. Needs the extra `keyring`."""
        place = f"The keychain's entry {account!r} of {service!r}"
        source = _system_keychain() if keychain is None else keychain
        try:
            value = source.get_password(service, account)
        except Exception as error:  # each keychain has errors of its own, and their texts are not ours to vouch for
            message = f"{place} cannot be read ({type(error).__name__})."
            hint = "Unlock the keychain, or give the key by an environment variable."
            raise ConfigurationError(message, hint=hint) from error
        if value is None:
            hint = f"Store a key there: keyring set {service} {account}. {_TEXT_HINT}"
            raise ConfigurationError(f"{place} does not exist.", hint=hint)
        return cls.from_text(value, source=place)

    def reveal(self) -> bytes:
        """The bytes themselves, for the cipher."""
        return self._secret

    def __repr__(self) -> str:
        return f"EncryptionKey(id={self.id!r})"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptionKey) and hmac.compare_digest(other._secret, self._secret)

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> NoReturn:
        message = "an encryption key is not pickled; let the other process read it from its own source"
        raise TypeError(message)


def _check(secret: bytes) -> None:
    if not isinstance(secret, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = f"An encryption key is bytes, not {type(secret).__name__}."
        raise ConfigurationError(message, hint="Use EncryptionKey.from_text for a key that is written as text.")
    if not secret:
        raise ConfigurationError("The encryption key is empty: nothing would be sealed.", hint=_MAKE_ONE)
    if len(secret) != KEY_BYTES:
        message = f"An encryption key has {KEY_BYTES} bytes, and this one {len(secret)}."
        raise ConfigurationError(message, hint=_MAKE_ONE)
    if not any(secret):
        # What a buffer holds that nobody has filled.
        raise ConfigurationError("The encryption key is all zeros.", hint=_MAKE_ONE)


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "+").replace("_", "/").rstrip("=") + "=", validate=True)


_DECODERS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...]] = (
    (_HEX, bytes.fromhex),
    (_BASE64, _from_base64),
)


def _system_keychain() -> Keychain:
    try:
        import keyring
    except ImportError as error:
        message = "Reading a key from the keychain needs the package `keyring`."
        raise ConfigurationError(message, hint="Install it: pip install 'dragoman[keyring]'.") from error
    return cast(Keychain, keyring)
