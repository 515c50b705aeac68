"""Docstrings: what a function does, and what each parameter means.

Owns: the only import of the docstring parser; its user imports this module when the first docstring is read.
Must not know: functions, hints, schemas.

Only the sections about parameters go to the parser, one by one, and leave the description. Everything else stays as it
was written, and so does a section that the parser does not understand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import NamedTuple

import docstring_parser
from docstring_parser import DocstringStyle
from msgspec import Struct

_TITLES = r"(?:Keyword |Other )?(?:Args|Arguments|Parameters|Params)|Attributes"
_GOOGLE = re.compile(rf"(?P<indent>\s*)(?:{_TITLES}):\s*")
_NUMPY = re.compile(rf"\s*(?:{_TITLES})\s*")
_UNDERLINE = re.compile(r"\s*-{3,}\s*")
_SPHINX = re.compile(
    r"(?P<indent>\s*):(?:param|parameter|arg|argument|key|keyword|type|attribute|ivar|vartype)\b[^:]*:.*"
)


class Documentation(Struct, frozen=True):
    """A docstring taken apart."""

    description: str = ""
    """Everything but the sections about parameters."""
    parameters: Mapping[str, str] = {}


class _Section(NamedTuple):
    style: DocstringStyle
    end: int
    text: str


def parse_docstring(text: str | None) -> Documentation:
    """Take a docstring of any common style apart. What cannot be parsed is part of the description."""
    lines = _lines(text or "")
    rest: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        section = _section(lines, at)
        found = None if section is None else _parsed(section)
        if section is None or found is None:
            rest.append(lines[at])
            at += 1
        else:
            parameters.update(found)
            at = section.end
    return Documentation(re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip(), parameters)


def _lines(text: str) -> list[str]:
    lines = inspect.cleandoc(text).splitlines()
    if len(lines) > 1 and _GOOGLE.fullmatch(lines[0]) and not lines[1].startswith(" "):
        # Nothing but parameters: cleandoc has taken their indentation for that of the code.
        lines[1:] = [f"    {line}" for line in lines[1:]]
    return lines


def _section(lines: list[str], at: int) -> _Section | None:
    """The section about parameters that starts on a line."""
    if match := _GOOGLE.fullmatch(lines[at]):
        end = _indented(lines, at + 1, len(match["indent"]))
        # The parser takes the first line for a summary.
        return _Section(DocstringStyle.GOOGLE, end, "\n".join(["Summary.", "Args:", *lines[at + 1 : end]]))
    if _NUMPY.fullmatch(lines[at]) and _underlined(lines, at):
        end = next((line for line in range(at + 2, len(lines)) if _underlined(lines, line)), len(lines))
        return _Section(DocstringStyle.NUMPYDOC, end, "\n".join(["Parameters", "----------", *lines[at + 2 : end]]))
    if match := _SPHINX.fullmatch(lines[at]):
        end = _indented(lines, at + 1, len(match["indent"]))
        return _Section(DocstringStyle.REST, end, "\n".join(lines[at:end]))
    return None


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


def _parsed(section: _Section) -> dict[str, str] | None:
    """What a section says of each parameter; None if the parser does not understand it."""
    try:
        params = docstring_parser.parse(section.text, section.style).params
    except Exception:  # noqa: BLE001 -- the parsers trip over odd text in many ways, and no text may cost a tool
        return None
    if not params and section.style in {DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC}:
        return None
    return {
        name.strip().lstrip("*\\"): param.description.strip()
        if "\n" not in param.description
        else inspect.cleandoc(param.description)
        for param in params
        for name in param.arg_name.split(",")  # NumPy style may describe several at once: `x, y : float`
        if param.description
    }
