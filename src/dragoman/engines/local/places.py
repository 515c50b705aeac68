"""Where models are kept.

Owns: the directory, and the names of the files beside a model's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dragoman.directories import cache_directory, home_directory

__all__ = ["VARIABLE", "lock_of", "models_directory", "partial_of", "stamp_of"]

VARIABLE: Final = "DRAGOMAN_MODEL_DIR"


def models_directory(environ: Mapping[str, str] | None = None) -> Path:
    """$DRAGOMAN_MODEL_DIR, or `models` in the cache directory. It is not created here."""
    named = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    if not named:
        return cache_directory(environ) / "models"
    if named == "~" or named.startswith(("~/", "~\\")):
        return home_directory(environ) / named[2:]
    return Path(named).absolute()


def partial_of(file: Path) -> Path:
    """What of the file has been fetched and verified so far, from its start."""
    return file.with_name(f"{file.name}.partial")


def stamp_of(file: Path) -> Path:
    """The note that this very file was verified."""
    return file.with_name(f"{file.name}.verified")


def lock_of(file: Path) -> Path:
    """What a program locks while it changes anything of the file."""
    return file.with_name(f".{file.name}.lock")
