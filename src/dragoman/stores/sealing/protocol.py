"""What a store asks of whoever seals its records, and the answer of a store that seals nothing.

Owns: the protocol Sealing, PLAIN, and how sealed bytes are told from plain ones.
Must not know: a cipher, a key, a store.

A store hands over each record with `about`: bytes that say which record of which store it is. They are not written;
they are bound to the sealed form, so that a record cannot be put in another's place.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from dragoman.errors import SnapshotSealError

__all__ = ["MAGIC", "PLAIN", "PlainSealing", "Sealing", "is_sealed", "sealed_with"]

MAGIC: Final = b"\xd7DGS"
"""How sealed bytes begin. The first is no beginning of UTF-8 text, so nothing plain is ever taken for sealed."""
_KEY_ID: Final = slice(len(MAGIC) + 1, len(MAGIC) + 9)


@runtime_checkable
class Sealing(Protocol):
    """Turns plain bytes into sealed ones and back. Safe to use from several threads."""

    def seal(self, plain: bytes, *, about: bytes) -> bytes:
        """The sealed form of one record; another one each time."""
        ...

    def unseal(self, data: bytes, *, about: bytes) -> bytes:
        """The plain bytes of a record.

        Raises SnapshotSealError where the key is missing and SnapshotCorruptError where the bytes were cut, edited or
        belong to another record.
        """
        ...

    def is_current(self, data: bytes) -> bool:
        """Whether `seal` would use the same key: if not, resealing the record is worth while."""
        ...


class PlainSealing:
    """No sealing: bytes stay as they are. Sealed ones are refused by name of their key."""

    def seal(self, plain: bytes, *, about: bytes) -> bytes:
        return plain

    def unseal(self, data: bytes, *, about: bytes) -> bytes:
        if not is_sealed(data):
            return data
        message = f"The record is sealed{_named(sealed_with(data))} and the store was opened without a key."
        raise SnapshotSealError(message, hint="Open the store with sealing=AesGcmSealing(key).")

    def is_current(self, data: bytes) -> bool:
        # Sealed records are not what `seal` would write, but without their key nothing can be done about it.
        return not is_sealed(data)

    def __repr__(self) -> str:
        return "PLAIN"


PLAIN: Final = PlainSealing()
"""What a store uses where no sealing is asked for."""


def is_sealed(data: bytes) -> bool:
    """Whether these bytes are in a sealed form (of any version)."""
    return data.startswith(MAGIC)


def sealed_with(data: bytes) -> str | None:
    """The id of the key that the bytes claim to be sealed with; None if they are too short or not sealed."""
    key_id = data[_KEY_ID]
    return key_id.hex() if is_sealed(data) and len(key_id) == 8 else None


def _named(key_id: str | None) -> str:
    return f" with key {key_id}" if key_id else ""
