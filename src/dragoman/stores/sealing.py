"""Sealing: what a store asks of whoever seals its records, and which records it has sealed.

Owns: the protocol Sealing; PLAIN, which seals nothing; Records, which names, seals and opens the records of a store.
Must not know: a cipher, a key, where a record is kept.

A store hands over each record with `about`: bytes that say which record of which store it is. They are not written;
they are bound to the sealed form, so that a record cannot be put in another's place.

A store is in one of two modes. `open`: nothing is sealed. `sealed`: everything is, also what lists show.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from dragoman.errors import ConfigurationError, SnapshotCorruptError, SnapshotSealError, StoreError

from .journal import JournalEntry, entry_from_json, entry_to_json
from .listing import SnapshotSummary, summary_from_json, summary_of, summary_to_json
from .snapshot import Snapshot

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


# --- the records of a store ------------------------------------------------------------------------------------------

Mode: TypeAlias = Literal["open", "sealed"]


class Records:
    """Seals and opens the records of one store."""

    __slots__ = ("mode", "sealing", "store")

    def __init__(self, store: str, sealing: Sealing | None) -> None:
        self.store: Final = store
        """The kind of store; sealing is bound to it."""
        self.sealing: Final[Sealing] = PLAIN if sealing is None else sealing
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
            hint = "Seal them first with reseal(store), using a sealing that accepts plain records, or use a new store."
            raise ConfigurationError(message, hint=hint)
        message = "The store does not say whether it is sealed: it is damaged."
        raise StoreError(message, hint="Restore it from a copy.")

    # --- records of any kind; `name` says which one it is ------------------------------------------------------------

    def seal(self, data: bytes, *name: str | int) -> bytes:
        return self.sealing.seal(data, about=self._about(name))

    def unseal(self, data: bytes, *name: str | int) -> bytes:
        return self.sealing.unseal(data, about=self._about(name))

    def reseal(self, data: bytes, *name: str | int) -> bytes:
        """The record under the key that is written now; the very same bytes if it is so already."""
        return data if self.sealing.is_current(data) else self.seal(self.unseal(data, *name), *name)

    def _about(self, name: tuple[str | int, ...]) -> bytes:
        return "/".join(["dragoman.store", "1", self.store, *map(str, name)]).encode()

    # --- summaries and entries ---------------------------------------------------------------------------------------

    def seal_summary(self, snapshot: Snapshot) -> bytes:
        return self.seal(summary_to_json(summary_of(snapshot)), "summary", snapshot.id)

    def read_summary(self, data: bytes, id: str) -> SnapshotSummary:
        summary = summary_from_json(self.unseal(data, "summary", id))
        if summary.id != id:
            message = f"The summary of {id} is that of another snapshot."
            raise SnapshotCorruptError(message)
        return summary

    def seal_entry(self, entry: JournalEntry, root: str, newest: str, position: int) -> bytes:
        # Bound to the snapshot it follows: entries of an earlier time do not pass for later ones.
        return self.seal(entry_to_json(entry), "entry", root, newest, position)

    def read_entry(self, data: bytes, root: str, newest: str, position: int) -> JournalEntry:
        return entry_from_json(self.unseal(data, "entry", root, newest, position))
