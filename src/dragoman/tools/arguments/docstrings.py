"""Parses docstrings in the styles of Google, NumPy and Sphinx.

Sections about parameters are parsed and removed from the description. Everything else stays as it was written, as does
a section in which no parameter is found.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

_TITLE = re.compile(
    r"(?P<indent>\s*)(?:(?:Keyword |Other )?(?:Args|Arguments|Parameters|Params)|Attributes)(?P<colon>:?)\s*"
)
"""The title of a section: in Google's style with a colon, in NumPy's without one and underlined."""
_UNDERLINE = re.compile(r"\s*-{3,}\s*")
_SPHINX = re.compile(
    r"(?P<indent>\s*):(?:(?:param|parameter|arg|argument|key|keyword|attribute|ivar)\b(?P<names>[^:]*)"
    r"|(?:type|vartype)\b[^:]*):\s*(?P<text>.*)"
)
_GOOGLE_ENTRY = re.compile(r"(?P<names>[*\\`]*[\w.]+`*)\s*(?:\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY = re.compile(r"(?P<names>[*\\]*[\w.]+(?:\s*,\s*[*\\]*[\w.]+)*)\s*(?::.*)?(?P<text>)")

_GAP = re.compile(r"\n{3,}")


def parse_docstring(text: str | None) -> tuple[str, Mapping[str, str]]:
    """The description, and the description of each parameter."""
    lines = _lines(text or "")
    rest: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        found, end = _section(lines, at)
        if end == at:
            rest.append(lines[at])
            end += 1
        parameters |= found
        at = end
    return _GAP.sub("\n\n", "\n".join(rest)).strip(), parameters


def _lines(text: str) -> list[str]:
    lines = inspect.cleandoc(text).splitlines()
    is_title = len(lines) > 1 and lines[0].rstrip().endswith(":") and _TITLE.fullmatch(lines[0])
    if is_title and not lines[1].startswith(" "):
        # If there are only parameters, cleandoc takes their indentation for that of the code.
        lines[1:] = [f"    {line}" for line in lines[1:]]
    return lines


def _section(lines: list[str], at: int) -> tuple[dict[str, str], int]:
    """The parameters of the section that starts on a line, and the line after it; the same line if there is none."""
    if match := _TITLE.fullmatch(lines[at]):
        start, end, entry = at + 1, at, _GOOGLE_ENTRY
        if match["colon"]:
            end = _indented(lines, start, len(match["indent"]))
        elif _underlined(lines, at):
            start, entry = at + 2, _NUMPY_ENTRY
            end = next((line for line in range(start, len(lines)) if _underlined(lines, line)), len(lines))
        found = _entries(lines[start:end], entry)
        return found, end if found else at
    if ":" in lines[at] and (match := _SPHINX.fullmatch(lines[at])):
        end = _indented(lines, at + 1, len(match["indent"]))
        return _entries(lines[at:end], _SPHINX), end
    return {}, at


def _underlined(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and bool(lines[at].strip()) and _UNDERLINE.fullmatch(lines[at + 1]) is not None


def _indented(lines: list[str], start: int, indent: int) -> int:
    """The first line from `start` on that is neither blank nor indented further."""
    end = start
    for at in range(start, len(lines)):
        line = lines[at]
        if line.strip():
            if len(line) - len(line.lstrip()) <= indent:
                break
            end = at + 1
    return end


def _entries(lines: list[str], entry: re.Pattern[str]) -> dict[str, str]:
    """The text for each parameter. An entry begins with a name; any other line continues the last entry."""
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    margin = min([len(line) - len(line.lstrip()) for line in lines if line.strip()], default=0)
    for line in lines:
        if match := entry.fullmatch(line, margin):
            current = [match["text"]]
            # NumPy style may describe several at once, `x, y : float`; Sphinx writes the type before the name.
            for name in (match["names"] or "").split(","):
                entries[name.split()[-1].strip("*\\`") if name.strip() else ""] = current
        else:
            current.append(line[margin:])
    texts = {name: inspect.cleandoc("\n".join(text)) if text[1:] else text[0] for name, text in entries.items() if name}
    return {name: text for name, text in texts.items() if text}
