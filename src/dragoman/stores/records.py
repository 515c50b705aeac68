"""Records of a store that keeps rows: sealed and opened, and checked for being what they should be.

Owns: how each kind of record is named for sealing, and which of them are sealed in which mode.
Must not know: where a record is kept.

A store is in one of three modes. `open`: nothing is sealed. `plain`: everything is, but the summaries that lists show.
`sealed`: everything is.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from dragoman.errors import ConfigurationError, SnapshotCorruptError, SnapshotSealError, StoreError

from .entries import JournalEntry, entry_from_json, entry_to_json
from .rows import Body, body_from_json, row_name
from .sealing.protocol import PLAIN, Sealing, is_sealed
from .snapshot import Snapshot
from .summary import SnapshotSummary, summary_from_json, summary_of, summary_to_json

__all__ = ["Listing", "Mode", "Records"]

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

    # --- records of any kind -----------------------------------------------------------------------------------------

    def sealed(self, data: bytes, what: str, id: str, *place: int) -> bytes:
        return self.sealing.seal(data, about=row_name(self.store, what, id, *place))

    def opened(self, data: bytes, what: str, id: str, *place: int) -> bytes:
        return self.sealing.unseal(data, about=row_name(self.store, what, id, *place))

    def resealed(self, data: bytes, what: str, id: str, *place: int) -> bytes | None:
        """The record under the key that is written now; None if it is so already."""
        if self.sealing.is_current(data):
            return None
        return self.sealed(self.opened(data, what, id, *place), what, id, *place)

    # --- bodies, summaries, entries ----------------------------------------------------------------------------------

    def body(self, data: bytes, id: str) -> Body:
        return body_from_json(self.opened(data, "body", id))

    def sealed_summary(self, snapshot: Snapshot) -> bytes:
        data = summary_to_json(summary_of(snapshot))
        return self.sealed(data, "summary", snapshot.id) if self.mode == "sealed" else data

    def summary(self, data: bytes, id: str) -> SnapshotSummary:
        if self.mode == "sealed" or is_sealed(data):
            data = self.opened(data, "summary", id)
        summary = summary_from_json(data)
        if summary.id != id:
            message = f"The summary of {id} is that of another snapshot."
            raise SnapshotCorruptError(message)
        return summary

    def resealed_summary(self, data: bytes, id: str) -> bytes | None:
        if self.mode == "sealed":
            return self.resealed(data, "summary", id)
        return self.opened(data, "summary", id) if is_sealed(data) else None

    def sealed_entry(self, entry: JournalEntry, root: str, newest: str, position: int) -> bytes:
        # Bound to the snapshot it follows: entries of an earlier time do not pass for later ones.
        return self.sealed(entry_to_json(entry), *_entry_name(root, newest), position)

    def entry(self, data: bytes, root: str, newest: str, position: int) -> JournalEntry:
        return entry_from_json(self.opened(data, *_entry_name(root, newest), position))

    def resealed_entry(self, data: bytes, root: str, newest: str, position: int) -> bytes | None:
        return self.resealed(data, *_entry_name(root, newest), position)


def _entry_name(root: str, newest: str) -> tuple[str, str]:
    return f"entry/{root}", newest
