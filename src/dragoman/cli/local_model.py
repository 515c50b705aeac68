"""The model on this machine, as far as the command line needs to know it.

Owns: the name that stands for it, and whether this installation can run it.
Must not know: how the model is fetched and run (dragoman.engines.local).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .terminal import Terminal

__all__ = ["DEFAULT_MODEL", "INSTALL", "fetch", "is_local", "is_there"]

DEFAULT_MODEL: Final = "local:qwen2.5-coder-1.5b"
"""What answers where there is no key."""

INSTALL: Final = "pip install 'dragoman[local]'"

_RUNTIME: Final = "xllamacpp"


def is_local(model: str) -> bool:
    """Whether the name is one of the model on this machine."""
    return model.partition(":")[0] == "local"


def is_there() -> bool:
    """Whether this installation can run it."""
    return find_spec(_RUNTIME) is not None


def fetch(model: str, terminal: Terminal) -> None:
    """Fetch a model that is not here yet, before anything else is on the screen. Files given by path are left alone."""
    from dragoman.engines.local.progress import bar_if_terminal
    from dragoman.engines.local.storage import models, pull

    name = model.partition(":")[2]
    for row in models():
        if row.name == name and not row.present and is_there():
            terminal.note(f"dragoman: {model} is fetched now, once ({row.download / 1e9:.1f} GB).", "yellow")
            pull(name, None if terminal.quiet else bar_if_terminal(terminal.stderr))
