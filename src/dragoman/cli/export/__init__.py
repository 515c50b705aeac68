"""Conversations as documents for people and programs.

markdown.py   for reading, and for other tools that read Markdown
html.py       one page that needs nothing else
JSON          is the stored form itself
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dragoman.stores.json_form import snapshot_to_json
from dragoman.stores.snapshot import Snapshot

from .html import to_html
from .markdown import to_markdown

__all__ = ["FORMATS", "Format", "export", "format_of"]

Format: TypeAlias = Literal["markdown", "json", "html"]

FORMATS: Final[Mapping[Format, Callable[[Snapshot], str]]] = {
    "markdown": to_markdown,
    "json": lambda snapshot: snapshot_to_json(snapshot).decode() + "\n",
    "html": to_html,
}
_SUFFIXES: Final[Mapping[str, Format]] = {".json": "json", ".html": "html", ".htm": "html"}


def format_of(path: Path) -> Format:
    """The format that a file's name asks for."""
    return _SUFFIXES.get(path.suffix.lower(), "markdown")


def export(snapshot: Snapshot, format: Format) -> str:
    """The conversation as a document."""
    return FORMATS[format](snapshot)
