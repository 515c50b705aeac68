"""Sealing: what a store asks of whoever seals its records, and which records it has sealed.

Owns: the protocol Sealing; PLAIN, which seals nothing; Records, which names, seals and opens the records of a store;
`reseal`, which walks through a store that got another key.
Must not know: a cipher, a key, where a record is kept.

A store hands over each record with `about`: bytes that say which record of which store it is. They are not written;
they are bound to the sealed form, so that a record cannot be put in another's place.

A store is in one of three modes. `open`: nothing is sealed. `plain`: everything is, but the summaries that lists show.
`sealed`: everything is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from dragoman.errors import ConfigurationError, SnapshotCorruptError, SnapshotSealError, StoreError

from .journal import JournalEntry, entry_from_json, entry_to_json
from .protocol import AsyncConversationStore, ConversationStore, Resealed
from .snapshot import Snapshot
from .summary import SnapshotSummary, summary_from_json, summary_of, summary_to_json

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

Listing: TypeAlias = Literal["plain", "sealed"]
Mode: TypeAlias = Literal["open", "plain", "sealed"]

_MODES: Final = frozenset({"open", "plain", "sealed"})


class Records:
    """Seals and opens the records of one store."""

    __slots__ = ("mode", "sealing", "store")

    def __init__(self, store: str, sealing: Sealing | None, listing: Listing) -> None:
        if listing not in {"plain", "sealed"}:
            message = f"listing is 'plain' or 'sealed', not {listing!r}."
            raise ConfigurationError(message)
        self.store: Final = store
        """The kind of store; sealing is bound to it."""
        self.sealing: Final[Sealing] = PLAIN if sealing is None else sealing
        self.mode: Final[Mode] = "open" if sealing is None else listing

    def ensure_mode(self, found: object) -> None:
        """Refuse to write records of one mode into a store of another."""
        if found == self.mode:
            return
        if found not in _MODES:
            message = "The store does not say whether it is sealed: it is damaged."
            raise StoreError(message, hint="Restore it from a copy.")
        if self.mode == "open":
            message = "The store is sealed and was opened without a key."
            raise SnapshotSealError(message, hint="Open it with the key that it is sealed with: sealing=….")
        if found == "open":
            message = "The store was opened with a key, but holds conversations that are not sealed."
            hint = "Seal them first with reseal(store), using a sealing that accepts plain records, or use a new store."
            raise ConfigurationError(message, hint=hint)
        message = f"The store was made with listing={found!r} and opened with listing={self.mode!r}."
        raise ConfigurationError(message, hint=f"Open it with listing={found!r}, or change it with reseal(store).")

    def ensure_readable_lists(self, found: object) -> None:
        """Refuse to list a store whose summaries are sealed without the key: rather one error than a page of them."""
        if self.mode == "open" and found == "sealed":
            self.ensure_mode(found)

    def ensure_changeable(self, found: object) -> None:
        """Refuse to reseal a store that is sealed without its key, or that is damaged."""
        if self.mode == "open" or found not in _MODES:
            self.ensure_mode(found)

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
        data = summary_to_json(summary_of(snapshot))
        return self.seal(data, "summary", snapshot.id) if self.mode == "sealed" else data

    def read_summary(self, data: bytes, id: str) -> SnapshotSummary:
        if self.mode == "sealed" or is_sealed(data):
            data = self.unseal(data, "summary", id)
        summary = summary_from_json(data)
        if summary.id != id:
            message = f"The summary of {id} is that of another snapshot."
            raise SnapshotCorruptError(message)
        return summary

    def reseal_summary(self, data: bytes, id: str) -> bytes:
        if self.mode == "sealed":
            return self.reseal(data, "summary", id)
        return self.unseal(data, "summary", id) if is_sealed(data) else data

    def seal_entry(self, entry: JournalEntry, root: str, newest: str, position: int) -> bytes:
        # Bound to the snapshot it follows: entries of an earlier time do not pass for later ones.
        return self.seal(entry_to_json(entry), "entry", root, newest, position)

    def read_entry(self, data: bytes, root: str, newest: str, position: int) -> JournalEntry:
        return entry_from_json(self.unseal(data, "entry", root, newest, position))

    def reseal_entry(self, data: bytes, root: str, newest: str, position: int) -> bytes:
        return self.reseal(data, "entry", root, newest, position)


# --- another key -----------------------------------------------------------------------------------------------------

Progress: TypeAlias = Callable[[Resealed], None]

_STEP: Final = 20
"""Conversations between two looks at the progress."""


def reseal(store: ConversationStore, *, progress: Progress | None = None, cursor: str | None = None) -> Resealed:
    """Seal the whole store with the key that is written now, telling `progress` after every few conversations.

    This can be broken off anywhere, and `cursor` takes it up where it stood; others may save meanwhile. Raises what the
    store raises.
    """
    so_far = Resealed(cursor=cursor)
    while True:
        so_far = _add_up(so_far, store.reseal(limit=_STEP, cursor=so_far.cursor), progress)
        if so_far.cursor is None:
            return so_far


async def areseal(
    store: AsyncConversationStore, *, progress: Progress | None = None, cursor: str | None = None
) -> Resealed:
    """`reseal` for an async store."""
    so_far = Resealed(cursor=cursor)
    while True:
        so_far = _add_up(so_far, await store.reseal(limit=_STEP, cursor=so_far.cursor), progress)
        if so_far.cursor is None:
            return so_far


def _add_up(so_far: Resealed, step: Resealed, progress: Progress | None) -> Resealed:
    done, unreadable = so_far.done + step.done, so_far.unreadable + step.unreadable
    result = Resealed(done=done, total=max(step.total, done), unreadable=unreadable, cursor=step.cursor)
    if progress is not None:
        progress(result)
    return result
