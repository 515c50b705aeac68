"""A store in an SQL database: what SQLite and PostgreSQL share, which is all but connections and a few words of SQL.

Owns: what each method of a store does with the tables (see sql_schema.py).
Must not know: drivers, connections, when a transaction begins and ends.

What comes out of a table may have been damaged or edited, so nothing in it is believed before it is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple, TypeVar, Unpack

from msgspec import Meta

from dragoman._stepping import step
from dragoman.conversation import message_to_json
from dragoman.errors import (
    DragomanError,
    InvalidCursorError,
    SnapshotCorruptError,
    StoreError,
)

from . import sql_schema as schema
from .journal import Journal, JournalEntry
from .json_form import assemble, body_from_json, body_to_json, digest_after
from .listing import (
    Filters,
    ListOptions,
    Page,
    PageBuilder,
    SnapshotSummary,
    check_limit,
    make_cursor,
    read_cursor,
    read_list_options,
    search_words,
    searchable_text,
)
from .protocol import (
    AsyncConversationStore,
    ConversationStore,
    Resealed,
    check_newest,
    check_parent,
    check_position,
    id_taken,
    not_found,
)
from .sealing import Records
from .snapshot import Snapshot, validate_snapshot_id
from .sql_schema import Database, Dialect, Rows, Session, convert

_T = TypeVar("_T")

_Rank = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Id = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")]
_LAST_PLACE: Final = 2**62
_FIRST_ROOT: Final = "00000000-0000-0000-0000-000000000000"
_LOOKS: Final = 20
"""How many times one page asks for more where what it got did not pass the filters; then it is a short one."""


class _Draft(NamedTuple):
    """A snapshot that is ready to be saved: what cannot be written does no harm before the transaction begins."""

    snapshot: Snapshot
    body: bytes


class _Line(NamedTuple):
    """Which line the messages of a snapshot stand in, and how many of them are there already."""

    number: int
    written: int


# --- the store -------------------------------------------------------------------------------------------------------


class SqlStore(AsyncConversationStore):
    """The methods of a store, as they are for asyncio. Plain programs step them: see PlainSqlStore."""

    def __init__(self, database: Database, dialect: Dialect, records: Records) -> None:
        self.can_search: bool = records.mode == "open"
        self._database: Final = database
        self._dialect: Final = dialect
        self._records: Final = records

    # --- saving ------------------------------------------------------------------------------------------------------

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        draft = _Draft(snapshot, body_to_json(snapshot))
        save = self._save_first if snapshot.parent is None else self._save_next
        await self._database.write(lambda session: save(session, draft, after))

    async def _save_first(self, session: Session, draft: _Draft, after: int) -> None:
        snapshot = draft.snapshot
        begun = await session.execute(schema.ADD_CHAIN, snapshot.root, snapshot.id)
        [[mode, stored]] = await session.fetch(schema.BODY, snapshot.id)
        if stored is not None or not begun:
            self._ensure_same(draft, stored)
            return
        self._records.ensure_mode(mode)
        check_position(snapshot.root, after, 0)
        await self._add_snapshot(session, draft, 1, _Line(1, 0))
        await session.execute(schema.MOVE_CHAIN, snapshot.id, 1, snapshot.root)

    async def _save_next(self, session: Session, draft: _Draft, after: int) -> None:
        snapshot, root = draft.snapshot, draft.snapshot.root
        locked = await session.fetch(schema.LOCK_CHAIN, root)
        [state] = await session.fetch(schema.STATE, snapshot.id, snapshot.parent, root, root)
        mode, stored, parent_root, position, last_line = convert(
            state, tuple[object, bytes | None, str | None, int, int]
        )
        if stored is not None:
            self._ensure_same(draft, stored)
            return
        newest, place = convert(locked[0], tuple[str, int]) if locked else (None, 0)
        check_parent(snapshot, parent_root, newest)
        self._records.ensure_mode(mode)
        check_position(root, after, position)
        line = await self._choose_line(session, snapshot, last_line)
        await self._add_snapshot(session, draft, place + 1, line)
        await session.execute(schema.MOVE_CHAIN, snapshot.id, place + 1, root)
        if position:
            await session.execute(schema.END_JOURNAL, root)

    def _ensure_same(self, draft: _Draft, stored: object) -> None:
        """The id is taken: by this very snapshot, or by another."""
        id = draft.snapshot.id
        if stored is None or self._records.unseal(convert(stored, bytes), "body", id) != draft.body:
            raise id_taken(id)

    async def _choose_line(self, session: Session, snapshot: Snapshot, last_line: int) -> _Line:
        """Where the messages go: behind those of the parent, if they only add to them; else to a new line."""
        assert snapshot.parent is not None
        [row] = await session.fetch(schema.PARENT, snapshot.parent)
        data, number, length, end = convert(row, tuple[bytes, int, int, int])
        try:
            parent = body_from_json(self._records.unseal(data, "body", snapshot.parent))
        except SnapshotCorruptError:
            adds = False  # what is new is safe all the same: its whole history is written again
        else:
            adds = parent.count == length == end and digest_after(snapshot.messages[:length]) == parent.digest
        return _Line(number, length) if adds else _Line(last_line + 1, 0)

    async def _add_snapshot(self, session: Session, draft: _Draft, place: int, line: _Line) -> None:
        snapshot, root, records = draft.snapshot, draft.snapshot.root, self._records
        summary, body = records.seal_summary(snapshot), records.seal(draft.body, "body", snapshot.id)
        values = (snapshot.id, root, place, line.number, len(snapshot.messages), summary, body)
        if not await session.execute(schema.ADD_SNAPSHOT, *values):
            raise id_taken(snapshot.id)  # in another conversation
        new = snapshot.messages[line.written :]
        rows = [
            (root, line.number, position, records.seal(data, "message", root, line.number, position))
            for position, data in enumerate(map(message_to_json, new), line.written)
        ]
        if rows:
            await session.execute_many(schema.ADD_MESSAGE, rows)
        if records.mode == "open" and (texts := [text for text in map(searchable_text, new) if text]):
            await self._dialect.add_words(session, root, texts)

    async def delete(self, id: str) -> None:
        validate_snapshot_id(id)

        async def work(session: Session) -> None:
            locked = await session.fetch(schema.LOCK_CHAIN_OF, id)
            if not locked:
                raise not_found(id)
            root = convert(locked[0][0], str)
            await self._dialect.remove_words(session, root)
            for table in schema.OF_A_CHAIN:
                await session.execute(f"DELETE FROM {{s}}{table} WHERE root = ?", root)  # noqa: S608 - names of ours

        await self._database.write(work, repeatable=False)

    # --- loading -----------------------------------------------------------------------------------------------------

    async def load(self, id: str) -> Snapshot:
        validate_snapshot_id(id)
        return await self._database.read(lambda session: self._load(session, id))

    async def _load(self, session: Session, id: str) -> Snapshot:
        rows = await session.fetch(schema.LOAD_THIS, id)
        if not rows:
            raise not_found(id)
        return self._assemble(rows)

    async def latest(self, id: str) -> Snapshot:
        validate_snapshot_id(id)

        async def work(session: Session) -> Snapshot:
            rows = await session.fetch(schema.LOAD_NEWEST, id)
            if not rows:
                await self._load(session, id)  # not there; or it is, and its conversation names another that is not
                message = f"The newest snapshot of the conversation of {id} is missing."
                raise SnapshotCorruptError(message, hint="Older ones can still be loaded by their ids; see history().")
            return self._assemble(rows)

        return await self._database.read(work)

    def _assemble(self, rows: Rows) -> Snapshot:
        (_, id, root, line, data), *others = [convert(row, tuple[int, str, str, int, bytes]) for row in rows]
        body = body_from_json(self._records.unseal(data, "body", id))
        messages = [self._records.unseal(data, "message", root, line, position) for position, _, _, _, data in others]
        snapshot = assemble(body, messages)
        if (snapshot.id, snapshot.root) != (id, root):
            message = f"What is stored as {id} is another snapshot."
            raise SnapshotCorruptError(message)
        return snapshot

    # --- the journal -------------------------------------------------------------------------------------------------

    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        validate_snapshot_id(id)
        new = tuple(entries)

        async def work(session: Session) -> int:
            locked = await session.fetch(schema.LOCK_CHAIN_OF, id)
            if not locked:
                raise not_found(id)
            root, newest = convert(locked[0], tuple[str, str])
            check_newest(id, newest)
            [[mode, position]] = await session.fetch(f"SELECT {schema.MODE}, {schema.POSITION}", root)
            self._records.ensure_mode(mode)
            check_position(root, after, convert(position, int))
            rows = [
                (root, number, self._records.seal_entry(entry, root, newest, number))
                for number, entry in enumerate(new, after + 1)
            ]
            if rows:
                await session.execute_many(schema.ADD_ENTRY, rows)
            return after + len(rows)

        return await self._database.write(work, repeatable=False)

    async def journal(self, id: str) -> Journal:
        validate_snapshot_id(id)

        async def work(session: Session) -> Journal:
            rows = await session.fetch(schema.JOURNAL, id)
            if not rows:
                raise not_found(id)
            root, newest, first, _ = rows[0]
            if first is None:
                return Journal(snapshot=convert(newest, str))
            entries: list[JournalEntry] = []
            for expected, row in enumerate(rows, 1):
                _, _, position, data = convert(row, tuple[str, str, int, bytes])
                if position != expected:
                    message = f"Entry {expected} of the journal of {root} is missing."
                    raise SnapshotCorruptError(message)
                entries.append(self._records.read_entry(data, root, newest, position))
            return Journal(snapshot=newest, entries=tuple(entries))

        return await self._database.read(work)

    # --- lists -------------------------------------------------------------------------------------------------------

    async def list(self, **which: Unpack[ListOptions]) -> Page:
        options = read_list_options(**which)
        return await self._database.read(lambda session: self._list_page(session, *options))

    async def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message in which every word of the text occurs."""
        if not self.can_search:
            message = "A sealed store cannot be searched: an index would hold the words of every message in the open."
            raise StoreError(message, hint="Use list(text=...), which looks into titles.")

        async def work(session: Session) -> Page:
            [[mode]] = await session.fetch(f"SELECT {schema.MODE}")
            self._records.ensure_mode(mode)
            return await self._list_page(session, Filters(search=text), limit, cursor)

        return await self._database.read(work)

    async def _list_page(self, session: Session, filters: Filters, limit: int, cursor: str | None) -> Page:
        behind = None if cursor is None else read_cursor(filters.kind, cursor, tuple[_Rank, _Id])
        builder = PageBuilder(limit, filters)
        test, values = "true", tuple[object, ...]()
        if filters.search is not None:
            words = search_words(filters.search)
            if not words:
                return Page()
            found, values = await self._dialect.find_words(session, words)
            test = f"c.root IN (SELECT w.root FROM {{s}}words w WHERE {found})"  # noqa: S608 - ours
        for _ in range(_LOOKS):
            place = "true" if behind is None else "(c.rank, c.root) < (?, ?)"
            rows = await session.fetch(
                schema.LIST.replace("TEST", f"{place} AND {test}"), *(behind or ()), *values, limit + 1
            )
            for row in rows:
                rank, root, id, data, mode = convert(row, tuple[int, str, str, object, object])
                if mode == "sealed":
                    self._records.ensure_mode(mode)  # rather one error than a page of them
                if builder.is_full:
                    return builder.page(make_cursor(filters.kind, behind or ()))
                behind = (rank, root)
                builder.add(id, lambda id=id, data=data: self._read_summary(id, data))
            if len(rows) <= limit:
                return builder.page(None)
        return builder.page(make_cursor(filters.kind, behind or ()))

    def _read_summary(self, id: str, data: object) -> SnapshotSummary:
        if data is None:
            message = "The snapshot is missing."
            raise SnapshotCorruptError(message)
        return self._records.read_summary(convert(data, bytes), id)

    async def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        validate_snapshot_id(id)
        wanted, behind = (None, _LAST_PLACE) if cursor is None else read_cursor("history", cursor, tuple[_Id, _Rank])

        async def work(session: Session) -> Page:
            builder = PageBuilder(limit)
            rows = await session.fetch(schema.HISTORY, id, behind, limit + 1)
            if not rows:
                if not await session.fetch("SELECT 1 FROM {s}snapshot WHERE id = ?", id):
                    raise not_found(id)
                return Page()  # nothing stands behind the cursor
            found = [convert(row, tuple[str, int, str, object, object]) for row in rows]
            root, _, _, _, mode = found[0]
            if wanted not in {None, root}:
                message = "This cursor belongs to the history of another conversation."
                raise InvalidCursorError(message)
            if mode == "sealed":
                self._records.ensure_mode(mode)
            for _, _, each, data, _ in found[:limit]:
                builder.add(each, lambda each=each, data=data: self._read_summary(each, data))
            return builder.page(make_cursor("history", (root, found[limit - 1][1])) if len(rows) > limit else None)

        return await self._database.read(work)

    # --- sealing again -----------------------------------------------------------------------------------------------

    async def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        check_limit(limit)
        [behind] = (_FIRST_ROOT,) if cursor is None else read_cursor("reseal", cursor, tuple[_Id])

        async def begin(session: Session) -> tuple[int, Sequence[str]]:
            [[mode]] = await session.fetch("SELECT c.value FROM {s}setting c WHERE c.name = 'mode'{lock}") or [[None]]
            if mode != self._records.mode:
                await self._change_mode(session, mode)
            [[total]] = await session.fetch("SELECT count(*) FROM {s}chain")
            rows = await session.fetch(
                "SELECT root FROM {s}chain WHERE root > ? ORDER BY root LIMIT ?", behind, limit + 1
            )
            return convert(total, int), [convert(root, str) for [root] in rows]

        total, roots = await self._database.write(begin)
        unreadable = [root for root in roots[:limit] if not await self._reseal_chain(root)]
        more = make_cursor("reseal", (roots[limit - 1],)) if len(roots) > limit else None
        return Resealed(done=len(roots[:limit]), total=total, cursor=more, unreadable=tuple(unreadable))

    async def _change_mode(self, session: Session, found: object) -> None:
        """Until now nothing was sealed; from now on everything is."""
        if found != "open":
            self._records.ensure_mode(found)
        if self._dialect.lock_chains is not None:
            await session.execute(self._dialect.lock_chains)
        await session.execute("UPDATE {s}setting SET value = ? WHERE name = 'mode'", self._records.mode)
        for [root] in await session.fetch("SELECT root FROM {s}chain"):
            await self._dialect.remove_words(session, convert(root, str))

    async def _reseal_chain(self, root: str) -> bool:
        """All rows of one conversation; False if one cannot be opened, and then none is changed."""

        async def work(session: Session) -> bool:
            locked = await session.fetch(schema.LOCK_CHAIN, root)
            if not locked:
                return True  # deleted meanwhile
            try:
                changes = await self._changes(session, root, convert(locked[0][0], str))
            except DragomanError:
                return False
            for sql, values in changes:
                await session.execute(sql, *values)
            return True

        return await self._database.write(work)

    async def _changes(self, session: Session, root: str, newest: str) -> Sequence[tuple[str, Sequence[object]]]:
        records = self._records
        changes: list[tuple[str, Sequence[object]]] = []

        def change(table: str, column: str, old: bytes, new: bytes, **key: object) -> None:
            if new != old:
                where = " AND ".join(f"{name} = ?" for name in key)
                changes.append((f"UPDATE {{s}}{table} SET {column} = ? WHERE {where}", (new, *key.values())))  # noqa: S608 - ours

        for row in await session.fetch("SELECT id, summary, body FROM {s}snapshot WHERE root = ?", root):
            id, summary, body = convert(row, tuple[str, bytes, bytes])
            change("snapshot", "summary", summary, records.reseal(summary, "summary", id), id=id)
            change("snapshot", "body", body, records.reseal(body, "body", id), id=id)
        for row in await session.fetch("SELECT line, position, body FROM {s}message WHERE root = ?", root):
            line, position, body = convert(row, tuple[int, int, bytes])
            new = records.reseal(body, "message", root, line, position)
            change("message", "body", body, new, root=root, line=line, position=position)
        for row in await session.fetch("SELECT position, body FROM {s}journal WHERE root = ?", root):
            position, body = convert(row, tuple[int, bytes])
            new = records.reseal(body, "entry", root, newest, position)
            change("journal", "body", body, new, root=root, position=position)
        return changes

    # --- closing -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Let go of files and connections."""
        self._database.close()


class PlainSqlStore(ConversationStore):
    """An SqlStore whose database blocks, for plain programs."""

    def __init__(self, store: SqlStore) -> None:
        self.can_search: bool = store.can_search
        self._store: Final = store

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        step(self._store.save(snapshot, after=after))

    def load(self, id: str) -> Snapshot:
        return step(self._store.load(id))

    def latest(self, id: str) -> Snapshot:
        return step(self._store.latest(id))

    def list(self, **which: Unpack[ListOptions]) -> Page:
        return step(self._store.list(**which))

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        return step(self._store.history(id, limit=limit, cursor=cursor))

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message in which every word of the text occurs."""
        return step(self._store.search(text, limit=limit, cursor=cursor))

    def delete(self, id: str) -> None:
        step(self._store.delete(id))

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        return step(self._store.record(id, entries, after=after))

    def journal(self, id: str) -> Journal:
        return step(self._store.journal(id))

    def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        return step(self._store.reseal(limit=limit, cursor=cursor))

    def close(self) -> None:
        """Let go of files and connections."""
        step(self._store.aclose())
