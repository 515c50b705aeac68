"""Strict schemas: every object is closed, and nothing stands in them that the provider does not enforce.

Owns: writing nodes as OpenAI's and Anthropic's strict subsets, and finding out why a schema cannot be strict.
Must not know: how schemas are read.

A schema that needs more freedom than the subset has (a free-form object, a value of any type) is not bent to fit: the
reasons are collected, and the caller sends it as a plain one.
"""

from __future__ import annotations

from collections.abc import Mapping

from .document import free_name
from .node import Node
from .notes import Notes, described, joined
from .positions import without_positions
from .read import Reader
from .rules import Rules
from .sizes import excesses
from .words import Schema, distinct, escaped, is_array, ordered

__all__ = ["Closed"]


class Closed:
    """Writes the strict form of one document."""

    def __init__(self, reader: Reader, rules: Rules, notes: Notes, *, root_is_target: bool) -> None:
        self._reader: Reader = reader
        self._rules: Rules = rules
        self._notes: Notes = notes
        self._names: dict[str, str] = {"": "#"} if root_is_target else {}
        """What is written for a reference to a pointer."""
        self._definitions: dict[str, Schema] = {}
        self._written_out: list[str] = []
        """References that are being written out, the outermost first."""
        self._referring: dict[str, set[str]] = {}
        self._place: str = ""
        self.reasons: dict[str, str] = {}
        """Why the schema cannot be strict: texts by pointer."""

    def document(self, root: Node) -> Schema:
        """The whole document. It is worth something only if there are no `reasons` then."""
        schema = self._object_root(root)
        if self._definitions:
            schema["$defs"] = dict(self._definitions)
        if not self._rules.recursive and (loop := _loop(self._referring)) is not None:
            self.reasons.setdefault(loop, "the schema is recursive")
        for text in excesses([schema], self._rules):
            self.reasons.setdefault("", text)
        return schema

    def _object_root(self, root: Node) -> Schema:
        return {"type": "object", **self._words(root), **self._members(root, free=False)}

    def schema(self, node: Node) -> Schema:
        """One node."""
        if node.ref is not None:
            return self._reference(node, node.ref)
        if node.any_of:
            return self._union(node)
        if node.prefix:
            node = without_positions(node, self._notes, length="maxItems" in self._rules.limits)
        types = node.plausible_types
        if node.types is None and types:
            self._notes.rewritten(f"{node.at}/type", f"added: {', '.join(types)}")
        if not types:
            self._reason(node.at, "any value is allowed")
        kinds: Schema = {"type": types[0] if len(types) == 1 else list(types)}
        limits = {w: v for w, v in node.limits.items() if any(self._rules.applies(w, v, kind) for kind in types)}
        schema = {**kinds, **self._words(node), **limits}
        if node.values is not None:
            schema |= {"const": node.values[0]} if node.const and len(node.values) == 1 else {"enum": list(node.values)}
        if "object" in types:
            schema |= self._members(node, free=True)
        if "array" in types:
            schema |= self._elements(node)
        return schema

    def _union(self, node: Node) -> Schema:
        branches = distinct([self.schema(one) for one in node.any_of])
        words = self._words(node)
        if len(branches) > 1 or "$ref" in branches[0]:
            return {**words, "anyOf": branches}
        words["description"] = joined(words.get("description"), branches[0].get("description"))
        return ordered({**branches[0], **{word: value for word, value in words.items() if value != ""}})

    def _words(self, node: Node) -> Schema:
        text = described(node.told.get("description"), dict(node.described))
        told = {**node.told, "description": text} if text else node.told
        return {word: told[word] for word in ("title", "description", "default") if self._may_tell(word, told)}

    def _may_tell(self, word: str, told: Mapping[str, object]) -> bool:
        return word in told and word in self._rules.annotations

    def _reason(self, at: str, text: str) -> None:
        self.reasons.setdefault(at, text)

    # --- objects and arrays ------------------------------------------------------------------------------------------

    def _members(self, node: Node, *, free: bool) -> Schema:
        """The part of a schema that is about objects. `free`: one that declares nothing is meant to take anything."""
        properties = {name: sub for name, sub in node.properties.items() if not sub.never}
        closed = node.others is not None and node.others.never
        if node.patterned or (node.others is not None and not closed):
            self._reason(node.at, "an object with properties of any name")
        elif free and not properties and not closed:
            self._reason(node.at, "an object that says nothing of its properties")
        strangers = [name for name in node.required if name not in node.properties]
        if strangers:
            self._reason(node.at, f"required but not described: {', '.join(strangers)}")
        written: Schema = {}
        for name, sub in properties.items():
            written[name] = self._property(sub, optional=name not in node.required)
        if self._rules.all_required:
            return {"properties": written, "required": list(properties), "additionalProperties": False}
        required = [name for name in node.required if name in properties]
        named: Schema = {"required": required} if required else {}
        return {"properties": written, **named, "additionalProperties": False}

    def _property(self, node: Node, *, optional: bool) -> Schema:
        schema = self.schema(node)
        if not (optional and self._rules.all_required):
            return schema
        self._notes.rewritten(node.at, "optional -> required, null where there is nothing to say")
        return _nullable(schema)

    def _elements(self, node: Node) -> Schema:
        """The part of a schema that is about arrays."""
        if node.items is None:
            self._reason(node.at, "an array that says nothing of its items")
            return {}
        if node.items.never:
            self._reason(node.at, "an array that must be empty")
            return {}
        return {"items": self.schema(node.items)}

    # --- references --------------------------------------------------------------------------------------------------

    def _reference(self, node: Node, pointer: str) -> Schema:
        words = self._words(node)
        self._referring.setdefault(self._place, set()).add(pointer)
        if words and not self._rules.reference_beside_words:
            return self._written_in_place(node, pointer)
        reference: Schema = {"$ref": self._name(pointer)}
        return {**words, "anyOf": [reference]} if words else reference

    def _written_in_place(self, node: Node, pointer: str) -> Schema:
        if pointer in self._written_out:
            self._reason(node.at, "the schema is recursive")
            return {}
        self._written_out.append(pointer)
        schema = self.schema(self._reader.target(pointer).telling(node.told))
        self._written_out.pop()
        return schema

    def _name(self, pointer: str) -> str:
        if pointer not in self._names:
            name = free_name(pointer.rpartition("/")[2] or "root", self._definitions)
            self._names[pointer] = f"#/$defs/{escaped(name)}"
            self._definitions[name] = {}  # takes its place before what it refers to
            place, self._place = self._place, pointer
            self._definitions[name] = self.schema(self._reader.target(pointer))
            self._place = place
        return self._names[pointer]


_NULL: Schema = {"type": "null"}


def _nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    branches = schema.get("anyOf")
    if is_array(branches):
        return schema if _NULL in branches else {**schema, "anyOf": [*branches, dict(_NULL)]}
    if "$ref" in schema:
        return {"anyOf": [schema, dict(_NULL)]}
    kinds = schema.get("type")
    types = kinds if is_array(kinds) else [kinds]
    result = {**schema, "type": [*types, "null"]} if "null" not in types else dict(schema)
    if "const" in result and result["const"] is not None:
        result = {("enum" if word == "const" else word): value for word, value in result.items()}
        result["enum"] = [schema["const"], None]
    elif is_array(values := result.get("enum")) and None not in values:
        result["enum"] = [*values, None]
    return result


def _loop(referring: dict[str, set[str]]) -> str | None:
    """A pointer that leads back to itself."""
    done: set[str] = set()

    def search(pointer: str, path: tuple[str, ...]) -> str | None:
        if pointer in path:
            return pointer
        if pointer in done:
            return None
        found = (search(target, (*path, pointer)) for target in sorted(referring.get(pointer, ())))
        loop = next((one for one in found if one is not None), None)
        done.add(pointer)
        return loop

    return next((loop for start in sorted(referring) if (loop := search(start, ())) is not None), None)
