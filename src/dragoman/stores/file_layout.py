"""What the files of a FileStore are called, and what stands in them (see file.py for the directory).

A snapshot's file has one line, a journal one for each entry.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dragoman.errors import SnapshotCorruptError, SnapshotError

from .protocol import lost_entries
from .sealing import is_sealed
from .snapshot import ID_PATTERN

# --- names -----------------------------------------------------------------------------------------------------------

ROOT: Final = re.compile(ID_PATTERN)
_POINT: Final = re.compile(rf"([0-9]{{6,}})-({ID_PATTERN})\.json")
_JOURNAL: Final = re.compile(rf"([0-9]{{6,}})-({ID_PATTERN})\.([0-9]+)\.jsonl")


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


def line_of(record: bytes) -> bytes:
    """A record as a line of text: JSON as it is, and what is sealed as a JSON string in base64."""
    return (msgspec.json.encode(record) if is_sealed(record) else record) + b"\n"


def record_of(line: bytes) -> bytes:
    """The record in this line. Raises SnapshotCorruptError."""
    if not line.startswith(b'"'):
        return line.removesuffix(b"\n")
    try:
        return msgspec.json.decode(line, type=bytes)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotCorruptError(f"The line cannot be read: {error}.") from None


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Makes errors about a snapshot or an entry name the file that it came from."""
    try:
        yield
    except SnapshotError as error:
        if str(path) in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error
