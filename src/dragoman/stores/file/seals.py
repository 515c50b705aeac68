"""Parts of records between the files and us: sealed and opened, each under its own name.

Owns: how each kind of part is named for sealing, and which are sealed in which mode.
Must not know: where a part is kept.

A store is in one of three modes. `open`: nothing is sealed. `plain`: everything is, but the summaries that lists show.
`sealed`: everything is.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw

from dragoman.errors import ConfigurationError, SnapshotCorruptError, SnapshotSealError
from dragoman.stores.entries import JournalEntry, entry_from_json
from dragoman.stores.rows import Body, body_from_json, row_name
from dragoman.stores.sealing import PLAIN, Sealing, is_sealed
from dragoman.stores.summary import SnapshotSummary, summary_from_json, summary_to_json

from .frames import Batch

__all__ = ["Listing", "Mode", "Seals"]

Listing: TypeAlias = Literal["plain", "sealed"]
Mode: TypeAlias = Literal["open", "plain", "sealed"]

_elements = msgspec.json.Decoder(list[Raw])


class Seals:
    """Seals and opens the parts of one store's records. `store` is the id of the store, to which all are bound."""

    __slots__ = ("mode", "sealing")

    def __init__(self, sealing: Sealing | None, listing: Listing) -> None:
        if listing not in {"plain", "sealed"}:
            message = f"listing says what lists show without a key: 'plain' or 'sealed', not {listing!r}."
            raise ConfigurationError(message)
        self.sealing: Final[Sealing] = PLAIN if sealing is None else sealing
        self.mode: Final[Mode] = "open" if sealing is None else listing

    def ensure(self, mode: Mode) -> None:
        """Refuse to write records of our mode into a store of another."""
        if mode == self.mode:
            return
        if self.mode == "open":
            message = "The store is sealed and was opened without a key."
            raise SnapshotSealError(message, hint="Open it with the key that it is sealed with: sealing=….")
        if mode == "open":
            message = "The store was opened with a key, but is one that is not sealed."
            hint = "Seal it first: reseal(store) with AesGcmSealing(key, accept_plain=True); or use another directory."
            raise ConfigurationError(message, hint=hint)
        message = f"The store was made with listing={mode!r} and opened with listing={self.mode!r}."
        raise ConfigurationError(message, hint=f"Open it with listing={mode!r}, or change it with reseal(store).")

    # --- records -----------------------------------------------------------------------------------------------------

    def sealed(self, store: str, what: str, data: bytes, id: str, *place: int) -> bytes:
        return self.sealing.seal(data, about=row_name(f"file/{store}", what, id, *place))

    def opened(self, store: str, what: str, data: bytes, id: str, *place: int) -> bytes:
        return self.sealing.unseal(data, about=row_name(f"file/{store}", what, id, *place))

    def sealed_summary(self, store: str, summary: SnapshotSummary, position: int) -> bytes:
        data = summary_to_json(summary)
        return self.sealed(store, "summary", data, summary.id, position) if self.mode == "sealed" else data

    def summary(self, store: str, data: bytes, id: str, position: int) -> SnapshotSummary:
        if self.mode == "sealed" or is_sealed(data):
            data = self.opened(store, "summary", data, id, position)
        summary = summary_from_json(data)
        if summary.id != id:
            raise SnapshotCorruptError(f"The summary of {id} is that of another snapshot.")
        return summary

    def body(self, store: str, data: bytes, id: str, position: int) -> Body:
        return body_from_json(self.opened(store, "body", data, id, position))

    def sealed_messages(self, store: str, rows: list[bytes], id: str, position: int) -> bytes:
        return self.sealed(store, "messages", b"[" + b",".join(rows) + b"]", id, position)

    def messages(self, store: str, data: bytes, id: str, position: int) -> list[bytes]:
        return _split(self.opened(store, "messages", data, id, position), "messages")

    def is_current(self, parts: tuple[bytes, bytes, bytes]) -> bool:
        """Whether a record of these parts would be written the same way today."""
        summary, *others = parts
        shown = self.sealing.is_current(summary) if self.mode == "sealed" else not is_sealed(summary)
        return shown and all(map(self.sealing.is_current, others))

    # --- the journal -------------------------------------------------------------------------------------------------

    def sealed_entries(self, store: str, root: str, newest: str, after: int, entries: list[bytes]) -> bytes:
        # Bound to the snapshot they follow: entries of an earlier time do not pass for later ones.
        data = b"[" + b",".join(entries) + b"]"
        return self.sealed(store, f"entries/{root}", data, newest, after, len(entries))

    def raw_entries(self, store: str, root: str, batch: Batch, payload: bytes) -> list[bytes]:
        data = self.opened(store, f"entries/{root}", payload, batch.snapshot, batch.after, batch.count)
        found = _split(data, "journal")
        if len(found) != batch.count:
            raise SnapshotCorruptError("The journal does not hold as many entries as it says.")
        return found

    def entries(self, store: str, root: str, batch: Batch, payload: bytes) -> list[JournalEntry]:
        return [entry_from_json(each) for each in self.raw_entries(store, root, batch, payload)]


def _split(data: bytes, what: str) -> list[bytes]:
    try:
        return [bytes(each) for each in _elements.decode(data)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        message = f"The stored {what} cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(message) from None
