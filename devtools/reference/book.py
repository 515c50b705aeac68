"""Every public name with its place: page, heading and address.

Owns: gathering the names of each page, their order, and where a link to one leads.
Must not know: how an entry is written.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .classes import Class, Member
from .contents import INSIDE
from .sources import Definition, Function, Package

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .contents import Page, Section

__all__ = ["Book", "Entry", "slug"]


def slug(heading: str) -> str:
    """The address that Markdown gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One public name."""

    namespace: str
    name: str
    definition: Definition
    file: str
    kind: str
    """`class`, `exception`, `function`, `type` or `constant`."""

    @property
    def heading(self) -> str:
        if self.kind == "function":
            return f"{self.name}()"
        name = self.name.replace("__", r"\_\_")  # which Markdown would print in bold
        return f"{self.kind} {name}" if self.kind in {"class", "type"} else name

    @property
    def address(self) -> str:
        return f"{self.file}#{slug(self.heading)}"

    @property
    def doc(self) -> str:
        return self.definition.doc


class Book:
    """All entries of all pages."""

    def __init__(self, package: Package, pages: Sequence[Page]) -> None:
        self.package: Package = package
        self.pages: Sequence[Page] = pages
        self.entries: dict[str, list[Entry]] = {page.file: list(self._gathered(page)) for page in pages}
        """Those of each page, in its order."""
        everything = [entry for entries in self.entries.values() for entry in entries]
        self.all: list[Entry] = everything
        self._by_definition: dict[Definition, Entry] = {entry.definition: entry for entry in everything}
        self._classes: dict[Definition, Class] = {}
        self._by_name: dict[str, list[Entry]] = {}
        for entry in everything:
            self._by_name.setdefault(entry.name, []).append(entry)

    def _gathered(self, page: Page) -> Iterator[Entry]:
        for section in page.sections:
            for name, definition in self._names(section):
                kind = self._kind(definition)
                yield Entry(namespace=section.namespace, name=name, definition=definition, file=page.file, kind=kind)

    def _names(self, section: Section) -> list[tuple[str, Definition]]:
        found: list[tuple[tuple[int, int, str, int], str, Definition]] = []
        module = self.package.module(section.namespace)
        for name in section.only or (() if module is None else module.public):
            definition = self.package.definition(section.namespace, name)
            if definition is None:
                if section.only:
                    message = f"{section.namespace} has no {name!r}; correct devtools/reference/contents.py"
                    raise LookupError(message)
                continue  # a module
            rank = _rank(definition.module.name, section.modules)
            if rank is not None:
                found.append((_place(name, definition, section, rank), name, definition))
        names = {name: definition for _, name, definition in sorted(found, key=lambda each: each[0])}
        return [(name, names[name]) for name in _twins_together(names)]

    def _kind(self, definition: Definition) -> str:
        node = definition.node
        if isinstance(node, Function):
            return "function"
        if isinstance(node, ast.ClassDef):
            return "exception" if Class(self.package, definition).kind == "exception" else "class"
        is_type = isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)
        looks_like_one = (
            isinstance(node, ast.Assign) and definition.name[:1].isupper() and not definition.name.isupper()
        )
        return "type" if is_type or looks_like_one else "constant"

    def entry(self, definition: Definition) -> Entry | None:
        """The entry of what stands at this place of the source."""
        return self._by_definition.get(definition)

    def class_of(self, entry: Entry) -> Class:
        """The class that an entry is about; one with an entry of its own is not merged into another."""
        if entry.definition not in self._classes:
            self._classes[entry.definition] = Class(self.package, entry.definition, self._by_definition.__contains__)
        return self._classes[entry.definition]

    def members(self, entry: Entry) -> list[Member]:
        """What is shown of a class."""
        hidden = INSIDE.get(f"{entry.namespace}.{entry.name}", frozenset[str]())
        return [member for member in self.class_of(entry).members if member.name not in hidden]

    def named(self, name: str, near: Entry) -> Entry | None:
        """The entry that a text means by this name: on its own page first, then of `dragoman`, then the only one."""
        found = self._by_name.get(name, [])
        here = [each for each in found if each.file == near.file]
        top = [each for each in found if each.namespace == self.package.name]
        likely = here or top or (found if len(found) == 1 else [])
        return likely[0] if likely else None

    def missing(self) -> list[str]:
        """Public names of the package, and of the namespaces that pages are about, that are on no page."""
        sections = [section for page in self.pages for section in page.sections if not section.only]
        found: list[str] = []
        for namespace in dict.fromkeys([self.package.name, *[section.namespace for section in sections]]):
            module = self.package.module(namespace)
            for name in [] if module is None else module.public:
                made = self.package.definition(namespace, name)
                if made is not None and made not in self._by_definition:
                    found.append(f"{namespace}.{name}")
        return found


def _twins_together(names: Iterable[str]) -> list[str]:
    """The names, with what is for event loops right behind its twin for plain programs."""
    known = list(names)
    behind = {name.removeprefix("Async"): name for name in known if name.startswith("Async")}
    alone = [name for name in known if name not in behind.values() or name.removeprefix("Async") not in known]
    return [each for name in alone for each in ([name, behind[name]] if name in behind else [name])]


def _place(name: str, definition: Definition, section: Section, rank: int) -> tuple[int, int, str, int]:
    """What names of a section are sorted by."""
    if name in section.first:
        return (0, section.first.index(name), "", 0)
    return (2 if name in section.last else 1, rank, definition.module.name, definition.node.lineno)


def _rank(module: str, modules: Sequence[str]) -> int | None:
    """Which of these modules it is, or is below of; the most exact one counts."""
    if not modules:
        return 0
    fitting = [each for each in modules if module == each or module.startswith(f"{each}.")]
    return modules.index(max(fitting, key=len)) if fitting else None
