"""The names by which the claude program is known here.

Owns: these two words. What the program can do is in dragoman.providers.programs.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_MODEL", "PROVIDER"]

PROVIDER: Final = "claude-local"
DEFAULT_MODEL: Final = "default"
"""Stands for whichever model the program uses by itself."""
