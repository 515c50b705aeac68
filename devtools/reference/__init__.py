"""The reference in docs/reference/, made from the docstrings: `python3 dev.py reference`.

    sources.py      the package as text, and where names are made
    signatures.py   signatures in the words of the source
    classes.py      classes taken apart
    contents.py     which page shows what
    book.py         every name with its place
    likeness.py     members that are the same elsewhere
    prose.py        docstrings as Markdown
    entries.py      one entry as Markdown

Owns: the pages as a whole, writing them, and telling whether they are out of date.

It reads the source and imports nothing of it: neither the installed extras nor the version of Python make a difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devtools.places import ROOT, SOURCES

from .book import Book
from .contents import PAGES
from .entries import entry_text
from .likeness import likenesses
from .prose import first_sentence, markdown
from .sources import Package

if TYPE_CHECKING:
    from pathlib import Path

    from .book import Entry
    from .contents import Page

__all__ = ["pages", "problems", "undocumented", "write"]

PLACE = ROOT / "docs" / "reference"
COMMAND = "python3 dev.py reference"
NOTE = f"<!-- Made from the docstrings by `{COMMAND}`; do not edit. -->"
INDEX = "README.md"
ABOUT = (
    "Every public name, what it takes and what it gives, in the words of the docstrings. How they are used is told by "
    "the [tutorial](../tutorial.md) and by the guide that each page names at its top."
)


def book() -> Book:
    """Every public name of the package in this checkout."""
    return Book(Package(SOURCES, "dragoman"), PAGES)


def pages(made: Book | None = None) -> dict[str, str]:
    """The text of each page."""
    made = made or book()
    return {INDEX: _index(made), **{page.file: _page(made, page) for page in made.pages}}


def write(place: Path = PLACE, made: Book | None = None) -> list[str]:
    """Bring the pages up to date; those that were changed, made or removed."""
    place.mkdir(parents=True, exist_ok=True)
    wanted = pages(made)
    changed: list[str] = []
    for file in sorted(place.glob("*.md")):
        if file.name not in wanted:
            file.unlink()
            changed.append(file.name)
    for name, text in wanted.items():
        file = place / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8", newline="\n")
            changed.append(name)
    return changed


def problems(place: Path = PLACE, made: Book | None = None) -> list[str]:
    """What is wrong with the reference, each with what to do; empty when it is up to date."""
    made = made or book()
    found = [
        f"{name} is public and on no page of the reference. Name its module in devtools/reference/contents.py."
        for name in made.missing()
    ]
    wanted = pages(made)
    for name, text in wanted.items():
        file = place / name
        if not file.exists():
            found.append(f"docs/reference/{name} is missing. Make it with: {COMMAND}")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"docs/reference/{name} is out of date with the docstrings. Make it again with: {COMMAND}")
    found += [
        f"docs/reference/{file.name} is no page of the reference. Remove it with: {COMMAND}"
        for file in sorted(place.glob("*.md"))
        if file.name not in wanted
    ]
    return found


def undocumented(made: Book | None = None) -> list[str]:
    """Public names, and public methods and properties of classes, that say nothing about themselves."""
    made = made or book()
    found: list[str] = []
    for entry in (entry for entries in made.entries.values() for entry in entries):
        if not entry.doc:
            found.append(f"{entry.namespace}.{entry.name}")
        if entry.kind not in {"class", "exception"}:
            continue
        known = {member.name for like in likenesses(made, entry) for member in like.members}
        silent = [member for member in made.members(entry) if not member.doc and member.name not in known]
        found += [
            f"{entry.namespace}.{entry.name}.{member.name}"
            for member in silent
            if member.kind not in {"attribute", "value"} and not member.name.startswith("__")
        ]
    return found


# --- pages -----------------------------------------------------------------------------------------------------------


def _page(made: Book, page: Page) -> str:
    guide = f" · how it is used: [{page.guide}](../{page.guide})" if page.guide else ""
    entries = made.entries[page.file]
    usual = page.sections[0].namespace
    parts = [NOTE, f"# {page.title}", f"[Reference]({INDEX}){guide}", page.about, f"Names are imported from `{usual}`."]
    parts += [_tree(made, entries)] if usual == "dragoman.errors" else []
    parts += [entry_text(made, entry, usual) for entry in entries]
    return "\n\n".join([part for part in parts if part]) + "\n"


def _tree(made: Book, entries: list[Entry]) -> str:
    """The errors as a list, each below the one that it is a kind of."""
    lines: list[str] = []

    def add(entry: Entry, depth: int) -> None:
        said = markdown(first_sentence(entry.doc))
        lines.append(f"{'  ' * depth}- [{entry.name}]({entry.address.removeprefix(entry.file)}) — {said}")
        for other in entries:
            if other.kind == "exception" and entry.definition in made.class_of(other).bases:
                add(other, depth + 1)

    for entry in entries:
        if entry.kind == "exception" and not made.class_of(entry).named_bases:
            add(entry, 0)
    return "\n".join(lines)


def _index(made: Book) -> str:
    parts = [
        NOTE,
        "# Reference",
        ABOUT,
        "\n".join([f"- [{page.title}]({page.file}) — {page.about}" for page in made.pages]),
    ]
    for page in made.pages:
        parts.append(f"## {page.title}")
        parts.append("\n".join([_item(entry) for entry in made.entries[page.file]]))
    return "\n\n".join(parts) + "\n"


def _item(entry: Entry) -> str:
    said = markdown(first_sentence(entry.doc))
    shown = f"{entry.name}()" if entry.kind == "function" else entry.name
    return f"- [`{shown}`]({entry.address})" + (f" — {said}" if said else "")
