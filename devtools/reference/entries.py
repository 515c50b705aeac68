"""One entry as Markdown: heading, signature, docstring, members.

Owns: how a class, a function, a type and a constant look on a page.
Must not know: which entries a page has.
"""

from __future__ import annotations

import ast
import re
import textwrap
from typing import TYPE_CHECKING

from .classes import OPERATIONS, Class, Member
from .contents import FROM_THE_LIBRARY
from .likeness import likenesses
from .prose import FENCE, markdown
from .signatures import WIDTH, annotation_text, annotations_of, names_in, signatures_of
from .sources import Definition, Function

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .book import Book, Entry
    from .likeness import Likeness
    from .sources import Module

__all__ = ["entry_text"]

_METHODS = frozenset({"method", "classmethod", "staticmethod"})


def entry_text(book: Book, entry: Entry, usual: str) -> str:
    """Everything about one name; where it is imported from is said if that is not the `usual` place of its page."""
    source = "" if entry.namespace == usual else _code(f"from {entry.namespace} import {entry.name}")
    heading, *parts = _Writer(book, entry).parts()
    return "\n\n".join([part for part in (heading, source, *parts) if part])


class _Writer:
    def __init__(self, book: Book, entry: Entry) -> None:
        self._book: Book = book
        self._entry: Entry = entry

    def parts(self) -> Iterator[str]:
        yield f"## {self._entry.heading}"
        node = self._entry.definition.node
        if isinstance(node, ast.ClassDef):
            yield from self._class()
        elif isinstance(node, Function):
            yield from self._function()
        else:
            yield from self._variable()

    # --- functions, types, constants ---

    def _function(self) -> Iterator[str]:
        definition = self._entry.definition
        nodes = [node for node in definition.nodes if isinstance(node, Function)]
        types = _Types(self._book, [(definition.module, each) for node in nodes for each in annotations_of(node)])
        yield _code(_overloads(list(signatures_of(self._book.package, definition.module, nodes))), types.aliases)
        own = {each.arg for node in nodes for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        yield self._markdown(definition.doc, own)
        yield self._see(types)

    def _variable(self) -> Iterator[str]:
        definition = self._entry.definition
        node = definition.node
        assert isinstance(node, ast.Assign | ast.AnnAssign)
        assert node.value is not None
        is_type = self._entry.kind == "type"
        types = _Types(self._book, [(definition.module, node.value)] if is_type else [])
        if is_type:
            yield _code(_broken(self._entry.name, annotation_text(definition.module, node.value)), types.aliases)
        elif isinstance(node, ast.AnnAssign):
            annotation = annotation_text(definition.module, node.annotation)
            yield _code(f"{self._entry.name}: {annotation.removeprefix('Final[').removesuffix(']')}")
        else:
            yield _code(self._entry.name)
        yield self._markdown(definition.doc, set())
        yield self._see(types)

    # --- classes ---

    def _class(self) -> Iterator[str]:
        shown = self._book.class_of(self._entry)
        if shown.kind == "exception":
            yield from self._exception(shown)
            return
        by_hand = self._entry.name not in FROM_THE_LIBRARY
        alike = likenesses(self._book, self._entry)
        known = [member for like in alike for member in like.members]
        members = [each for each in self._book.members(self._entry) if each not in known]
        types = _Types(self._book, _annotations(shown if by_hand else None, members))
        yield _code(shown.signature if by_hand else f"class {self._entry.name}", types.aliases)
        yield self._markdown(shown.definition.doc, {each.name for each in shown.members})
        yield self._above(shown)
        yield self._attributes(shown, members, by_hand=by_hand)
        for like in alike:
            yield self._as_in(like)
        yield self._operations(shown.members)
        yield self._see(types)
        for member in members:
            if member.kind in _METHODS and not member.name.startswith("__"):
                yield self._method(member)

    def _exception(self, shown: Class) -> Iterator[str]:
        line = [self._book.entry(each.definition) for each in reversed(shown.line[1:])]
        above = [self._link(each) for each in line if each is not None]
        if above:
            yield " → ".join([*above, f"**{self._entry.name}**"])
        yield self._markdown(shown.definition.doc, {each.name for each in shown.members})
        if any(isinstance(node, Function) and node.name == "__init__" for node in shown.node.body):
            yield _code(shown.signature)
        members = [each for each in shown.members if each.name not in {"next_step", "type"}]
        yield self._attributes(shown, members)
        if shown.next_step:
            yield f"What to do next: {self._markdown(shown.next_step, set())}"
        yield self._see(_Types(self._book, _annotations(None, members)))

    def _as_in(self, like: Likeness) -> str:
        words = {"awaited": list[str](), "not awaited": list[str]()}
        for each in like.members:
            if not each.name.startswith("__"):
                name = f"{each.name}()" if each.kind in _METHODS else each.name
                words["awaited" if each.is_async else "not awaited"].append(f"`{name}`")
        if not words["awaited"] or not words["not awaited"]:
            names = words["awaited"] or words["not awaited"]
            how = ", awaited" if words["awaited"] else ""
            return f"As in {self._link(like.entry)}{how}: {', '.join(names)}." if names else ""
        told = [f"- {how}: {', '.join(names)}" for how, names in words.items()]
        return "\n".join([f"As in {self._link(like.entry)}:", "", *told])

    def _above(self, shown: Class) -> str:
        bases = [self._book.entry(each.definition) for each in shown.named_bases]
        links = [self._link(each) for each in bases if each is not None]
        word = "Takes" if shown.kind == "typeddict" else "Has"
        return f"{word} everything of {_and(links)}, too." if links else ""

    def _attributes(self, shown: Class, members: Sequence[Member], *, by_hand: bool = True) -> str:
        lines: list[str] = []
        in_signature = {each.name for each in shown.parameters} if shown.kind in _FIELDS and by_hand else set[str]()
        for each in members:
            if each.kind in _METHODS or (each.name in in_signature and not each.doc):
                continue
            doc = re.sub(r"\n(?=.)", "\n  ", self._markdown(each.doc, {one.name for one in members}))
            lines.append(f"- `{_attribute(each, brief=each.name in in_signature)}`{f' — {doc}' if doc else ''}")
        return "\n".join(lines)

    def _operations(self, members: Sequence[Member]) -> str:
        found = [each for each in members if each.name in OPERATIONS]
        silent = [OPERATIONS[each.name] for each in found if not each.doc]
        told = [(OPERATIONS[each.name].capitalize(), each.doc) for each in found if each.doc]
        lines = [f"Supports {_and(silent)}."] if silent else []
        lines += [f"{what}: {self._markdown(doc, set())}" for what, doc in told]
        return "\n\n".join(lines)

    def _method(self, member: Member) -> str:
        decorator = "" if member.kind == "method" else f"@{member.kind}\n"
        code = _overloads([f"{decorator}{signature}" for signature in member.signatures])
        own = {each.name for each in member.parameters} | {member.name}
        doc = self._markdown(member.doc, own)
        return f"### {self._entry.name}.{member.name}()\n\n{_code(code)}" + (f"\n\n{doc}" if doc else "")

    # --- links ---

    def _link(self, entry: Entry) -> str:
        return f"[{entry.name}]({self._address(entry)})"

    def _address(self, entry: Entry) -> str:
        return entry.address.removeprefix(entry.file) if entry.file == self._entry.file else entry.address

    def _markdown(self, doc: str, own: set[str]) -> str:
        def link(name: str) -> str | None:
            if name in own or name == self._entry.name:
                return None
            found = self._book.named(name, self._entry)
            return None if found is None else self._address(found)

        return markdown(doc, link)

    def _see(self, types: _Types) -> str:
        links = [self._link(entry) for entry in types.entries if entry != self._entry]
        return f"Types: {', '.join(links)}" if links else ""


class _Types:
    """The types of the package that annotations name: those with an entry, and aliases without one."""

    def __init__(self, book: Book, annotations: Iterable[tuple[Module, ast.expr]]) -> None:
        entries: list[Entry] = []
        self.aliases: list[str] = []
        seen: set[Definition] = set()
        waiting = list(annotations)
        for module, annotation in waiting:  # an alias adds what it stands for while this goes on
            for name in names_in(annotation):
                made = book.package.find(module, name)
                if not isinstance(made, Definition) or made in seen:
                    continue
                seen.add(made)
                entry, value = book.entry(made), _alias(made)
                if entry is not None:
                    entries.append(entry)
                elif value is not None:
                    self.aliases.append(_broken(made.name, annotation_text(made.module, value)))
                    waiting.append((made.module, value))
        self.entries: list[Entry] = sorted(entries, key=lambda each: each.name.lower())


_FIELDS = frozenset({"struct", "dataclass", "namedtuple"})
"""Kinds of classes whose signature shows their fields."""


def _annotations(shown: Class | None, members: Iterable[Member]) -> Iterator[tuple[Module, ast.expr]]:
    if shown is not None and shown.kind != "protocol":
        yield from shown.constructor_annotations
    for member in members:
        for annotation in member.annotations:
            yield member.module, annotation


def _attribute(member: Member, *, brief: bool) -> str:
    if brief:
        return member.name
    if member.kind == "value":
        return f"{member.name} = {member.default}"
    return f"{member.name}: {member.annotation}" if member.annotation else member.name


def _alias(made: Definition) -> ast.expr | None:
    """What an alias of a type stands for; None for anything else, type variables among them."""
    node = made.node
    if not isinstance(node, ast.Assign | ast.AnnAssign) or isinstance(node.value, ast.Call):
        return None
    return node.value


def _broken(name: str, value: str) -> str:
    """An alias; a long union has one member a line, a long list of literals as many as fit."""
    line = f"{name} = {value}"
    if len(line) <= WIDTH:
        return line
    if value.startswith("Literal[") and value.count("[") == 1:
        words = textwrap.fill(value.removeprefix("Literal[").removesuffix("]"), WIDTH - 4)
        return f"{name} = Literal[\n{textwrap.indent(words, '    ')}\n]"
    if " | " in value and "[" not in value:
        return f"{name} = (\n    " + "\n    | ".join(value.split(" | ")) + "\n)"
    return line


def _overloads(signatures: Sequence[str]) -> str:
    """One below the other; with an empty line between those that take several lines."""
    return ("\n\n" if any("\n" in each for each in signatures) else "\n").join(signatures)


def _code(text: str, aliases: Sequence[str] = ()) -> str:
    """A block of code; below it what the aliases in it stand for."""
    below = "\n\n" + "\n".join(aliases) if aliases else ""
    return f"```{FENCE}\n{text}{below}\n```"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
