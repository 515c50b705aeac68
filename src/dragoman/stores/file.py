"""A store in a directory, for people who want files.

    talks/
      store.json                      what this is, and whether it is sealed
      lock                            what writers lock
      <root>/                         one directory a conversation
        000001-<id>.json              one file a snapshot
        000002-<id>.json
        000002-<id>.jsonl             the journal behind the newest snapshot, one line an entry

A snapshot counts as soon as its file has its name, and with it the journal of the one before stops to count. What a
writer that died left behind is `.new` or `.old`, and the next writer removes it. Readers take no lock.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, Unpack

import msgspec
from msgspec import Raw, Struct

from dragoman.errors import SnapshotCorruptError, SnapshotError, StoreError, StoreUnavailableError

from . import directory
from .directory import report_os_errors
from .journal import Journal, JournalEntry
from .json_form import snapshot_from_json, snapshot_to_json
from .listing import (
    Filters,
    ListOptions,
    Page,
    SnapshotSummary,
    Unreadable,
    check_limit,
    has_words,
    history_page,
    list_page,
    make_cursor,
    read_cursor,
    read_list_options,
    search_words,
)
from .protocol import (
    ConversationStore,
    Resealed,
    check_newest,
    check_parent,
    check_position,
    closed_store,
    id_taken,
    not_found,
)
from .sealing import Records, Sealing
from .snapshot import Snapshot, validate_snapshot_id

VERSION: Final = 1
_FORMAT: Final = "dragoman.files"
_ID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ROOT: Final = re.compile(_ID)
_POINT: Final = re.compile(rf"([0-9]{{6,}})-({_ID})\.json")
_TRIES: Final = 20
"""Readers take no lock; somebody may save while they read, but not for ever."""
_REMEMBERED: Final = 1000

_T = TypeVar("_T")


class _Marker(Struct, frozen=True):
    """The content of store.json."""

    format: str
    version: int
    mode: str = ""


class _Document(Struct, frozen=True):
    """The content of a snapshot's file. What is sealed is a text, in base64."""

    check: str
    summary: Raw
    snapshot: Raw


class _Line(Struct, frozen=True):
    """One line of a journal."""

    position: int
    last: int
    """The position of the last entry that was recorded in the same step: all of them count, or none."""
    check: str
    entry: Raw


class _Chain(NamedTuple):
    """A conversation, as the names of its files tell."""

    root: str
    ids: dict[int, str]
    """By place, the first one is 1."""

    @property
    def place(self) -> int:
        return max(self.ids)

    @property
    def newest(self) -> str:
        return self.ids[self.place]


class FileStore(ConversationStore):
    """Conversations in a directory, for one machine: many threads and programs may use it at once.

    The directory is made when first needed, for the owner's eyes only. `timeout` is how long to wait, in seconds, for
    another program that writes. With `sealing`, all that is kept is sealed, also what lists show. Lists and
    searches read the files: for many conversations use SqliteStore.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: Sealing | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.path: Final = Path(path).absolute()  # a program may change its directory
        self.can_search: bool = True
        self._records: Final = Records("file", sealing)
        self._timeout: Final = timeout
        self._seen: bool = False
        self._roots: dict[str, str] = {}
        """Where snapshots were found lately: a place to look first."""
        self._closed: bool = False

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        written = snapshot_to_json(snapshot)  # refused before anything is touched

        def work() -> None:
            there = self._find(snapshot.id)
            if there is not None:
                if snapshot_to_json(self._load(there, snapshot.id)) != written:
                    raise id_taken(snapshot.id)
            elif snapshot.parent is None:
                if directory.list_names(self.path / snapshot.root):
                    raise id_taken(snapshot.id)
                check_position(snapshot.root, after, 0)
                self._begin_chain(snapshot, written)
            else:
                before = self._find(snapshot.parent, first=snapshot.root)
                check_parent(snapshot, before and before.root, before and before.newest)
                assert before is not None
                check_position(snapshot.root, after, len(self._journal_lines(before)[0]))
                self._add_to_chain(before, snapshot, written)

        self._write("save the snapshot", work)

    def _begin_chain(self, snapshot: Snapshot, written: bytes) -> None:
        new = self.path / ".new"
        new.mkdir(mode=0o700)
        directory.write_file(new / _point_name(1, snapshot.id), self._document(snapshot, written))
        directory.sync_directory(new)
        new.rename(self.path / snapshot.root)
        directory.sync_directory(self.path)

    def _add_to_chain(self, before: _Chain, snapshot: Snapshot, written: bytes) -> None:
        self._replace(
            self.path / before.root / _point_name(before.place + 1, snapshot.id), self._document(snapshot, written)
        )
        self._journal_path(before).unlink(missing_ok=True)

    def _replace(self, path: Path, data: bytes) -> None:
        """Put this content in the place of the file's; after a crash there is the one or the other."""
        new = self.path / ".new"
        directory.remove(new)
        directory.write_file(new, data)
        new.rename(path)
        directory.sync_directory(path.parent)

    def load(self, id: str) -> Snapshot:
        return self._read("load the snapshot", id, lambda chain: self._load(chain, id))

    def latest(self, id: str) -> Snapshot:
        return self._read("load the snapshot", id, lambda chain: self._load(chain, chain.newest))

    def delete(self, id: str) -> None:
        self._read("delete the conversation", id, lambda _chain: None)

        def work() -> None:
            old = self.path / ".old"
            (self.path / self._found(id).root).rename(old)
            directory.sync_directory(self.path)
            directory.remove(old)

        self._write("delete the conversation", work, any_mode=True)

    # --- lists -------------------------------------------------------------------------------------------------------

    def list(self, **which: Unpack[ListOptions]) -> Page:
        return self._list(*read_list_options(**which))

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message in which every word of the text occurs."""
        return self._list(Filters(search=text), limit, cursor)

    def _list(self, filters: Filters, limit: int, cursor: str | None) -> Page:
        self._check_open()
        words = None if filters.search is None else search_words(filters.search)
        found: list[SnapshotSummary] = []
        unreadable: list[Unreadable] = []
        with report_os_errors("list the conversations"):
            if self._mode() == "sealed":
                self._records.ensure_mode("sealed")  # rather one error than a page of them
            for root in self._root_names():
                chain = self._chain(root)
                if chain is None:
                    continue
                try:
                    if words is None or self._has_words(chain, words):
                        found.append(self._summary(chain, chain.place))
                except SnapshotError as error:
                    if self._chain(root) is not None:  # not deleted meanwhile
                        unreadable.append(Unreadable(id=chain.newest, problem=str(error)))
        return list_page(found, filters, limit, cursor, unreadable)

    def _has_words(self, chain: _Chain, words: Sequence[str]) -> bool:
        return any(has_words(self._load(chain, id).messages, words) for id in reversed(chain.ids.values()))

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:

        def work(chain: _Chain) -> Page:
            if self._mode() == "sealed":
                self._records.ensure_mode("sealed")
            places = range(1, chain.place + 1)
            return history_page(chain.root, places, lambda place: self._summary(chain, place), limit, cursor)

        return self._read("read the history", id, work)

    # --- the journal -------------------------------------------------------------------------------------------------

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        new = tuple(entries)
        self._read("record the steps", id, lambda _chain: None)

        def work() -> int:
            chain = self._found(id)
            check_newest(id, chain.newest)
            lines, size = self._journal_lines(chain)
            check_position(chain.root, after, len(lines))
            data = b"".join([self._line(chain, after + number, after + len(new), e) for number, e in enumerate(new, 1)])
            if data:
                directory.append_to_file(self._journal_path(chain), data, size)
            return after + len(new)

        return self._write("record the steps", work)

    def _line(self, chain: _Chain, position: int, last: int, entry: JournalEntry) -> bytes:
        data = self._wrap(self._records.seal_entry(entry, chain.root, chain.newest, position))
        return _line_to_json(position, last, data)

    def journal(self, id: str) -> Journal:

        def work(chain: _Chain) -> Journal:
            for _ in range(_TRIES):
                lines, _ = self._journal_lines(chain)
                now = self._found(id)
                if now.newest == chain.newest:
                    with _naming(self._journal_path(chain)):
                        entries = [self._entry(chain, line) for line in lines]
                    return Journal(snapshot=chain.newest, entries=tuple(entries))
                chain = now  # the entries may have been put away meanwhile
            message = f"The conversation of {id} is being saved faster than it can be read."
            raise StoreUnavailableError(message, hint="Try again when the other program pauses.")

        return self._read("read the journal", id, work)

    def _entry(self, chain: _Chain, line: _Line) -> JournalEntry:
        return self._records.read_entry(_unwrap(line.entry), chain.root, chain.newest, line.position)

    def _journal_lines(self, chain: _Chain) -> tuple[Sequence[_Line], int]:
        """The lines of the journal, and how many bytes they are; what stands behind them was never acknowledged."""
        path = self._journal_path(chain)
        with _naming(path):
            return _read_lines(directory.read_file(path) or b"")

    def _journal_path(self, chain: _Chain) -> Path:
        return self.path / chain.root / (_point_name(chain.place, chain.newest) + "l")

    # --- sealing again -----------------------------------------------------------------------------------------------

    def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        self._check_open()
        check_limit(limit)
        [last] = ("",) if cursor is None else read_cursor("reseal", cursor, tuple[str])
        with report_os_errors("seal the store again"):
            mode = self._mode()
            if mode is None:
                return Resealed(done=0, total=0)
            if mode != "open":
                self._records.ensure_mode(mode)
            roots = sorted(self._root_names())
        if mode != self._records.mode:
            self._write("seal the store again", self._write_marker, any_mode=True)
        left = [root for root in roots if root > last]
        unreadable = [root for root in left[:limit] if not self._reseal_chain(root)]
        more = make_cursor("reseal", (left[limit - 1],)) if len(left) > limit else None
        return Resealed(done=min(limit, len(left)), total=len(roots), cursor=more, unreadable=tuple(unreadable))

    def _reseal_chain(self, root: str) -> bool:
        def work() -> None:
            chain = self._chain(root)
            if chain is not None:
                for path, data in self._resealed(chain):
                    self._replace(path, data)

        try:
            self._write("seal the store again", work)
        except SnapshotError:
            return False
        return True

    def _resealed(self, chain: _Chain) -> Sequence[tuple[Path, bytes]]:
        """The files of a conversation that have to change; none of them is changed before all could be read."""
        changed: list[tuple[Path, bytes]] = []
        for place, id in chain.ids.items():
            path, document = self._read_document(chain, place)
            with _naming(path):
                summary, snapshot = _unwrap(document.summary), _unwrap(document.snapshot)
                new = self._records.reseal(summary, "summary", id), self._records.reseal(snapshot, "snapshot", id)
            if new != (summary, snapshot):
                changed.append((path, self._document_to_json(*new)))
        path = self._journal_path(chain)
        lines, _ = self._journal_lines(chain)
        with _naming(path):
            old = [_unwrap(line.entry) for line in lines]
            new = [
                self._records.reseal(entry, "entry", chain.root, chain.newest, line.position)
                for entry, line in zip(old, lines, strict=True)
            ]
        if new != old:
            parts = [_line_to_json(each.position, each.last, self._wrap(e)) for each, e in zip(lines, new, strict=True)]
            changed.append((path, b"".join(parts)))
        return changed

    # --- opening and closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing is kept open between calls; afterwards the store refuses to be used."""
        self._closed = True

    def __repr__(self) -> str:
        return f"FileStore({str(self.path)!r})"

    def _check_open(self) -> None:
        if self._closed:
            raise closed_store()

    def _read(self, doing: str, id: str, work: Callable[[_Chain], _T]) -> _T:
        validate_snapshot_id(id)
        self._check_open()
        with report_os_errors(doing):
            self._mode()
            return work(self._found(id))

    def _write(self, doing: str, work: Callable[[], _T], *, any_mode: bool = False) -> _T:
        """Do the work under the lock of the store, which is made if there is none."""
        self._check_open()

        def locked() -> _T:
            mode = self._mode()
            if mode is None:
                self._write_marker()
            elif not any_mode:
                self._records.ensure_mode(mode)
            for litter in (".new", ".old"):
                directory.remove(self.path / litter)
            return work()

        with report_os_errors(doing):
            if self._mode() is None:
                directory.make_directory(self.path)
            return directory.work_under_lock(self.path / "lock", self._timeout, locked)

    def _mode(self) -> str | None:
        """The mode of the store; None if there is none yet."""
        seen = self._seen  # first: another thread may make the store while this one looks
        data = directory.read_file(self.path / "store.json")
        if data is None and self._root_names():
            data = directory.read_file(self.path / "store.json")  # which another one may have made by now
        if data is None:
            if seen:
                # A new, empty store in the place of the old one would look as if everything had been deleted.
                message = f"The store at {self.path} is gone."
                hint = "Bring its directory back, or mount its disk; if it was meant to go, open the store anew."
                raise StoreUnavailableError(message, hint=hint)
            if self._root_names():
                message = f"The store at {self.path} has lost its file store.json."
                raise StoreError(message, hint="Restore it from a copy: it says whether the store is sealed.")
            return None
        try:
            marker = msgspec.json.decode(data, type=_Marker)
        except (msgspec.MsgspecError, ValueError):
            marker = _Marker("", 0)
        if marker.format != _FORMAT:
            message = f"{self.path / 'store.json'} is damaged, or belongs to another program."
            raise StoreError(message, hint="Restore it from a copy, or give the path of another directory.")
        if marker.version > VERSION:
            message = f"The store at {self.path} was written by a newer dragoman (version {marker.version})."
            raise StoreError(message, hint="Upgrade dragoman to use it: pip install --upgrade dragoman.")
        self._seen = True
        return marker.mode

    def _write_marker(self) -> None:
        marker = _Marker(_FORMAT, VERSION, self._records.mode)
        self._replace(self.path / "store.json", msgspec.json.encode(marker) + b"\n")

    # --- finding -----------------------------------------------------------------------------------------------------

    def _root_names(self) -> Sequence[str]:
        return [name for name in directory.list_names(self.path) if _ROOT.fullmatch(name)]

    def _chain(self, root: str) -> _Chain | None:
        matches = [_POINT.fullmatch(name) for name in directory.list_names(self.path / root)]
        points = sorted([(int(match[1]), match[2]) for match in matches if match is not None])
        return _Chain(root, dict(points)) if points else None

    def _find(self, id: str, *, first: str | None = None) -> _Chain | None:
        """The conversation of this snapshot; None if there is none."""
        for root in self._likely_roots(id, first):
            chain = self._chain(root)
            if chain is not None and id in chain.ids.values():
                if len(self._roots) >= _REMEMBERED:
                    self._roots = {}
                self._roots[id] = root
                return chain
        return None

    def _likely_roots(self, id: str, first: str | None) -> Iterator[str]:
        yield first or self._roots.get(id, id)
        yield id
        yield from self._root_names()

    def _found(self, id: str) -> _Chain:
        chain = self._find(id)
        if chain is None:
            raise not_found(id)
        return chain

    # --- files of snapshots ------------------------------------------------------------------------------------------

    def _document(self, snapshot: Snapshot, written: bytes) -> bytes:
        return self._document_to_json(
            self._records.seal_summary(snapshot), self._records.seal(written, "snapshot", snapshot.id)
        )

    def _document_to_json(self, summary: bytes, snapshot: bytes) -> bytes:
        shown, data = self._wrap(summary), self._wrap(snapshot)
        return msgspec.json.encode(_Document(_check(shown, data), Raw(shown), Raw(data))) + b"\n"

    def _wrap(self, data: bytes) -> bytes:
        """A record as JSON: it is that already, or it is sealed."""
        return data if self._records.mode == "open" else b'"%s"' % base64.b64encode(data)

    def _read_document(self, chain: _Chain, place: int) -> tuple[Path, _Document]:
        if place not in chain.ids:
            message = f"The file of snapshot {place} of conversation {chain.root} is missing."
            raise SnapshotCorruptError(message)
        path = self.path / chain.root / _point_name(place, chain.ids[place])
        data = directory.read_file(path)
        if data is None:
            raise not_found(chain.ids[place])
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.MsgspecError, ValueError) as error:
            raise SnapshotCorruptError(f"{path} cannot be read: {str(error).rstrip('.')}.") from None
        if document.check != _check(bytes(document.summary), bytes(document.snapshot)):
            raise SnapshotCorruptError(f"{path} is not what was written.")
        return path, document

    def _summary(self, chain: _Chain, place: int) -> SnapshotSummary:
        path, document = self._read_document(chain, place)
        with _naming(path):
            return self._records.read_summary(_unwrap(document.summary), chain.ids[place])

    def _load(self, chain: _Chain, id: str) -> Snapshot:
        place = next(place for place, each in chain.ids.items() if each == id)
        path, document = self._read_document(chain, place)
        with _naming(path):
            snapshot = snapshot_from_json(self._records.unseal(_unwrap(document.snapshot), "snapshot", id))
            if (snapshot.id, snapshot.root) != (id, chain.root):
                message = f"What is stored as {id} is another snapshot."
                raise SnapshotCorruptError(message)
        return snapshot


def _point_name(place: int, id: str) -> str:
    return f"{place:06}-{id}.json"


def _check(*parts: bytes) -> str:
    return sha256(b"\n".join(parts)).hexdigest()[:32]


def _unwrap(raw: Raw) -> bytes:
    data = bytes(raw)
    if not data.startswith(b'"'):
        return data
    try:
        return base64.b64decode(data[1:-1], validate=True)
    except ValueError:
        message = "A sealed record is not in base64."
        raise SnapshotCorruptError(message) from None


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Makes errors about a snapshot or an entry name the file that it came from."""
    try:
        yield
    except SnapshotError as error:
        if str(path) in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error


# --- lines of a journal ----------------------------------------------------------------------------------------------


def _line_to_json(position: int, last: int, entry: bytes) -> bytes:
    check = _check(b"%d" % position, b"%d" % last, entry)
    return msgspec.json.encode(_Line(position, last, check, Raw(entry))) + b"\n"


def _read_lines(data: bytes) -> tuple[Sequence[_Line], int]:
    """The lines that count, and the number of their bytes.

    The last line may have been torn by a crash, and a step of several entries may have come to less than all: nobody
    was told that it was recorded, so it does not count. Anything else that is odd is damage.
    """
    *parts, tail = data.split(b"\n")
    lines = [_read_line(part, number) for number, part in enumerate(parts, 1)]
    if tail and _is_line(tail[:-1]):
        message = "The end of its last line is damaged."
        raise SnapshotCorruptError(message)
    size = len(data) - len(tail)
    unfinished = lines[-1].last if lines and lines[-1].last > len(lines) else 0
    while lines and lines[-1].last == unfinished:
        size -= len(parts[len(lines) - 1]) + 1
        lines.pop()
    return lines, size


def _read_line(data: bytes, number: int) -> _Line:
    try:
        line = msgspec.json.decode(data, type=_Line)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotCorruptError(f"Line {number} cannot be read: {str(error).rstrip('.')}.") from None
    check = _check(b"%d" % line.position, b"%d" % line.last, bytes(line.entry))
    if line.position != number or line.last < number or line.check != check:
        raise SnapshotCorruptError(f"Line {number} is not what was written.")
    return line


def _is_line(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=_Line)
    except (msgspec.MsgspecError, ValueError):
        return False
    return True
