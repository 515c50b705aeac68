"""The models on this machine: which are here, downloading one, removing one. Any number of programs may do so at once.

Beside a model's file stand `….partial`, what was downloaded and verified so far; `….verified`, the note that this very
file was verified; and a lock that a program holds while it changes any of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import structs

from dragoman._descriptors import owned
from dragoman._stop import sleep
from dragoman.directories import cache_directory, home_directory
from dragoman.errors import LocalModelError

from .download import OnProgress, Phase, Progress, checksum, download, partial_of
from .models import DEFAULT, MODELS, LocalModel, model_named

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_VARIABLE: Final = "DRAGOMAN_MODEL_DIR"


class StoredModel(LocalModel, frozen=True, kw_only=True):
    """A model that can be downloaded, and whether it is here."""

    path: Path
    """Where its file is, or would be."""
    fetched: int
    """Bytes of it that are here."""
    present: bool
    default: bool


def models_directory(environ: Mapping[str, str] | None = None) -> Path:
    """$DRAGOMAN_MODEL_DIR, or `models` in the cache directory. It is not created here."""
    named = (os.environ if environ is None else environ).get(_VARIABLE, "").strip()
    if not named:
        return cache_directory(environ) / "models"
    if named == "~" or named.startswith(("~/", "~\\")):
        return home_directory(environ) / named[2:]
    return Path(named).absolute()


def models() -> tuple[StoredModel, ...]:
    """All models that are known by a name."""
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
    """The file of a model, downloaded if it is not here; an empty name means the default model.

    What is here and was verified before is not read again. Raises LocalModelError.
    """
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
            if not is_verified(row, file):  # which another program may have done meanwhile
                if not file.exists():
                    download(row, file, tell)
                elif _size(file) != row.size or checksum(file, tell) != row.sha256:
                    message = f"The file {file} is not {row.name}: its checksum is another."
                    hint = "Remove it and fetch the model again, or use it under its path: local:/path/to/file.gguf."
                    raise LocalModelError(message, reason="checksum", hint=hint)
                _write_stamp(row, file)
    except BaseException as error:
        tell("stopped")
        if not isinstance(error, OSError):
            raise
        message = f"The directory of models cannot be used: {file.parent}: {error.strerror or error}."
        hint = f"Make it writable, or say where models may be kept: {_VARIABLE}=/path."
        raise LocalModelError(message, reason="failed", hint=hint) from error
    tell("done", row.size)
    return file


def remove(name: str) -> int:
    """Remove a model's file and what was downloaded of it; gives the number of bytes that are free now."""
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


# --- the note that a file was verified --------------------------------------------------------------------------------


def stamp_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.verified")


def is_verified(row: LocalModel, file: Path) -> bool:
    """Whether the file is there, and is the one that was verified. It is not read."""
    try:
        return stamp_of(file).read_text(encoding="utf-8") == _stamp(row, file)
    except (OSError, UnicodeDecodeError):
        return False


def _write_stamp(row: LocalModel, file: Path) -> None:
    stamp = stamp_of(file)
    fresh = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    fresh.write_text(_stamp(row, file), encoding="utf-8")
    fresh.replace(stamp)


def _stamp(row: LocalModel, file: Path) -> str:
    state = file.stat()  # the time of the last change cannot be set by those who put another file in its place
    return f"{row.sha256} {state.st_size} {state.st_ino} {state.st_ctime_ns}\n"


# --- one program at a time --------------------------------------------------------------------------------------------


@contextmanager
def locked(file: Path, *, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """Hold the lock of a model's file; `waiting` is called as long as another program holds it.

    The system lets go of it when its holder dies, however it dies. The lock's own file is left behind: removing it
    would let two programs hold locks on two files of one name.
    """
    lock = file.with_name(f".{file.name}.lock")
    with owned(os.open, lock, os.O_RDWR | os.O_CREAT, 0o600) as descriptor:
        while not try_lock(descriptor.number):
            waiting()
            sleep(0.2)
        yield  # closing the descriptor lets go of the lock


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, unless somebody else has; a shared lock keeps out only those who want it for themselves."""
    if fcntl is None:
        message = "Local models need Linux, macOS or another POSIX system."
        raise LocalModelError(message, reason="failed", hint="Use a provider's model, or one that Ollama runs: ollama:")
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
