"""The command `dragoman`.

Owns: arguments and printing.
Must not know: nothing is hidden from it; it stands on top of every other room.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dragoman._version import __version__

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (the process's own arguments by default) and return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments:
        _parser().parse_args(arguments)  # answers --help, --version and mistakes itself, by SystemExit
    print(f"dragoman {__version__}")
    return 0


def _parser() -> ArgumentParser:
    import argparse  # a command without arguments starts without it

    parser = argparse.ArgumentParser(
        prog="dragoman",
        description="One conversation, any model, tools that behave the same everywhere.",
    )
    parser.add_argument("--version", action="version", version=f"dragoman {__version__}")
    return parser
