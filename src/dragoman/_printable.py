"""Texts of models, tools and servers, made harmless for a terminal."""

from typing import Final

_KEPT: Final = "\n\t\u200d"
"""Not printable, and harmless: the last one joins emoji."""


def escape_controls(text: str) -> str:
    """The text without what a terminal takes for a command, or what turns around the order of its letters."""
    if text.isprintable():
        return text
    kept = [each for each in text if each != "\r"]
    return "".join([each if each.isprintable() or each in _KEPT else f"\\u{ord(each):04x}" for each in kept])


def to_line(text: str) -> str:
    return " ".join(escape_controls(text).split())
