"""What a terminal shows of the bytes that a program writes: enough of one for what rich and prompt_toolkit write.

Lines that scroll out are kept, so that the whole of a run can be read. Anything that is not known is an error rather
than a guess.
"""

from __future__ import annotations

import re

__all__ = ["Screen"]

_PIECE = re.compile(
    r"\x1b\[(?P<private>\??)(?P<numbers>[0-9;]*)(?P<final>[A-Za-z])|\x1b\][^\x07]*\x07|\x1b(?P<short>[=>78M])|(?P<letter>.)",
    re.DOTALL,
)


class Screen:
    """Rows of letters and their colours."""

    def __init__(self, width: int) -> None:
        self._width: int = width
        self._rows: list[list[tuple[str, str]]] = [[]]
        self._row: int = 0
        self._column: int = 0
        self._style: str = ""

    def write(self, text: str) -> None:
        """Take in what a program writes."""
        for piece in _PIECE.finditer(text):
            letter, final = piece["letter"], piece["final"]
            if letter is not None:
                self._put(letter)
            elif final is not None and not piece["private"]:
                self._obey(final, piece["numbers"])

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
        elif letter == "\n":
            self._move(self._row + 1)
        elif letter == "\b":
            self._column = max(0, self._column - 1)
        elif letter.isprintable() or letter == "\u200d":
            if self._column == self._width:
                self._move(self._row + 1)
                self._column = 0
            row = self._rows[self._row]
            row.extend([(" ", "")] * (self._column - len(row)))
            row[self._column : self._column + 1] = [(letter, self._style)]
            self._column += 1
        elif letter != "\x07":
            raise ValueError(f"a terminal is told {letter!r}")

    def _obey(self, final: str, numbers: str) -> None:
        first = int(numbers.partition(";")[0] or 0)
        row = self._rows[self._row]
        match final:
            case "m":
                self._style = "" if numbers in ("", "0") else f"{self._style}\x1b[{numbers}m"
            case "A":
                self._row = max(0, self._row - max(1, first))
            case "B":
                self._move(self._row + max(1, first))
            case "C":
                self._column = min(self._width - 1, self._column + max(1, first))
            case "D":
                self._column = max(0, self._column - max(1, first))
            case "G":
                self._column = max(1, first) - 1
            case "K":
                del row[0 if first == 2 else self._column :]
            case "J" if first == 0:
                del row[self._column :], self._rows[self._row + 1 :]
            case _:
                raise ValueError(f"a terminal is told {final!r} {numbers!r}")

    def _move(self, row: int) -> None:
        self._row = row
        while len(self._rows) <= row:
            self._rows.append([])

    def lines(self, *, colours: bool = False) -> list[str]:
        """What can be read, without the blanks at the ends of lines and of the whole."""
        found: list[str] = []
        for row in self._rows:
            text, before = "", ""
            for letter, style in row:
                text += (f"\x1b[0m{style}" if colours and style != before else "") + letter
                before = style
            found.append(text.rstrip() + ("\x1b[0m" if colours and before else ""))
        while found and not found[-1].strip():
            found.pop()
        return found
