"""The root of a schema: always one object, since that is what a tool's arguments and a structured reply are.

Owns: taking combinators away from the top. OpenAI refuses `anyOf`, `oneOf`, `allOf`, `enum`, `const` and `not` at the
top level of a function's parameters, and anything whose type is not object; Anthropic refuses the first three; Gemini
wants an object. Below the top they may stand.
Must not know: what a provider does with the rest of the schema.

`allOf` and `$ref` are merged without loss. Alternatives are folded into one object that has the properties of all of
them; which ones go together is then told in the description only.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from dragoman.errors import ToolDefinitionError

from .document import REFERENCES, Document, reference_of
from .notes import Notes, described, joined
from .words import META, Schema, distinct, is_array, is_object, is_true_schema, kind_of, same

__all__ = ["object_root"]

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_NOT_AT_THE_TOP: Final = frozenset(["allOf", "anyOf", "const", "enum", "not", "oneOf", *REFERENCES])
_TIGHTEST: Final = {"minProperties": max, "maxProperties": min}
# Of a merged part, what is about its own document or is merged in a way of its own.
_NOT_COPIED: Final = META | {"$defs", "definitions", "type", "properties", "required", "additionalProperties"}

_Group: TypeAlias = tuple[str, list[object], str, frozenset[str]]
"""Alternatives: the keyword, the schemas, where they are, and the references that led there."""


def object_root(document: Document, notes: Notes) -> Schema:
    """The root as a plain object; the root itself, if it is one already. Raises if no object can fit it."""
    root = document.root
    if root.get("type") == "object" and not root.keys() & _NOT_AT_THE_TOP:
        return root
    found = _Flattener(document, notes).object(root, "", frozenset([""]))
    if found is None:
        message = f"A schema for a model must describe an object, but its root allows none: type {root.get('type')!r}."
        raise ToolDefinitionError(message, hint='Put it into a property of an object: {"type": "object", ...}.')
    if "type" not in root and not root.keys() & _NOT_AT_THE_TOP:
        notes.rewritten("/type", 'added "object"')
    kept = {word: root[word] for word in ("$schema", "$id", "$defs", "definitions") if word in root}
    return {"type": "object", **found, **kept}


class _Flattener:
    def __init__(self, document: Document, notes: Notes) -> None:
        self._document: Document = document
        self._notes: Notes = notes
        self._known: dict[str, Schema | None] = {}

    def object(self, schema: object, at: str, seen: frozenset[str]) -> Schema | None:
        """A schema as one plain object, without its type; None if no object fits it."""
        reference = reference_of(schema) if is_object(schema) and len(schema) == 1 else None
        if reference is None:
            return self._object(schema, at, seen)
        pointer = self._document.pointer(reference, at)
        if pointer not in self._known:  # it may be referred to from very many places
            self._known[pointer] = self._object(schema, at, seen)
        return self._known[pointer]

    def _object(self, schema: object, at: str, seen: frozenset[str]) -> Schema | None:
        parts: list[Schema] = []
        groups: list[_Group] = []
        if not self._gather(schema, at, seen, parts, groups):
            return None
        chosen: list[tuple[str, list[Schema], str]] = []
        for word, branches, where, known in groups:
            objects = [self.object(branch, f"{where}/{index}", known) for index, branch in enumerate(branches)]
            left = [branch for branch in objects if branch is not None]
            if not left:
                return None
            if len(left) < len(objects):
                self._notes.rewritten(where, f"{len(objects) - len(left)} of {len(objects)} forms are no objects")
            if len(left) == 1:
                parts.append(left[0])
            else:
                chosen.append((word, left, where))
        whole = self._combined(parts, at)
        for word, branches, where in chosen:
            if whole is not None:
                whole = self._folded(whole, branches, word, where)
        return whole

    def _gather(self, schema: object, at: str, seen: frozenset[str], parts: list[Schema], groups: list[_Group]) -> bool:
        """Take a schema apart into what holds at once and what are alternatives; False if no object can fit."""
        if not is_object(schema):
            return schema is not False
        kind = schema.get("type", "object")
        if "object" not in (kind if is_array(kind) else [kind, str(kind).lower()]):  # Gemini writes OBJECT
            return False
        if is_array(kind):
            self._notes.rewritten(f"{at}/type", 'read as "object"')
        own = {word: value for word, value in schema.items() if word not in _NOT_AT_THE_TOP}
        lost = {word: schema[word] for word in ("enum", "const", "not") if word in schema}
        if schema.get("not") == {} or schema.get("not") is True:
            return False
        for word, value in lost.items():
            self._notes.only_described(at, word, value)
        text = described(own.get("description"), lost)
        parts.append({**own, "description": text} if text else own)
        groups.extend(
            (word, branches, f"{at}/{word}", seen) for word in _ALTERNATIVES if is_array(branches := schema.get(word))
        )
        inner: list[tuple[object, str, frozenset[str]]] = []
        if (reference := reference_of(schema)) is not None:
            pointer = self._document.pointer(reference, at)
            if pointer in seen:  # itself again, and nothing else
                return False
            inner.append((self._document.at(pointer), pointer, seen | {pointer}))
        if is_array(members := schema.get("allOf")):
            inner.extend((member, f"{at}/allOf/{index}", seen) for index, member in enumerate(members))
        if inner and not at:
            self._notes.rewritten("", "$ref and allOf at the top merged into one object")
        return all(self._gather(member, where, known, parts, groups) for member, where, known in inner)

    def _combined(self, parts: list[Schema], at: str) -> Schema | None:
        """What holds at once, as one object; None if the parts contradict each other."""
        whole: Schema = {}
        for part in parts:
            for word, value in part.items():
                if word not in _NOT_COPIED:
                    self._put(whole, word, value, at)
        required = list(dict.fromkeys(name for part in parts for name in _names(part.get("required"))))
        others = [part["additionalProperties"] for part in parts if "additionalProperties" in part]
        properties: Schema = {}
        for name in dict.fromkeys(name for part in parts for name in _members(part.get("properties"))):
            both = _both([sub for part in parts if (sub := _of_property(part, name)) is not None])
            if both is not False:
                properties[name] = both
            elif name in required:
                return None
        if properties or any("properties" in part for part in parts):
            whole["properties"] = properties
        if required:
            whole["required"] = required
        if others:
            whole["additionalProperties"] = _both(others)
            if len(parts) > 1 and any("patternProperties" in part for part in parts):
                self._notes.lost(f"{at}/patternProperties", "merged without regard to additionalProperties")
        return whole

    def _put(self, whole: Schema, word: str, value: object, at: str) -> None:
        before = whole.get(word)
        if word == "description":
            whole[word] = joined(before, value)
        elif word not in whole or same(before, value):
            whole[word] = value
        elif word in _TIGHTEST and isinstance(before, int) and isinstance(value, int):
            whole[word] = _TIGHTEST[word](before, value)
        elif word == "patternProperties" and is_object(before) and is_object(value):
            whole[word] = {
                key: _both([sub for sub in (before.get(key), value.get(key)) if sub is not None])
                for key in before | value
            }
        elif word not in ("title", "default", "examples"):
            self._notes.only_described(at, word, value)
            whole["description"] = described(whole.get("description"), {word: value})

    def _folded(self, base: Schema, branches: list[Schema], word: str, at: str) -> Schema:
        """Alternatives folded into one object."""
        own = _members(base.get("properties"))
        closed = base.get("additionalProperties") is False
        properties = dict(own)
        for name in dict.fromkeys(name for branch in branches for name in _members(branch.get("properties"))):
            found = [subs[name] for branch in branches if name in (subs := _members(branch.get("properties")))]
            if name in own:
                properties[name] = _both([own[name], _either(found)]) if len(found) == len(branches) else own[name]
            elif not closed:
                properties[name] = _either(found)
        everywhere = [name for name in _names(branches[0].get("required")) if _required_by_all(name, branches)]
        required = list(dict.fromkeys([*_names(base.get("required")), *everywhere]))
        self._notes.lost(at, "the alternatives are folded into one object, only the description tells them apart")
        count = "Exactly one" if word == "oneOf" else "At least one"
        forms = "; ".join(f"({number}) {_summary(branch, base)}" for number, branch in enumerate(branches, 1))
        folded = {
            **base,
            "description": joined(base.get("description"), f"{count} of these forms must be met: {forms}."),
            "properties": properties,
        }
        if required:
            folded["required"] = required
        if "additionalProperties" not in base and all(b.get("additionalProperties") is False for b in branches):
            folded["additionalProperties"] = False
        return folded


def _members(value: object) -> Schema:
    return value if is_object(value) else {}


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if is_array(value) else []


def _required_by_all(name: str, branches: list[Schema]) -> bool:
    return all(name in _names(branch.get("required")) for branch in branches)


def _of_property(part: Schema, name: str) -> object:
    """What one part says of a property; None if nothing."""
    properties = _members(part.get("properties"))
    return properties[name] if name in properties else part.get("additionalProperties")


def _both(schemas: list[object]) -> object:
    """A schema that means all of these."""
    telling = distinct([schema for schema in schemas if not is_true_schema(schema)])
    if any(schema is False for schema in telling):
        return False
    if len(telling) <= 1:
        return telling[0] if telling else schemas[0]
    return {"allOf": telling}


def _either(schemas: list[object]) -> object:
    """A schema that means any of these."""
    found = distinct(schemas)
    if len(found) == 1:
        return found[0]
    listed = [values for schema in found if (values := _only_values(schema)) is not None]
    if len(listed) == len(found):  # how the forms of a union are told apart
        return {"enum": distinct([value for values in listed for value in values])}
    return {"anyOf": found}


def _only_values(schema: object) -> list[object] | None:
    """The values that a schema lists, if it says nothing else."""
    if not is_object(schema) or schema.keys() - {"const", "enum", "type", "title"}:
        return None
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    kinds = schema.get("type")
    allowed = kinds if is_array(kinds) else [kinds]
    if not is_array(values) or (kinds is not None and not all(kind_of(value) in allowed for value in values)):
        return None
    return values


def _summary(branch: Schema, base: Schema) -> str:
    """A form in a few words: what it needs beyond what all need."""
    before = _names(base.get("required"))
    properties = _members(branch.get("properties"))
    needed = [_needed(name, properties.get(name)) for name in _names(branch.get("required")) if name not in before]
    title = branch.get("title")
    told = f"{title}: " if isinstance(title, str) and title else ""
    if needed:
        return f"{told}with {', '.join(needed)}"
    return f"{told}{'any of ' + ', '.join(properties) if properties else 'nothing in particular'}"


def _needed(name: str, schema: object) -> str:
    """A required property, with its value if there is only one."""
    if is_object(schema):
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if is_array(values) and len(values) == 1:
            return f"{name} = {msgspec.json.encode(values[0]).decode()}"
    return name
