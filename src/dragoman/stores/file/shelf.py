"""The directories of a store, open for the time of one operation.

Owns: the layout on disk, who the store is, and which conversation a snapshot belongs to.
Must not know: what heads, logs and journals hold.

    store.json                   the format, its version, the id of the store, and what it seals
    heads/<root>.head            one small file a conversation; it exists if and only if the conversation does
    logs/<root>.<number>.log     its snapshots, appended one behind the other
    logs/<root>.journal          what was recorded since the newest
    ids/<xx>/<id>.<root>         empty: says which conversation a later snapshot belongs to
    locks/<xx>                   empty: what writers lock

Nothing is kept open between operations: a directory that went away and came back is found again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from dragoman.errors import SnapshotError, StoreError
from dragoman.stores.ids import validate_snapshot_id
from dragoman.stores.sealing import is_sealed

from .folder import Folder
from .frames import head_from_bytes
from .locks import Locks
from .seals import Mode

__all__ = [
    "GONE",
    "HEAD",
    "JOURNAL",
    "Shelf",
    "change_mode",
    "head_name",
    "journal_name",
    "log_name",
    "make_store",
    "opened",
]

HEAD: Final = ".head"
JOURNAL: Final = ".journal"
GONE: Final = ".gone"
"""The end of the name of a head whose conversation was deleted; it exists while the rest is being removed."""
_MARKER: Final = "store.json"
_FORMAT: Final = "dragoman.files"
_VERSION: Final = 1


class _Kind(Struct, frozen=True, kw_only=True):
    format: str = ""
    version: int = 0


class _Marker(Struct, frozen=True, kw_only=True):
    format: str = _FORMAT
    version: int = _VERSION
    id: str
    mode: Mode


class Shelf(Struct, frozen=True, kw_only=True):
    """A store's open directories."""

    base: Folder
    heads: Folder
    logs: Folder
    ids: Folder
    locks: Folder | None
    """None where there was nothing to lock yet."""
    store: str | None
    """The id of the store; None if its marker is lost (each head knows it, too)."""
    mode: Mode | None
    """What the store seals; None if its marker is lost."""

    def roots_of(self, id: str) -> list[str]:
        """The conversations that may hold this snapshot: one, as a rule. Their logs have the last word."""
        return [root for root in (id, *self._pointed(id)) if self.heads.has(head_name(root))]

    def _pointed(self, id: str) -> list[str]:
        folder = self.ids.folder(id[-2:])
        if folder is None:
            return []
        with folder:
            roots = [name[len(id) + 1 :] for name in folder.names() if name.startswith(f"{id}.")]
        return [root for root in roots if _is_id(root)]

    def point(self, id: str, root: str) -> None:
        """Note that this snapshot belongs to that conversation."""
        with self.ids.made_folder(id[-2:]) as folder:
            folder.mark(f"{id}.{root}")
            folder.sync()

    def forget(self, id: str, root: str) -> None:
        """Remove such a note."""
        folder = self.ids.folder(id[-2:])
        if folder is not None:
            with folder:
                folder.remove(f"{id}.{root}")

    def forget_all(self, root: str) -> None:
        """Remove every note that leads to this conversation, where nobody knows its snapshots any more."""
        for part in self.ids.names():
            folder = self.ids.folder(part)
            if folder is not None:
                with folder:
                    for name in folder.names():
                        if name.endswith(f".{root}"):
                            folder.remove(name)


def head_name(root: str) -> str:
    return root + HEAD


def log_name(root: str, generation: int) -> str:
    return f"{root}.{generation}.log"


def journal_name(root: str) -> str:
    return root + JOURNAL


def _is_id(text: str) -> bool:
    try:
        validate_snapshot_id(text)
    except SnapshotError:
        return False
    return True


# --- opening ---------------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path) -> Generator[Shelf | None]:
    """The store at this path, to read it; None if there is none. Writes nothing, so it may be read-only."""
    with ExitStack() as stack:
        base = Folder.at(path)
        if base is None:
            yield None
            return
        stack.enter_context(base)
        found = [base.folder(name) for name in ("heads", "logs", "ids", "locks")]
        for folder in found:
            if folder is not None:
                stack.enter_context(folder)
        heads, logs, ids, locks = found
        if heads is None or logs is None or ids is None:
            yield None
            return
        marker = _marker(base)
        store, mode = (None, None) if marker is None else (marker.id, marker.mode)
        yield Shelf(base=base, heads=heads, logs=logs, ids=ids, locks=locks, store=store, mode=mode)


def make_store(path: Path, locks: Locks, mode: Mode, *, new_id: Callable[[], uuid.UUID] = uuid.uuid4) -> None:
    """Make whatever is missing of the store at this path; if it is new, of this mode."""
    with ExitStack() as stack:
        base = stack.enter_context(Folder.made(path))
        made = {name: stack.enter_context(base.made_folder(name)) for name in ("logs", "ids", "heads", "locks")}

        def write() -> None:
            if _marker(base) is None:
                _write_marker(base, _recovered(made["heads"], mode) or _Marker(id=str(new_id()), mode=mode))

        locks.store_held(made["locks"], write)


def change_mode(shelf: Shelf, locks: Locks, mode: Mode) -> None:
    """Note that the store is of another mode from now on."""
    assert shelf.locks is not None

    def write() -> None:
        marker = _marker(shelf.base)
        if marker is not None and marker.mode != mode:
            _write_marker(shelf.base, structs.replace(marker, mode=mode))

    locks.store_held(shelf.locks, write)


def _write_marker(base: Folder, marker: _Marker) -> None:
    base.replace(_MARKER, msgspec.json.encode(marker) + b"\n")


def _marker(base: Folder) -> _Marker | None:
    """The store's marker; None if there is none, or none that can be read, which is as good as lost."""
    try:
        data = base.read(_MARKER)
        if data is None:
            return None
        kind = msgspec.json.decode(data, type=_Kind)
        if kind.format == _FORMAT and kind.version > _VERSION:
            message = f"The store is of version {kind.version}; this dragoman reads up to {_VERSION}."
            raise StoreError(message, hint="Upgrade dragoman: pip install --upgrade dragoman.")
        marker = msgspec.json.decode(data, type=_Marker)
        validate_snapshot_id(marker.id)
    except (msgspec.MsgspecError, ValueError, RecursionError, SnapshotError):
        return None
    return marker if kind.format == _FORMAT else None


def _recovered(heads: Folder, mode: Mode) -> _Marker | None:
    """The marker of a store that has lost it, from what any of its heads says."""
    for name in sorted(heads.names()):
        if name.endswith(HEAD):
            try:
                head = head_from_bytes(heads.read(name) or b"")
            except SnapshotError:
                continue
            return _Marker(id=head.store, mode="sealed" if is_sealed(head.summary) else mode)
    return None
