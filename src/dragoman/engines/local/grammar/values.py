"""JSON values of a JSON Schema, as a grammar.

Owns: from a schema to the grammar of the values that fit it, and what the grammar cannot hold.
Must not know: tools and prompts. Schemas are read by the providers' room, which knows all drafts and combinations.

Values are written on one line, with one blank behind each comma and colon, and properties in the order of the schema:
a model can then waste no tokens on white space, and has fewer ways to go wrong. An object has only the properties that
its schema names; where it names none, or gives a schema for the others, it may have any. Whatever has no end in the
schema has a distant one here: a small model may not find an end by itself, and half a value is not valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from dragoman.errors import ToolDefinitionError
from dragoman.providers.schema.read import Document, Node, Reader
from dragoman.providers.schema.rules import Note, Notes, Rules, is_object, kind_of

from .collections import Member, any_key_but, array_of, object_of
from .gbnf import Grammar, Impossible, either, literal
from .limits import count_of, number
from .numbers import decimals
from .strings import FORMATS, string

__all__ = ["ValueGrammar", "schema_grammar"]

_RULES: Final = Rules(
    annotations=frozenset(["title", "description", "default"]),
    limits=frozenset(
        [
            "pattern",
            "format",
            "minLength",
            "maxLength",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
        ]
    ),
    formats={"string": frozenset(FORMATS)},
    unknown_in_patterns="$a",  # the patterns themselves are read here
    complex_values=True,
    recursive=True,
)

_T = TypeVar("_T")


def schema_grammar(schema: object) -> tuple[str, tuple[Note, ...]]:
    """The grammar of the values that fit a schema, and what it does not hold them to."""
    values = ValueGrammar(Grammar())
    value, notes = values.of(schema)
    return values.grammar.text(value), notes


def written(value: object) -> str:
    """A value in the one form in which it is written."""
    return json.dumps(value, ensure_ascii=False)


class ValueGrammar:
    """Writes schemas into one grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar: Grammar = grammar
        self._anything: str | None = None

    def of(self, schema: object) -> tuple[str, tuple[Note, ...]]:
        """The expression for the values that fit a schema. Raises ToolDefinitionError if none does."""
        impossible: set[str] = set()
        try:
            while True:
                found, before = len(impossible), self.grammar.copy()
                known, notes = self._anything, Notes()
                reader = Reader(Document(schema if is_object(schema) else {}), _RULES, notes)
                expression = _Writer(self, reader, notes, impossible).value(reader.node(schema, ""))
                if len(impossible) == found:
                    break
                # What turned out to be impossible may have been referred to by then.
                self.grammar, self._anything = before, known
        except Impossible:
            message = "Nothing can fit the schema: it contradicts itself."
            raise ToolDefinitionError(message, hint="Correct the schema.") from None
        except RecursionError:
            message = "The schema is nested too deeply to be read."
            raise ToolDefinitionError(message, hint="Give it fewer levels.") from None
        return expression, tuple([note for note in notes.all if note.lossy])

    def anything(self) -> str:
        """Any JSON value."""
        if self._anything is None:
            grammar = self.grammar
            self._anything = name = grammar.reserved("value")
            text = string(grammar, {}, _nothing_lost)
            entry = grammar.rule("member", f'{text} ": " {name}')
            scalars = [text, grammar.rule("number", decimals(None, None)), *map(literal, ("true", "false", "null"))]
            shapes = [object_of(grammar, (), entry), array_of(grammar, (), name)]
            grammar.define(name, " | ".join([*scalars, *shapes]))
        return self._anything


def _nothing_lost(_word: str, _why: str) -> None:
    """There is no limit that could be lost."""


class _Writer:
    """Writes the nodes of one document."""

    def __init__(self, values: ValueGrammar, reader: Reader, notes: Notes, impossible: set[str]) -> None:
        self._values: ValueGrammar = values
        self._grammar: Grammar = values.grammar
        self._reader: Reader = reader
        self._notes: Notes = notes
        self._targets: dict[str, str] = {}
        self._impossible: set[str] = impossible
        """Pointers to what nothing fits; it grows."""

    def value(self, node: Node, entered: frozenset[str] = frozenset()) -> str:
        """A value of a node. `entered` are the references that led here without anything being written."""
        if node.never:
            raise Impossible
        if node.ref is not None:
            return self._reference(node.ref, entered)
        if node.any_of:
            return either(_possible(node.any_of, lambda option: self.value(option, entered)))
        if node.values is not None:
            return self._listed(node, node.values)
        if node.unlimited:
            return self._values.anything()
        kinds = node.types if node.types is not None else node.plausible_types
        return either(_possible(kinds, lambda kind: _KINDS[kind](self, node)))

    def _reference(self, pointer: str, entered: frozenset[str]) -> str:
        if pointer in entered or pointer in self._impossible:
            raise Impossible  # a value is not among the ways to write itself
        if entered:
            return self.value(self._reader.target(pointer), entered | {pointer})
        if pointer not in self._targets:
            self._targets[pointer] = name = self._grammar.reserved(pointer.rpartition("/")[2] or "whole")
            try:
                self._grammar.define(name, self.value(self._reader.target(pointer), frozenset([pointer])))
            except Impossible:
                self._impossible.add(pointer)
                raise
        return self._targets[pointer]

    def _listed(self, node: Node, values: Sequence[object]) -> str:
        if any(kind_of(value) in ("object", "array") for value in values) and _shaped(node):
            self._notes.lost(node.at, "what is said beside listed objects or arrays is not enforced")
        if node.limits:
            from dragoman.tools.arguments.json_schema import Checker

            fits = Checker(dict(node.limits)).fits
            values = [value for value in values if fits(value)]
        return either([literal(written(value)) for value in values])

    def _lost(self, node: Node) -> Callable[[str, str], None]:
        return lambda word, why: self._notes.lost(f"{node.at}/{word}", why)

    # --- by type ---

    def string(self, node: Node) -> str:
        return string(self._grammar, node.limits, self._lost(node))

    def integer(self, node: Node) -> str:
        return self._grammar.rule("integer", number(node.limits, self._lost(node), whole=True))

    def number(self, node: Node) -> str:
        return self._grammar.rule("number", number(node.limits, self._lost(node), whole=False))

    def boolean(self, _node: Node) -> str:
        return either([literal("true"), literal("false")])

    def null(self, _node: Node) -> str:
        return literal("null")

    def array(self, node: Node) -> str:
        prefix = [self._item(item) for item in node.prefix]
        rest = None if node.items is not None and node.items.never else self._rest(node)
        least, most = count_of(node.limits, "Items", self._lost(node))
        if None in prefix:  # nothing fits there, so no array is as long
            prefix, rest = prefix[: prefix.index(None)], None
        return self._grammar.rule(
            "array", array_of(self._grammar, [item for item in prefix if item], rest, least, most)
        )

    def _rest(self, node: Node) -> str | None:
        return self._values.anything() if node.items is None else self._item(node.items)

    def _item(self, node: Node) -> str | None:
        try:
            return self.value(node)
        except Impossible:
            return None

    def object(self, node: Node) -> str:
        members = self._members(node)
        others = self._others(node)
        least, most = count_of(node.limits, "Properties", self._lost(node))
        needed = sum(member.required for member in members)
        if members and (least > needed or (most is not None and most < len(members) + (10**9 if others else 0))):
            self._notes.lost(f"{node.at}/minProperties", "the number of properties is not enforced beside named ones")
            least, most = 0, None
        if not members and least > 1:  # a name may come twice
            self._notes.lost(f"{node.at}/minProperties", "that the names differ is not enforced")
        if needed and most == 0:
            raise Impossible
        return self._grammar.rule("object", object_of(self._grammar, members, others, least, most))

    def _members(self, node: Node) -> list[Member]:
        names = [*node.properties, *[name for name in node.required if name not in node.properties]]
        found: list[Member] = []
        for name in names:
            inner = node.properties.get(name) or node.others
            value = self._values.anything() if inner is None else self._item(inner)
            required = name in node.required
            if value is not None:
                found.append(Member(name, value, required=required))
            elif required:
                raise Impossible
        return found

    def _others(self, node: Node) -> str | None:
        """A property that is not named; None if there shall be none."""
        if node.others is None or node.others.unlimited:
            named = bool(node.properties or node.required)
            return None if named else self._entry(node, self._values.anything())
        value = self._item(node.others)
        return None if value is None else self._entry(node, value)

    def _entry(self, node: Node, value: str) -> str:
        key = self._grammar.rule("key", any_key_but(self._grammar, [*node.properties, *node.required]))
        return self._grammar.rule("entry", f'{key} ": " {value}')


def _shaped(node: Node) -> bool:
    return bool(node.properties or node.required or node.others or node.patterned or node.items or node.prefix)


def _possible(things: Sequence[_T], write: Callable[[_T], str]) -> list[str]:
    found: list[str] = []
    for thing in things:
        try:
            found.append(write(thing))
        except Impossible:
            continue
    return found


_KINDS: Final[dict[str, Callable[[_Writer, Node], str]]] = {
    "string": _Writer.string,
    "integer": _Writer.integer,
    "number": _Writer.number,
    "boolean": _Writer.boolean,
    "null": _Writer.null,
    "array": _Writer.array,
    "object": _Writer.object,
}
