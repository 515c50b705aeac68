"""Escape the texts of models, tools and servers for a terminal."""

from typing import Final

_SAFE: Final = "\n\t\u200d"
"""Not printable, but safe: the last one joins emoji."""


def escape_controls(text: str) -> str:
    """Escape control sequences, and characters that change the order of the text."""
    if text.isprintable():
        return text
    characters = text.replace("\r", "")
    return "".join([each if each.isprintable() or each in _SAFE else f"\\u{ord(each):04x}" for each in characters])


def to_line(text: str) -> str:
    return " ".join(escape_controls(text).split())
