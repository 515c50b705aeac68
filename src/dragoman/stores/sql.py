"""SqlStore: everything that the stores on SQLite and PostgreSQL share.

Owns: what each method of a store does with the tables (see sql_schema.py).
Must not know: drivers, connections, when a transaction begins and ends.

Rows may have been damaged or edited, so everything that is read is checked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, ClassVar, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, structs

from dragoman._decoding import decode_as
from dragoman.conversation import Message, memory_of, message_from_json, message_to_json
from dragoman.errors import MalformedDataError, SnapshotCorruptError, StoreError
from dragoman.providers import conversation_cost

from . import listing, protocol, sql_schema as schema
from .journal import Journal, JournalEntry
from .listing import Page, Query, SnapshotSummary, Unreadable
from .protocol import ConversationStore
from .sealing import AesGcmSealing, Records
from .snapshot import (
    ID_PATTERN,
    UNREADABLE,
    Snapshot,
    corrupt,
    family_of,
    is_inner,
    snapshot_from_json,
    snapshot_to_json,
    validate_snapshot_id,
)
from .sql_schema import Rows, Session, convert

_T = TypeVar("_T")

_Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Id = Annotated[str, Meta(pattern=rf"\A{ID_PATTERN}\Z")]
_LAST_PLACE: Final = 2**62
_MAX_QUERIES: Final = 20
"""How many queries a page may take while the filters reject rows; after that the page is short."""


class SqlStore(ConversationStore):
    """A store in a database. Subclasses run its work in transactions and translate the errors of their driver."""

    _contains: ClassVar[str]
    """The condition that the text of a row `w` of words contains a value."""

    def __init__(self, kind: str, sealing: AesGcmSealing | None) -> None:
        self.can_search: bool = sealing is None
        self._records: Final = Records(kind, sealing)

    @abstractmethod
    def _read(self, work: Callable[[Session], _T]) -> _T:
        """Run work that only reads. Each of its statements sees the database at one moment."""

    @abstractmethod
    def _write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        """Run the work in one transaction, which is on disk when this returns.

        `repeatable`: whether it may run again if it is unknown whether it was committed.
        """

    # --- saving ------------------------------------------------------------------------------------------------------

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        body = _body_to_json(snapshot)  # fails before the transaction begins
        id, root, parent = snapshot.id, snapshot.root, snapshot.parent

        def work(session: Session) -> None:
            begun = parent is None and session.change(schema.ADD_CHAIN, root, id)
            locked = session.fetch(schema.LOCK_CHAIN, root)
            newest, place, position = convert(locked[0], tuple[str, int, int]) if locked else (None, 0, 0)
            [state] = session.fetch(schema.STATE, id, parent, root)
            mode, stored, parent_root, last_line = convert(state, tuple[object, bytes | None, str | None, int])
            if stored is not None:
                if not _is_same(self._records.unseal(stored, "body", id), body):
                    raise protocol.id_taken(id)
                return
            if parent is not None:
                protocol.check_parent(snapshot, parent_root, newest)
            elif not begun:
                raise protocol.id_taken(id)
            self._records.ensure_mode(mode)
            protocol.check_position(root, after, position)
            self._add_snapshot(session, snapshot, body, place + 1, last_line)
            session.change(schema.MOVE_CHAIN, id, place + 1, root)
            if position:
                session.change(schema.END_JOURNAL, root)

        self._write(work)

    def _add_snapshot(self, session: Session, snapshot: Snapshot, body: bytes, place: int, last_line: int) -> None:
        id, root, records, length = snapshot.id, snapshot.root, self._records, len(snapshot.messages)
        line, written = self._choose_line(session, snapshot) or (last_line + 1, 0)
        sealed = records.seal(body, "body", id)
        if not session.change(schema.ADD_SNAPSHOT, id, root, place, line, length, sealed):
            raise protocol.id_taken(id)  # in another conversation
        new = snapshot.messages[written:]
        rows = [
            (root, line, position, records.seal(data, "message", root, line, position))
            for position, data in enumerate(map(message_to_json, new), written)
        ]
        if rows:
            session.change_many(schema.ADD_MESSAGE, rows)
        # A damaged index may lose new rows; find out before the save is acknowledged.
        [[count]] = session.fetch("SELECT count(*) FROM {s}message WHERE root = ? AND line = ?", root, line)
        if count != length:
            message = f"Messages of conversation {root} are missing."
            raise SnapshotCorruptError(message)
        if self.can_search and (texts := [text for text in map(listing.searchable_text, new) if text]):
            session.change_many(schema.ADD_WORDS, [(root, text.encode()) for text in texts])

    def _choose_line(self, session: Session, snapshot: Snapshot) -> tuple[int, int] | None:
        """The line and the length of the parent's messages, if the snapshot only adds to them."""
        for row in session.fetch(schema.PARENT, snapshot.parent):
            data, line, length, end = convert(row, tuple[bytes, int, int, int])
            # If the parent is damaged, the whole history is written again.
            with suppress(SnapshotCorruptError):
                parent = _body_from_json(self._records.unseal(data, "body", str(snapshot.parent)))
                if parent.count == length == end and _digest_after(snapshot.messages[:length]) == parent.digest:
                    return line, length
        return None

    def delete(self, id: str) -> None:
        validate_snapshot_id(id)

        def work(session: Session) -> None:
            root, *_ = self._lock_chain(session, id)
            parts = () if is_inner(root) else session.fetch(schema.PARTS, f"{family_of(root)}%")
            for (each,) in (*parts, (root,)):
                for table in schema.OF_A_CHAIN:
                    session.change(f"DELETE FROM {{s}}{table} WHERE root = ?", each)  # noqa: S608 - our own names

        self._write(work, repeatable=False)

    def _lock_chain(self, session: Session, id: str) -> tuple[str, str, int, object]:
        """Lock a conversation; returns its root, newest snapshot and length of the journal, and the store's mode."""
        locked = session.fetch(schema.LOCK_CHAIN_OF, id)
        if not locked:
            raise protocol.not_found(id)
        return convert(locked[0], tuple[str, str, int, object])

    # --- loading -----------------------------------------------------------------------------------------------------

    def load(self, id: str) -> Snapshot:
        validate_snapshot_id(id)
        return self._read(lambda session: self._load(session, id))

    def _load(self, session: Session, id: str) -> Snapshot:
        rows = session.fetch(schema.LOAD_THIS, id)
        if not rows:
            raise protocol.not_found(id)
        return self._assemble(rows)

    def latest(self, id: str) -> Snapshot:
        validate_snapshot_id(id)

        def work(session: Session) -> Snapshot:
            rows = session.fetch(schema.LOAD_NEWEST, id)
            if not rows:
                self._load(session, id)  # raises SnapshotNotFoundError if this one does not exist either
                message = f"The newest snapshot of the conversation of {id} is missing."
                raise SnapshotCorruptError(message, hint="Older ones can still be loaded by their ids, see history().")
            return self._assemble(rows)

        return self._read(work)

    def _assemble(self, rows: Rows) -> Snapshot:
        (_, id, root, line, data), *others = [convert(row, tuple[int, str, str, int, bytes]) for row in rows]
        body = _body_from_json(self._records.unseal(data, "body", id))
        return _assemble(body, [self._records.unseal(data, "message", root, line, at) for at, _, _, _, data in others])

    # --- the journal -------------------------------------------------------------------------------------------------

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        validate_snapshot_id(id)
        new = tuple(entries)

        def work(session: Session) -> int:
            root, newest, position, mode = self._lock_chain(session, id)
            protocol.check_newest(id, newest)
            self._records.ensure_mode(mode)
            protocol.check_position(root, after, position)
            rows = [
                (root, number, self._records.seal_entry(entry, root, newest, number))
                for number, entry in enumerate(new, after + 1)
            ]
            if rows:
                session.change_many(schema.ADD_ENTRY, rows)
                session.change(schema.MOVE_JOURNAL, after + len(rows), root)
            return after + len(rows)

        return self._write(work, repeatable=False)

    def journal(self, id: str) -> Journal:
        validate_snapshot_id(id)

        def work(session: Session) -> Journal:
            rows = session.fetch(schema.JOURNAL, id)
            if not rows:
                raise protocol.not_found(id)
            root, newest, length = convert(rows[0][:3], tuple[str, str, int])
            if id not in (root, newest) and self._load(session, id).root != root:
                message = f"Snapshot {id} is stored in a conversation that it does not belong to."
                raise SnapshotCorruptError(message)
            found = [convert(row[3:], tuple[int, bytes]) for row in rows if row[3] is not None]
            if len(found) != length or any(position != each for each, (position, _) in enumerate(found, 1)):
                raise protocol.lost_entries(root, length)
            entries = [self._records.read_entry(data, root, newest, position) for position, data in found]
            return Journal(snapshot=newest, entries=tuple(entries))

        return self._read(work)

    # --- lists -------------------------------------------------------------------------------------------------------

    def list(
        self, *, provider: str | None = None, text: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        query = Query(provider=provider, text=text, limit=limit, cursor=cursor)
        return self._read(lambda session: self._list_page(session, query))

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        if not self.can_search:
            message = "A sealed store cannot be searched: an index would hold the words of every message unencrypted."
            raise StoreError(message, hint="Use list(text=...), which searches titles.")
        query = Query(search=text, limit=limit, cursor=cursor)
        return self._read(lambda session: self._list_page(session, query))

    def _list_page(self, session: Session, query: Query) -> Page:
        behind = None if query.cursor is None else listing.read_cursor(query.kind, query.cursor, tuple[_Number, _Id])
        self._records.ensure_key(self._mode(session))
        condition, values = "true", tuple[object, ...]()
        if query.search is not None:
            words = listing.search_words(query.search)
            if not words:
                return Page()
            contains = " AND ".join([self._contains] * len(words))
            values = tuple([word.encode("utf-8", "surrogatepass") for word in words])
            condition = f"c.root IN (SELECT w.root FROM {{s}}words w WHERE {contains})"  # noqa: S608 - our own SQL
        accepted: list[SnapshotSummary | Unreadable] = []
        for _ in range(_MAX_QUERIES):
            position = "true" if behind is None else "(c.rank, c.root) < (?, ?)"
            sql = schema.LIST.replace("CONDITION", f"{position} AND {condition}")
            rows = session.fetch(sql, *(behind or ()), *values, query.limit + 1)
            for row in rows:
                rank, root, id, data = convert(row, tuple[int, str, str, object])
                if len(accepted) == query.limit:
                    return listing.page_of(accepted, listing.make_cursor(query.kind, behind or ()))
                behind = (rank, root)
                summary = self._read_summary(id, data)
                if query.accepts(summary):
                    accepted.append(summary)
            if len(rows) <= query.limit:
                return listing.page_of(accepted, None)
        return listing.page_of(accepted, listing.make_cursor(query.kind, behind or ()))

    def _read_summary(self, id: str, data: object) -> SnapshotSummary | Unreadable:
        def read() -> SnapshotSummary:
            if data is None:
                raise SnapshotCorruptError("The snapshot is missing.")
            return _summary_of_body(_body_from_json(self._records.unseal(convert(data, bytes), "body", id)))

        return listing.read_or_note(id, read)

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        validate_snapshot_id(id)
        listing.check_limit(limit)

        def work(session: Session) -> Page:
            roots = session.fetch("SELECT root FROM {s}snapshot WHERE id = ?", id)
            if not roots:
                raise protocol.not_found(id)
            root = convert(roots[0][0], str)
            kind = f"history {root}"
            [behind] = (_LAST_PLACE,) if cursor is None else listing.read_cursor(kind, cursor, tuple[_Number])
            self._records.ensure_key(self._mode(session))
            rows = session.fetch(schema.HISTORY, root, behind, limit + 1)
            found = [convert(row, tuple[int, str, object]) for row in rows]
            more = listing.make_cursor(kind, (found[limit - 1][0],)) if len(found) > limit else None
            return listing.page_of([self._read_summary(each, data) for _, each, data in found[:limit]], more)

        return self._read(work)

    def _mode(self, session: Session) -> object:
        [[mode]] = session.fetch(f"SELECT {schema.MODE}")
        return mode


# --- snapshots in rows ----------------------------------------------------------------------------------------------

# Each message is stored once, in its own row, and of every snapshot the body: everything but its messages. A running
# digest after n messages identifies exactly these n messages in this order. The body holds the digest of its history,
# so the parent's body alone shows whether a new history only adds to it, and loading can verify the rows that it finds.
# Messages never change, so each keeps its digest in its memory.

_EMPTY: Final = sha256(b"dragoman.messages").digest()
"""The running digest of no messages."""

_MEMORY: Final = "stores.digest"


class _Body(Struct, frozen=True, omit_defaults=True):
    """A snapshot without its messages."""

    count: int
    """The number of messages."""
    digest: bytes
    """The running digest after them."""
    snapshot: Raw
    """Its JSON document, with an empty conversation."""
    cost: float | None = None
    """The cost of its replies, as known when it was saved."""


def _digest_after(messages: Iterable[Message], before: bytes = _EMPTY) -> bytes:
    for message in messages:
        known = memory_of(message).get(_MEMORY)
        if known is None or known[0] != before:
            known = memory_of(message)[_MEMORY] = (before, _next_digest(before, message_to_json(message)))
        before = known[1]
    return before


def _next_digest(before: bytes, row: bytes) -> bytes:
    return sha256(before + sha256(row).digest()).digest()


def _body_to_json(snapshot: Snapshot) -> bytes:
    conversation = snapshot.conversation
    document = snapshot_to_json(structs.replace(snapshot, conversation=conversation.up_to(0)))
    messages = conversation.messages
    cost = conversation_cost(messages)
    return msgspec.json.encode(_Body(len(messages), _digest_after(messages), Raw(document), cost))


def _is_same(stored: bytes, body: bytes) -> bool:
    """Whether these are bodies of the same snapshot; another version of the library may know another cost."""
    one, other = (structs.replace(_body_from_json(each), cost=None) for each in (stored, body))
    return one == other


def _body_from_json(data: bytes) -> _Body:
    """Parse what `_body_to_json` wrote. Raises SnapshotCorruptError."""
    try:
        return decode_as(data, _Body)
    except UNREADABLE as error:
        raise corrupt(error) from None


def _summary_of_body(body: _Body) -> SnapshotSummary:
    try:
        head = decode_as(body.snapshot, SnapshotSummary)
    except UNREADABLE as error:
        raise corrupt(error) from None
    return structs.replace(head, message_count=body.count, cost=body.cost)


def _assemble(body: _Body, rows: Sequence[bytes]) -> Snapshot:
    """Combine a body with its messages, as `message_to_json` wrote them.

    Raises SnapshotCorruptError if they do not belong together, SnapshotVersionError for a newer format.
    """
    snapshot, messages, digest = snapshot_from_json(bytes(body.snapshot)), list[Message](), _EMPTY
    for row in rows:
        try:
            messages.append(message_from_json(row))
        except MalformedDataError as error:
            raise corrupt(error) from None
        before, digest = digest, _next_digest(digest, row)
        memory_of(messages[-1])[_MEMORY] = (before, digest)
    if len(rows) != body.count or digest != body.digest:
        message = f"The messages of the snapshot are not the saved ones ({len(rows)} of {body.count} found)."
        raise SnapshotCorruptError(message)
    return structs.replace(snapshot, conversation=snapshot.conversation.plus(*messages))
