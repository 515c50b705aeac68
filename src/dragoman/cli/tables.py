"""Lists on standard output: for people in columns, for programs as JSON.

Owns: the form of lists.
Must not know: what is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from .terminal import Terminal, one_line

__all__ = ["print_json", "print_table"]


def print_table(terminal: Terminal, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows in columns under a head; the last column is as wide as it likes, or as the terminal is."""
    cells = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    wide = [max(len(row[index]) for row in cells) for index in range(len(head) - 1)]
    for row in cells:
        line = "  ".join([f"{cell:<{width}}" for cell, width in zip(row, wide, strict=False)] + [row[-1]]).rstrip()
        most = terminal.width
        terminal.line(line if not terminal.out_is_tty or len(line) <= most else line[: most - 1] + "…")


def print_json(terminal: Terminal, value: object) -> None:
    """A value as JSON, with line ends for people."""
    terminal.line(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
