"""The system's keychain: the only import of the keyring library, and what its failures mean.

An entry is `service/user`; `user` alone means the service `dragoman`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from dragoman.errors import KeychainError

SERVICE: Final = "dragoman"

_INSTEAD: Final = "or keep the key in an environment variable"


def read_entry(entry: str) -> str | None:
    """The secret of an entry; None if there is none."""
    service, user = _split_entry(entry)
    with _open_keyring(entry) as keyring:
        found: object = keyring.get_password(service, user)
    return found if isinstance(found, str) and found else None


def write_entry(entry: str, secret: str) -> None:
    """Put a secret into the keychain, in the place of what was there."""
    service, user = _split_entry(entry)
    with _open_keyring(entry) as keyring:
        keyring.set_password(service, user, secret)


def delete_entry(entry: str) -> None:
    """Take an entry out, if it is there."""
    service, user = _split_entry(entry)
    with _open_keyring(entry) as keyring:
        if keyring.get_password(service, user) is not None:
            keyring.delete_password(service, user)


def _split_entry(text: str) -> tuple[str, str]:
    service, slash, user = text.rpartition("/")
    service = service if slash else SERVICE
    if not service.strip() or not user.strip():
        message = f"{text!r} does not name an entry of the keychain."
        raise KeychainError(message, reason="refused", hint="Write service/user, or user alone.")
    return service, user


@contextmanager
def _open_keyring(entry: str) -> Generator[Any]:
    """The library, its failures turned into ours. The text of a failure is not repeated: it may hold the secret."""
    try:
        import keyring
        from keyring import errors
    except ImportError:
        message = "The keychain needs the library keyring, which is not installed."
        hint = f"Install it with pip install 'dragoman[keyring]', {_INSTEAD}."
        raise KeychainError(message, reason="not_installed", hint=hint) from None
    try:
        yield keyring
    except errors.KeyringLocked:
        message = f"The keychain is locked; the entry {entry!r} cannot be used."
        raise KeychainError(message, reason="locked", hint=f"Unlock it, {_INSTEAD}.") from None
    except (errors.NoKeyringError, errors.InitError):
        message = "This machine has no keychain that could be used."
        hint = f"Start one (on Linux a Secret Service such as gnome-keyring), {_INSTEAD}."
        raise KeychainError(message, reason="no_backend", hint=hint) from None
    except (errors.PasswordSetError, errors.PasswordDeleteError):
        message = f"The keychain refuses to change the entry {entry!r}."
        raise KeychainError(message, reason="refused", hint=f"Check its permissions, {_INSTEAD}.") from None
    except Exception as error:  # noqa: BLE001 -- backends raise whatever their system's library raises
        message = f"The keychain failed at the entry {entry!r} ({type(error).__name__})."
        raise KeychainError(message, reason="failed", hint=f"Check that it works at all, {_INSTEAD}.") from None
