"""FileStore: conversations as files in a directory.

    talks/
      store.json                      what this is, and whether it is sealed
      lock                            the file that writers lock
      <root>/                         one directory per conversation
        000001-<id>.json              one file per snapshot
        000002-<id>.json
        000002-<id>.3.jsonl           the journal after the newest snapshot, one line per entry; 3 lines are valid

A snapshot exists as soon as its file has its name; the journal of the one before is then obsolete. Entries exist as
soon as the journal has its new name, so a journal that was truncated, overwritten or removed is noticed, and lines
after the valid ones were never acknowledged. Leftovers of a killed writer (`.new`, `.old`, obsolete journals) are
removed by the next one. Readers take no lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from dragoman._checks import of_unmade
from dragoman._decoding import decode_as
from dragoman.errors import SnapshotCorruptError, SnapshotError, StoreError, StoreUnavailableError

from . import directory, listing, protocol
from .directory import report_os_errors
from .journal import Journal, JournalEntry
from .listing import Page, Query, SnapshotSummary, Unreadable
from .protocol import ConversationStore
from .sealing import AesGcmSealing, Records, is_sealed
from .snapshot import (
    ID_PATTERN,
    Snapshot,
    family_of,
    is_inner,
    snapshot_from_json,
    snapshot_to_json,
    validate_snapshot_id,
)

VERSION: Final = 1
_FORMAT: Final = "dragoman.files"
_TRIES: Final = 20
"""Readers take no lock: if somebody saves while they read, they try again, but not for ever."""
_MAX_ROOTS: Final = 1000

_T = TypeVar("_T")


class _Marker(Struct, frozen=True):
    """The content of store.json."""

    format: str
    version: int
    mode: str = ""


class FileStore(ConversationStore):
    """Conversations as files in a directory, for any number of threads and programs on one machine.

    The directory is created when first needed, accessible only to its owner. `timeout` is how many seconds to wait for
    another program that writes. With `sealing` everything in the store is encrypted, including what lists show. Lists
    and searches read the files: for many conversations use SqliteStore.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: AesGcmSealing | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.path: Final = Path(path).absolute()  # the program may change its working directory
        self.can_search: bool = True
        self._records: Final = Records("file", sealing)
        self._timeout: Final = timeout
        self._existed: bool = False
        self._roots: dict[str, str] = {}
        """The conversations of snapshots that were found lately."""
        self._closed: bool = False

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        written = snapshot_to_json(snapshot)  # fails before anything is written

        def work() -> None:
            same = self._find(snapshot.id)
            if same is not None:
                if snapshot_to_json(self._load(same, same.place_of(snapshot.id))) != written:
                    raise protocol.id_taken(snapshot.id)
                for each in (self.path / same.root, self.path):  # the first try may have failed here
                    directory.sync_directory(each)
            elif snapshot.parent is None:
                if directory.list_names(self.path / snapshot.root):
                    raise protocol.id_taken(snapshot.id)
                protocol.check_position(snapshot.root, after, 0)
                self._begin_chain(snapshot, written)
            else:
                before = self._find(snapshot.parent)
                protocol.check_parent(snapshot, before and before.root, before and before.newest)
                assert before is not None
                protocol.check_position(snapshot.root, after, self._read_journal(before)[0].position)
                self._add_to_chain(before, snapshot, written)

        self._write("save the snapshot", work)

    def _begin_chain(self, snapshot: Snapshot, written: bytes) -> None:
        new = self.path / ".new"
        new.mkdir(mode=0o700)
        directory.write_file(new / _point_name(1, snapshot.id), self._sealed(snapshot, written, 1))
        directory.write_file(new / _journal_name(1, snapshot.id, 0), b"")
        directory.sync_directory(new)
        new.rename(self.path / snapshot.root)
        directory.sync_directory(self.path)

    def _add_to_chain(self, before: _Chain, snapshot: Snapshot, written: bytes) -> None:
        here, place = self.path / before.root, before.place + 1
        journal = _journal_name(place, snapshot.id, 0)
        self._replace(here / journal, b"")
        self._replace(here / _point_name(place, snapshot.id), self._sealed(snapshot, written, place))
        for name in before.journals.keys() - {journal}:  # an earlier try may have created it
            (here / name).unlink(missing_ok=True)

    def _replace(self, path: Path, data: bytes) -> None:
        """Replace the content of a file; after a crash it has the old content or the new one."""
        new = self.path / ".new"
        directory.remove(new)
        directory.write_file(new, data)
        new.rename(path)
        directory.sync_directory(path.parent)

    def load(self, id: str) -> Snapshot:
        return self._read("load the snapshot", id, lambda chain: self._load(chain, chain.place_of(id)))

    def latest(self, id: str) -> Snapshot:
        return self._read("load the snapshot", id, lambda chain: self._load(chain, chain.place))

    def delete(self, id: str) -> None:
        self._read("delete the conversation", id, lambda _chain: None)

        def work() -> None:
            old, root = self.path / ".old", self._get(id).root
            inner = [] if is_inner(root) else [name for name in self._root_names() if name.startswith(family_of(root))]
            for each in (*inner, root):
                (self.path / each).rename(old)
                directory.sync_directory(self.path)
                directory.remove(old)

        self._write("delete the conversation", work, any_mode=True)

    # --- lists -------------------------------------------------------------------------------------------------------

    def list(
        self, *, provider: str | None = None, text: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        return self._list(Query(provider=provider, text=text, limit=limit, cursor=cursor))

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        return self._list(Query(search=text, limit=limit, cursor=cursor))

    def _list(self, query: Query) -> Page:
        """One page of the matching conversations; the first page also names what cannot be read."""
        self._check_open()
        words = listing.search_words(query.search or "")
        last = None if query.cursor is None else listing.read_cursor(query.kind, query.cursor, tuple[datetime, str])
        found: dict[tuple[datetime, str], SnapshotSummary] = {}
        unreadable: list[Unreadable] = []
        with report_os_errors("list the conversations"):
            self._records.ensure_key(self._mode())
            for chain in filter(None, map(self._chain, self._root_names())):
                try:
                    points = (self._load(chain, place) for place in reversed(chain.ids))
                    if query.search is None or any(listing.has_words(point.messages, words) for point in points):
                        summary = self._summary(chain, chain.place)
                        found[summary.created_at, chain.root] = summary
                except SnapshotError as error:
                    if query.cursor is None and self._chain(chain.root) is not None:  # not deleted in the meantime
                        unreadable.append(Unreadable(id=chain.newest, problem=str(error)))
        keys = [key for key, each in found.items() if query.accepts(each) and (last is None or key < last)]
        keys.sort(reverse=True)
        cursor = listing.make_cursor(query.kind, keys[query.limit - 1]) if len(keys) > query.limit else None
        return listing.page_of([*unreadable, *[found[key] for key in keys[: query.limit]]], cursor)

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        listing.check_limit(limit)

        def work(chain: _Chain) -> Page:
            self._records.ensure_key(self._mode())
            kind = f"history {chain.root}"
            [last] = (chain.place + 1,) if cursor is None else listing.read_cursor(kind, cursor, tuple[int])
            remaining = range(min(last - 1, chain.place), 0, -1)
            places = remaining[:limit]
            more = listing.make_cursor(kind, (places[-1],)) if len(remaining) > limit else None
            names = [chain.ids.get(place, f"{chain.root} ({place})") for place in places]
            read = [partial(self._summary, chain, place) for place in places]
            return listing.page_of(map(listing.read_or_note, names, read), more)

        return self._read("read the history", id, work)

    # --- the journal -------------------------------------------------------------------------------------------------

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        new = tuple(entries)
        self._read("record the steps", id, lambda _chain: None)

        def work() -> int:
            chain = self._get(id)
            protocol.check_newest(id, chain.newest)
            journal, size = self._read_journal(chain)
            protocol.check_position(chain.root, after, journal.position)
            added = [
                _line_of(self._records.seal_entry(entry, chain.root, chain.newest, position))
                for position, entry in enumerate(new, after + 1)
            ]
            if added:
                path = self.path / chain.root / chain.journal[0]
                directory.append_to_file(path, b"".join(added), size)
                path.rename(path.with_name(_journal_name(chain.place, chain.newest, after + len(added))))
                directory.sync_directory(path.parent)
            return after + len(added)

        return self._write("record the steps", work)

    def journal(self, id: str) -> Journal:
        return self._read("read the journal", id, lambda chain: self._read_journal(chain)[0])

    def _read_journal(self, chain: _Chain) -> tuple[Journal, int]:
        name, length = chain.journal
        path = self.path / chain.root / name
        with _naming(path):
            lines = (directory.read_file(path) or b"").split(b"\n", length)[:-1]
            if len(lines) < length:
                raise protocol.lost_entries(chain.root, length)
            entries = [
                self._records.read_entry(_record_of(line), chain.root, chain.newest, position)
                for position, line in enumerate(lines, 1)
            ]
        return Journal(snapshot=chain.newest, entries=tuple(entries)), sum(len(line) + 1 for line in lines)

    # --- opening and closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse further calls; no file is kept open between calls."""
        self._closed = True

    @of_unmade
    def __repr__(self) -> str:
        return f"FileStore({str(self.path)!r})"

    def _check_open(self) -> None:
        if self._closed:
            raise protocol.closed_store()

    def _read(self, doing: str, id: str, work: Callable[[_Chain], _T]) -> _T:
        """Run the work; repeat it if it fails because somebody changed the conversation in the meantime."""
        validate_snapshot_id(id)
        self._check_open()
        with report_os_errors(doing):
            self._mode()
            for _ in range(_TRIES):
                chain = self._get(id)
                try:
                    return work(chain)
                except SnapshotError:
                    if self._get(id) == chain:
                        raise
        message = f"The conversation of {id} is being saved faster than it can be read."
        raise StoreUnavailableError(message, hint="Try again when the other program pauses.")

    def _write(self, doing: str, work: Callable[[], _T], *, any_mode: bool = False) -> _T:
        """Run the work under the lock of the store, which is created if it does not exist."""
        self._check_open()

        def work_locked() -> _T:
            mode = self._mode()
            if mode is None:
                marker = _Marker(_FORMAT, VERSION, self._records.mode)
                self._replace(self.path / "store.json", msgspec.json.encode(marker) + b"\n")
            elif not any_mode:
                self._records.ensure_mode(mode)
            for leftover in (".new", ".old"):
                directory.remove(self.path / leftover)
            return work()

        with report_os_errors(doing):
            if self._mode() is None:
                directory.make_directory(self.path)
            return directory.work_under_lock(self.path / "lock", self._timeout, work_locked)

    def _mode(self) -> str | None:
        """The mode of the store; None if it does not exist yet. Raises StoreError if the directory is not a store."""
        existed = self._existed  # first: another thread may create the store meanwhile
        data = directory.read_file(self.path / "store.json")
        if data is None and self._root_names():
            data = directory.read_file(self.path / "store.json") or b""  # it may have been created by now
        if data is None:
            if existed:
                # A new, empty store in its place would look as if everything had been deleted.
                message = f"The store at {self.path} is gone."
                hint = "Restore its directory, or mount its disk; if you deleted it, open a new store."
                raise StoreUnavailableError(message, hint=hint)
            return None
        try:
            marker = decode_as(data, _Marker)
        except (msgspec.MsgspecError, ValueError):
            marker = _Marker("", 0)
        if marker.format != _FORMAT:
            message = f"{self.path / 'store.json'} is damaged or lost, or belongs to another program."
            raise StoreError(message, hint="Restore it from a backup, or choose another directory.")
        if marker.version > VERSION:
            message = f"The store at {self.path} was written by a newer dragoman (version {marker.version})."
            raise StoreError(message, hint="Upgrade dragoman to use it: pip install --upgrade dragoman.")
        self._existed = True
        return marker.mode

    # --- finding -----------------------------------------------------------------------------------------------------

    def _root_names(self) -> Sequence[str]:
        return [name for name in directory.list_names(self.path) if _ROOT.fullmatch(name)]

    def _chain(self, root: str) -> _Chain | None:
        return _read_names(root, directory.list_names(self.path / root))

    def _find(self, id: str) -> _Chain | None:
        for root in self._likely_roots(id):
            chain = self._chain(root)
            if chain is not None and id in chain.ids.values():
                if len(self._roots) >= _MAX_ROOTS:
                    self._roots = {}
                self._roots[id] = root
                return chain
        return None

    def _likely_roots(self, id: str) -> Iterator[str]:
        yield self._roots.get(id, id)
        yield from self._root_names()

    def _get(self, id: str) -> _Chain:
        chain = self._find(id)
        if chain is None:
            raise protocol.not_found(id)
        return chain

    # --- files of snapshots ------------------------------------------------------------------------------------------

    def _sealed(self, snapshot: Snapshot, written: bytes, place: int) -> bytes:
        return _line_of(self._records.seal(written, "snapshot", place, snapshot.id))

    def _load(self, chain: _Chain, place: int) -> Snapshot:
        if place not in chain.ids:
            message = f"The file of snapshot {place} of conversation {chain.root} is missing."
            raise SnapshotCorruptError(message)
        id = chain.ids[place]
        path = self.path / chain.root / _point_name(place, id)
        with _naming(path):
            data = directory.read_file(path)
            if data is None:
                raise protocol.not_found(id)
            return snapshot_from_json(self._records.unseal(_record_of(data), "snapshot", place, id))

    def _summary(self, chain: _Chain, place: int) -> SnapshotSummary:
        return listing.summary_of(self._load(chain, place))


# --- names -----------------------------------------------------------------------------------------------------------

_ROOT: Final = re.compile(ID_PATTERN)
_POINT: Final = re.compile(rf"([0-9]{{6,}})-({ID_PATTERN})\.json")
_JOURNAL: Final = re.compile(rf"([0-9]{{6,}})-({ID_PATTERN})\.([0-9]+)\.jsonl")


def _point_name(place: int, id: str) -> str:
    return f"{place:06}-{id}.json"


def _journal_name(place: int, id: str, length: int) -> str:
    return f"{place:06}-{id}.{length}.jsonl"


class _Chain(NamedTuple):
    """A conversation, according to the names of its files."""

    root: str
    ids: dict[int, str]
    """By place, counted from 1."""
    journals: dict[str, int]
    """The names of journals, and how many of their lines are valid."""

    @property
    def place(self) -> int:
        return max(self.ids)

    @property
    def newest(self) -> str:
        return self.ids[self.place]

    def place_of(self, id: str) -> int:
        return next(place for place, each in self.ids.items() if each == id)

    @property
    def journal(self) -> tuple[str, int]:
        """The name of the journal after the newest snapshot, and how many of its lines are valid."""
        begin = _point_name(self.place, self.newest).removesuffix("json")
        for name, length in self.journals.items():
            if name.startswith(begin):
                return name, length
        message = f"The journal after snapshot {self.newest} is missing."
        raise SnapshotCorruptError(message, hint=protocol.lost_entries(self.root, 0).hint)


def _read_names(root: str, names: Sequence[str]) -> _Chain | None:
    """The conversation with these files; None if there is no snapshot among them."""
    points = sorted([(int(match[1]), match[2]) for match in map(_POINT.fullmatch, names) if match is not None])
    journals = {match[0]: int(match[3]) for match in map(_JOURNAL.fullmatch, names) if match is not None}
    return _Chain(root, dict(points), journals) if points else None


# --- lines -----------------------------------------------------------------------------------------------------------


def _line_of(record: bytes) -> bytes:
    """A record as a line of text: JSON unchanged, a sealed record as a JSON string in base64."""
    return (msgspec.json.encode(record) if is_sealed(record) else record) + b"\n"


def _record_of(line: bytes) -> bytes:
    if not line.startswith(b'"'):
        return line.removesuffix(b"\n")
    try:
        return decode_as(line, bytes)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotCorruptError(f"The line cannot be read: {error}.") from None


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Add the name of the file to errors about a snapshot or an entry."""
    try:
        yield
    except SnapshotError as error:
        if str(path) in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error
