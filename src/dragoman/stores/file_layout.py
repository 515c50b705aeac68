"""What the files of a FileStore are called, and what stands in them (see file.py for the directory).

A snapshot's file has one line, a journal one for each entry, all of the same form.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from dragoman.errors import SnapshotCorruptError, SnapshotError

from .protocol import lost_entries
from .sealing import is_sealed

# --- names -----------------------------------------------------------------------------------------------------------

_ID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
ROOT: Final = re.compile(_ID)
_POINT: Final = re.compile(rf"([0-9]{{6,}})-({_ID})\.json")
_JOURNAL: Final = re.compile(rf"([0-9]{{6,}})-({_ID})\.([0-9]+)\.jsonl")


def point_name(place: int, id: str) -> str:
    return f"{place:06}-{id}.json"


def journal_name(place: int, id: str, length: int) -> str:
    return f"{place:06}-{id}.{length}.jsonl"


class Chain(NamedTuple):
    """A conversation, as the names of its files tell."""

    root: str
    ids: dict[int, str]
    """By place, the first one is 1."""
    journals: dict[str, int]
    """The names of journals, and how many of their lines count."""

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
        """The name of the journal behind the newest snapshot, and how many of its lines count."""
        begin = point_name(self.place, self.newest).removesuffix("json")
        for name, length in self.journals.items():
            if name.startswith(begin):
                return name, length
        message = f"The journal behind snapshot {self.newest} is missing."
        raise SnapshotCorruptError(message, hint=lost_entries(self.root, 0).hint)


def read_names(root: str, names: Sequence[str]) -> Chain | None:
    """The conversation whose files these are; None if there is no snapshot among them."""
    points = sorted([(int(match[1]), match[2]) for match in map(_POINT.fullmatch, names) if match is not None])
    journals = {match[0]: int(match[3]) for match in map(_JOURNAL.fullmatch, names) if match is not None}
    return Chain(root, dict(points), journals) if points else None


# --- lines -----------------------------------------------------------------------------------------------------------


class _Line(Struct, frozen=True):
    position: int
    """The place of a snapshot, or the position of an entry."""
    check: str
    record: Raw
    """JSON; what is sealed is a text, in base64."""


def line_to_json(position: int, record: bytes) -> bytes:
    data = b'"%s"' % base64.b64encode(record) if is_sealed(record) else record
    return msgspec.json.encode(_Line(position, _check(position, data), Raw(data))) + b"\n"


def read_line(data: bytes, position: int) -> bytes:
    """The record that stands in this line. Raises SnapshotCorruptError if it is not the one of this position."""
    try:
        line = msgspec.json.decode(data, type=_Line)
        record = bytes(line.record)
        if line.position != position or line.check != _check(position, record):
            raise SnapshotCorruptError(f"Line {position} is not what was written.")
        return base64.b64decode(record[1:-1], validate=True) if record.startswith(b'"') else record
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotCorruptError(f"Line {position} cannot be read: {str(error).rstrip('.')}.") from None


def _check(position: int, data: bytes) -> str:
    return sha256(b"%d\n%s" % (position, data)).hexdigest()[:32]


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Makes errors about a snapshot or an entry name the file that it came from."""
    try:
        yield
    except SnapshotError as error:
        if str(path) in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error
