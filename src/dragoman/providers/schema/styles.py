"""From a given JSON Schema to the one that is sent.

Owns: the four styles, and what is done when a schema cannot be strict.
Must not know: which provider takes which style (profiles).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle

from .closed import Closed
from .document import Document
from .gemini import Writer
from .node import Node
from .notes import NOT_STRICT, Note, Notes
from .plain import plain
from .read import Reader
from .root import object_root
from .rules import ANTHROPIC, GEMINI, OPENAI, Rules
from .sizes import excesses
from .words import Schema

__all__ = ["Conversion", "conversion", "convert", "together"]


class Conversion(Struct, frozen=True, kw_only=True):
    """A schema in a provider's style, and what was changed."""

    schema: Schema
    notes: tuple[Note, ...] = ()
    reasons: tuple[Note, ...] = ()
    """Why it cannot be sent as a strict schema although that was asked for; empty if it can."""

    @property
    def exact(self) -> bool:
        """Whether every value that fits what is sent fits the given schema, once `restored`."""
        return not any(note.lossy for note in self.notes)

    @property
    def lines(self) -> tuple[str, ...]:
        """Reasons and notes as texts, one line each."""
        return (*(f"{NOT_STRICT}{reason}" for reason in self.reasons), *map(str, self.notes))


def convert(schema: dict[str, object], style: SchemaStyle, *, strict: bool = False) -> tuple[Schema, tuple[str, ...]]:
    """The schema in a provider's style, and what was rewritten or lost, one line each with the JSON pointer.

    A line that starts with "not strict:" says that the schema cannot be sent as a strict one; it is then in the form
    for `strict: false`. Raises ToolDefinitionError for what cannot be sent at all: a root that is no object, and
    references to other documents or to nothing.
    """
    done = conversion(schema, style, strict=strict)
    return done.schema, done.lines


def conversion(schema: dict[str, object], style: SchemaStyle, *, strict: bool = False) -> Conversion:
    """The same as `convert`, with notes that a program can look at."""
    try:
        return _STYLES[style](schema, strict)
    except RecursionError:
        message = "The schema is nested too deeply to be read."
        raise ToolDefinitionError(message, hint="Give it fewer levels.") from None


def together(schemas: Sequence[Schema], style: SchemaStyle) -> tuple[str, ...]:
    """Why a provider would refuse strict schemas in one request that it takes one by one; empty if it would not."""
    rules = _STRICT_RULES.get(style)
    return tuple(excesses(schemas, rules)) if rules is not None else ()


def _as_it_is(schema: Schema, _strict: bool) -> Conversion:
    notes = Notes()
    document = Document(schema)
    written = plain(document, object_root(document, notes), notes)
    return Conversion(schema=written, notes=notes.all)


def _strictly(rules: Rules) -> Callable[[Schema, bool], Conversion]:
    def converted(schema: Schema, strict: bool) -> Conversion:
        free = _as_it_is(schema, False)
        if not strict:
            return free
        notes = Notes()
        document = Document(schema)
        root = object_root(document, notes)
        reader = Reader(document, rules, notes)
        writer = Closed(reader, rules, notes, root_is_target=root is schema)
        written = writer.document(_object_node(reader, root))
        if not writer.reasons:
            return Conversion(schema=written, notes=notes.all)
        reasons = tuple(Note(at, text) for at, text in writer.reasons.items())
        return Conversion(schema=free.schema, notes=free.notes, reasons=reasons)

    return converted


def _as_openapi(schema: Schema, _strict: bool) -> Conversion:
    notes = Notes()
    document = Document(schema)
    reader = Reader(document, GEMINI, notes)
    written = Writer(reader, notes).root(_object_node(reader, object_root(document, notes)))
    return Conversion(schema=written, notes=notes.all)


def _object_node(reader: Reader, root: Schema) -> Node:
    node = reader.node(root, "")
    if node.types != ("object",):
        raise ToolDefinitionError("Nothing can fit the schema: it contradicts itself.", hint="Correct the schema.")
    return node


_STRICT_RULES: Final[dict[SchemaStyle, Rules]] = {"openai_strict": OPENAI, "anthropic_strict": ANTHROPIC}
_STYLES: Final[dict[SchemaStyle, Callable[[Schema, bool], Conversion]]] = {
    "json_schema": _as_it_is,
    "openai_strict": _strictly(OPENAI),
    "anthropic_strict": _strictly(ANTHROPIC),
    "gemini": _as_openapi,
}
