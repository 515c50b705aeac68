"""One schema as a document: what its references point at.

Owns: resolving `$ref` within the document. Nothing is ever fetched: a reference to another document is refused.
Must not know: what is done with the schemas.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cached_property
from typing import Final

from dragoman.errors import ToolDefinitionError

from .words import Schema, escaped, is_array, is_object, mapped

__all__ = ["REFERENCES", "Document", "free_name", "reference_of"]

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_PERCENT = re.compile(rb"%([0-9a-fA-F]{2})")
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]+")


def reference_of(schema: Schema) -> str | None:
    """What a schema refers to, if it does."""
    return next((value for word in REFERENCES if isinstance(value := schema.get(word), str)), None)


class Document:
    """A schema that is not changed while it is read."""

    def __init__(self, root: Schema) -> None:
        self.root: Schema = root

    def pointer(self, reference: str, at: str) -> str:
        """The JSON pointer that a reference means. Raises if it is to another document or to nothing."""
        base, _, fragment = reference.partition("#")
        if base and base != self.root.get("$id"):
            raise ToolDefinitionError(
                f"The schema refers to another document at {at or '/'}: {reference}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )
        fragment = _PERCENT.sub(lambda match: bytes([int(match[1], 16)]), fragment.encode()).decode(errors="replace")
        pointer = self._anchors.get(fragment) if fragment and not fragment.startswith("/") else fragment
        if pointer is None or self._find(pointer) is None:
            message = f"The schema refers to nothing at {at or '/'}: there is no {reference}."
            raise ToolDefinitionError(message, hint="Add the definition, or correct the reference.")
        return pointer

    def at(self, pointer: str) -> object:
        """The schema at a pointer that `pointer` gave."""
        return self._find(pointer)

    def _find(self, pointer: str) -> object:
        place: object = self.root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if is_object(place):
                place = place.get(name)
            elif is_array(place) and name.isdecimal() and int(name) < len(place):
                place = place[int(name)]
            else:
                return None
        return place if is_object(place) or isinstance(place, bool) else None

    @cached_property
    def _anchors(self) -> dict[str, str]:
        """Pointers by the names that schemas give themselves."""
        found: dict[str, str] = {}

        def visit(value: object, at: str) -> object:
            if is_object(value):
                for word in ("$anchor", "$dynamicAnchor"):
                    name = value.get(word)
                    if isinstance(name, str):
                        found.setdefault(name, at)
                mapped(value, at, visit)
            return value

        visit(self.root, "")
        return found

    def hoisted(self, root: Schema) -> Schema:
        """A changed root whose references still mean what they meant in this document.

        What they point at may have gone from its place: then it is put under `$defs`.
        """
        kept = {word: found for word in ("$defs", "definitions") if is_object(found := root.get(word))}
        still_there = {"", *(f"/{word}/{escaped(name)}" for word in kept for name in kept[word])}
        names: dict[str, str] = {}
        taken = dict(kept.get("$defs", {}))
        added: Schema = {}

        def moved(value: object, at: str) -> object:
            if not is_object(value):
                return value
            copy = mapped(value, at, moved)
            reference = reference_of(value)
            if reference is None:
                return copy
            pointer = self.pointer(reference, at)
            if pointer in still_there:
                return copy
            if pointer not in names:
                name = free_name(pointer.rpartition("/")[2], taken)
                names[pointer] = f"#/$defs/{escaped(name)}"
                taken[name] = added[name] = True  # takes its place before what it refers to
                added[name] = moved(self._find(pointer), pointer)
            beside = {word: sub for word, sub in copy.items() if word not in REFERENCES}
            return {"$ref": names[pointer], **beside}

        result = moved(root, "")
        assert is_object(result)
        if added:
            result["$defs"] = {**(found if is_object(found := result.get("$defs")) else {}), **added}
        return result


def free_name(name: str, taken: Container[str]) -> str:
    """A name for a definition that is not taken, as near as possible to a wanted one."""
    name = _UNUSUAL.sub("_", name.replace("~1", "/").replace("~0", "~")).strip("_") or "schema"
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
