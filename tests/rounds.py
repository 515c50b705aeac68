"""How long the tests that draw at random look: everywhere a part, in a thorough run all of it."""

from __future__ import annotations

import os

__all__ = ["PROFILE", "rounds", "stride"]

PROFILE = os.environ.get("DRAGOMAN_TESTS", "ci" if "CI" in os.environ else "development")
"""For a long look: DRAGOMAN_TESTS=thorough; docs/CONTRIBUTING.md has the command."""


def rounds(all_of_them: int, part: int = 4) -> int:
    """How many rounds a test goes: all of them in a thorough run, else the first quarter (or another part), the same
    ones every time."""
    return all_of_them if PROFILE == "thorough" else all_of_them // part


def stride(step: int) -> int:
    """Of places that a test goes through, every which one it looks at: all in a thorough run."""
    return 1 if PROFILE == "thorough" else step
