"""Paths as users write them.

Owns: what `~` stands for.
Must not know: what the paths are for.
"""

from __future__ import annotations

from pathlib import Path

from .arguments import UsageError

__all__ = ["user_path"]


def user_path(text: str) -> Path:
    """The path that is meant; `~` is the home directory."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"Nobody here is called {text.partition('/')[0]!r}.", hint="Write the path in full.") from None
