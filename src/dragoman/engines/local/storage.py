"""The models on this machine: which are here, downloading one, removing one. Any number of programs may do so at once.

Beside a model's file stand `….partial`, what was downloaded and verified so far; `….verified`, the note that this very
file was verified; and a lock that a program holds while it changes any of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman._descriptors import owned
from dragoman.directories import cache_directory, home_directory
from dragoman.errors import LocalModelError

from .download import (
    Downloader,
    OnProgress,
    Packages,
    Phase,
    Pip,
    Progress,
    is_verified,
    partial_of,
    stamp_of,
    verify,
)
from .models import DEFAULT, MODELS, LocalModel, model_named

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_VARIABLE: Final = "DRAGOMAN_MODEL_DIR"


class StoredModel(Struct, frozen=True, kw_only=True):
    """A model that can be had, and whether it is here."""

    name: str
    about: str
    licence: str
    size: int
    """Bytes of its file."""
    download: int
    """Bytes to be downloaded."""
    path: Path
    """Where its file is, or would be."""
    present: bool
    fetched: int
    """Bytes of it that are here, where a download was interrupted."""
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
    """All models that can be had by name."""
    return tuple([_describe(row, models_directory() / row.file) for row in MODELS.values()])


def present(name: str = "") -> bool:
    """Whether a model is here, ready to run without a network."""
    row = model_named(name)
    return _size(models_directory() / row.file) == row.size


def pull(name: str = "", progress: OnProgress | None = None, *, packages: Packages | None = None) -> Path:
    """The file of a model, downloaded if it is not here; an empty name means the default model.

    What is here and was verified before is not read again. Raises LocalModelError.
    """
    row = model_named(name)
    file = models_directory() / row.file
    tell = progress or _tell_nobody
    if is_verified(row, file):
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file, waiting=lambda: tell(_state(row, file, "waiting"))):
            if is_verified(row, file):  # another program has done it meanwhile
                pass
            elif file.exists():
                verify(row, file, tell)
            else:
                Downloader(row, file, packages or Pip(), tell).run()
    except BaseException as error:
        tell(_state(row, file, "stopped"))
        if not isinstance(error, OSError):
            raise
        message = f"The directory of models cannot be used: {file.parent}: {error.strerror or error}."
        hint = f"Make it writable, or say where models may be kept: {_VARIABLE}=/path."
        raise LocalModelError(message, reason="failed", hint=hint) from error
    tell(Progress(model=row.name, phase="done", done=row.size, total=row.size))
    return file


def remove(name: str) -> int:
    """Remove a model's file and what was downloaded of it; gives the number of bytes that are free now."""
    file = models_directory() / model_named(name).file
    if not file.parent.is_dir():
        return 0
    freed = 0
    with locked(file):
        for one in (file, partial_of(file), stamp_of(file)):
            freed += _size(one) or 0
            with suppress(FileNotFoundError):
                one.unlink()
    return freed


def _describe(row: LocalModel, file: Path) -> StoredModel:
    here = _size(file) == row.size
    return StoredModel(
        name=row.name,
        about=row.about,
        licence=row.licence,
        size=row.size,
        download=row.download,
        path=file,
        present=here,
        fetched=row.size if here else _size(partial_of(file)) or 0,
        default=row.name == DEFAULT,
    )


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _state(row: LocalModel, file: Path, phase: Phase) -> Progress:
    return Progress(model=row.name, phase=phase, done=min(_size(partial_of(file)) or 0, row.size), total=row.size)


def _tell_nobody(_progress: Progress) -> None:
    """Nobody wants to know."""


# --- one program at a time --------------------------------------------------------------------------------------------


@contextmanager
def locked(file: Path, *, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """Hold the lock of a model's file; `waiting` is called as long as another program holds it.

    The system lets go of it when its holder dies, however it dies. The lock's own file is left behind: removing it
    would let two programs hold locks on two files of one name.
    """
    lock = file.with_name(f".{file.name}.lock")
    with owned(os.open, lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600) as descriptor:
        while not _try_lock(descriptor.number):
            waiting()
            time.sleep(0.2)
        yield  # closing the descriptor lets go of the lock


def _try_lock(descriptor: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt  # which only Windows has

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
