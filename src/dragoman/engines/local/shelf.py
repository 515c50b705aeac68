"""The models on this machine: which are here, fetching one, removing one.

Owns: `models`, `pull` and `remove`. Any number of programs may call them at once.
Must not know: engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from dragoman.errors import LocalModelError

from .fetching import Fetcher, Packages, is_verified, verify
from .locking import locked
from .packages import Pip
from .places import lock_of, models_directory, partial_of, stamp_of
from .progress import OnProgress, Phase, Progress
from .table import DEFAULT, MODELS, LocalModel, model_named

__all__ = ["ModelOnShelf", "models", "present", "pull", "remove"]


class ModelOnShelf(Struct, frozen=True, kw_only=True):
    """A model that can be had, and whether it is here."""

    name: str
    about: str
    licence: str
    size: int
    """Bytes of its file."""
    download: int
    """Bytes to be fetched."""
    path: Path
    """Where its file is, or would be."""
    present: bool
    fetched: int
    """Bytes of it that are here, where a fetch was interrupted."""
    default: bool


def models(environ: Mapping[str, str] | None = None) -> tuple[ModelOnShelf, ...]:
    """All models that can be had by name."""
    directory = models_directory(environ)
    return tuple([_on_shelf(row, directory) for row in MODELS.values()])


def _on_shelf(row: LocalModel, directory: Path) -> ModelOnShelf:
    file = directory / row.file
    here = _size(file) == row.size
    return ModelOnShelf(
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


def present(name: str = "", environ: Mapping[str, str] | None = None) -> bool:
    """Whether a model is here, ready to run without a network."""
    row = model_named(name)
    return _size(models_directory(environ) / row.file) == row.size


def pull(
    name: str = "",
    progress: OnProgress | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    packages: Packages | None = None,
) -> Path:
    """The file of a model, fetched if it is not here; an empty name means the default model.

    What is here and was verified before is not read again. Raises LocalModelError.
    """
    row = model_named(name)
    file = models_directory(environ) / row.file
    tell = progress or _tell_nobody
    if is_verified(row, file):
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock_of(file), waiting=lambda: tell(_state(row, file, "waiting"))):
            if is_verified(row, file):  # another program has done it meanwhile
                pass
            elif file.exists():
                verify(row, file, tell)
            else:
                Fetcher(row, file, packages or Pip(), tell).fetch()
    except BaseException as error:
        tell(_state(row, file, "stopped"))
        if not isinstance(error, OSError):
            raise
        message = f"The directory of models cannot be used: {file.parent}: {error.strerror or error}."
        hint = "Make it writable, or say where models may be kept: DRAGOMAN_MODEL_DIR=/path."
        raise LocalModelError(message, reason="failed", hint=hint) from error
    tell(Progress(model=row.name, phase="done", done=row.size, total=row.size))
    return file


def _state(row: LocalModel, file: Path, phase: Phase) -> Progress:
    done = _size(partial_of(file)) or 0
    return Progress(model=row.name, phase=phase, done=min(done, row.size), total=row.size)


def _tell_nobody(_progress: Progress) -> None:
    """Nobody wants to know."""


def remove(name: str, *, environ: Mapping[str, str] | None = None) -> int:
    """Remove a model's file and what was fetched of it; gives the number of bytes that are free now."""
    row = model_named(name)
    file = models_directory(environ) / row.file
    if not file.parent.is_dir():
        return 0
    freed = 0
    with locked(lock_of(file)):
        for one in (file, partial_of(file), stamp_of(file)):
            freed += _size(one) or 0
            with suppress(FileNotFoundError):
                one.unlink()
    return freed
