"""The list of uploads, by content, so that nothing is uploaded twice, not even by a later process.

Owns: StoredFile, FileList.
Must not know: providers' APIs.
"""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from dragoman._decoding import decode_as
from dragoman._descriptors import replace_file
from dragoman.conversation import Media
from dragoman.errors import MalformedDataError

_MARGIN: Final = 600.0
"""A file counts as gone this many seconds before it expires: a request with it may take a while."""
_LOCK: Final = threading.Lock()
"""Held while a list is changed: one lock for all lists, since two may have the same path."""


class StoredFile(Struct, frozen=True, kw_only=True):
    """A file that a provider stores."""

    provider: str
    base_url: str
    id: str
    """How messages refer to it."""
    handle: str
    """How it is deleted."""
    sha256: str
    """Of its content."""
    mime_type: str
    size: int
    name: str | None = None
    expires: datetime | None = None
    """When the provider deletes it; None: never, or unknown."""

    @property
    def media(self) -> Media:
        """A reference to it."""
        return Media.from_file(self.provider, self.id, mime_type=self.mime_type, name=self.name)

    def is_there(self, now: float) -> bool:
        """Whether it can still be used at this Unix time."""
        return self.expires is None or self.expires.timestamp() - now > _MARGIN


class FileList:
    """Stored files, in memory or in a JSON file that only its owner can read. Use one for each account.

    Threads can share it. If two processes write the file at the same moment, one entry may be lost: that content is
    then uploaded again.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path: Path | None = None if path is None else Path(path)
        self._known: dict[str, StoredFile] = {}

    def find(self, provider: str, base_url: str, sha256: str) -> StoredFile | None:
        with _LOCK:
            return self._read().get(f"{provider} {base_url} {sha256}")

    def all(self) -> list[StoredFile]:
        with _LOCK:
            return list(self._read().values())

    def add(self, file: StoredFile) -> None:
        with _LOCK:
            known = self._read()
            known[f"{file.provider} {file.base_url} {file.sha256}"] = file
            self._write(known)

    def remove(self, file: StoredFile) -> None:
        with _LOCK:
            known = self._read()
            if known.pop(f"{file.provider} {file.base_url} {file.sha256}", None) is not None:
                self._write(known)

    def _read(self) -> dict[str, StoredFile]:
        if self.path is not None and self.path.exists():
            try:
                self._known = decode_as(self.path.read_bytes(), dict[str, StoredFile])
            except msgspec.MsgspecError as error:
                hint = "Remove it: files are then uploaded again."
                raise MalformedDataError(f"{self.path.name} is not a list of files: {error}.", hint=hint) from None
        return self._known

    def _write(self, known: dict[str, StoredFile]) -> None:
        self._known = known
        if self.path is not None:
            replace_file(self.path, msgspec.json.encode(known))
