"""JSON Schema as it is, for providers that take nearly all of it.

Owns: the few things that even they refuse.
Must not know: anything beyond that; what is not refused is left as it was written.
"""

from __future__ import annotations

from .document import REFERENCES, Document, reference_of
from .notes import Notes
from .words import META, Schema, is_object, mapped

__all__ = ["plain"]


def plain(document: Document, root: Schema, notes: Notes) -> Schema:
    """The document with the given root, which may be a changed one."""
    if root is not document.root:
        root = document.hoisted(root)
        document = Document(root)

    def visited(value: object, at: str) -> object:
        if not is_object(value):
            return value
        copy = mapped(value, at, visited)
        reference = reference_of(value)
        if reference is not None:
            document.pointer(reference, at)  # refuses one that leads nowhere, or to another document
            return _alone(copy, at, notes)
        return copy

    result = visited(root, "")
    assert is_object(result)
    return {word: value for word, value in result.items() if word != "$schema"}


def _alone(schema: Schema, at: str, notes: Notes) -> Schema:
    """Beside `$ref` Gemini's JSON Schema takes nothing but words that start with `$`; the others move around it."""
    beside = {word: value for word, value in schema.items() if not word.startswith("$")}
    if not beside:
        return schema
    reference = {word: schema[word] for word in REFERENCES if word in schema}
    around = {word: value for word, value in schema.items() if word not in reference and word not in META}
    combinator = next(word for word in ("anyOf", "allOf", "oneOf", "not") if word not in around or word == "not")
    notes.rewritten(at, f"$ref put into {combinator}, since other keywords stand beside it")
    if combinator == "not":  # all three are taken
        return {**around, "not": {"not": reference}}
    return {**around, combinator: [reference]}
