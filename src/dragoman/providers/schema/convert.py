"""Write a JSON Schema in a provider's style.

Every style wants one object at the root, so references and combinators at the root are merged. Below it, JSON Schema
is sent as it is; in a strict style every object is closed, and keywords that the provider does not know move into the
description. A schema that needs more freedom than a strict style has (a free-form object, a value of any type) is sent
as plain JSON Schema, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from dragoman._decoding import DEEPEST_SCHEMA, deeper_than
from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle
from dragoman.tools import is_array, is_object, kind_of, map_subschemas

from .document import (
    COMBINATORS,
    META,
    Document,
    Note,
    Schema,
    TooLargeError,
    as_json,
    distinct,
    escape,
    join_texts,
    only_described,
    properties_of,
    required_of,
    shorten,
)
from .objects import merge
from .rules import (
    ANNOTATIONS,
    ANTHROPIC,
    IMPLIED_TYPE,
    KNOWN,
    LIMITED_TYPE,
    NO_LIMITS,
    ONLY_DESCRIBED,
    OPENAI,
    Rules,
    exceeded_limits,
)

_RULES: Final[dict[SchemaStyle, Rules]] = {"openai_strict": OPENAI, "anthropic_strict": ANTHROPIC}
_NOT_AT_THE_ROOT: Final = COMBINATORS | {"const", "enum", "not"}
"""OpenAI refuses these at the root of a function's parameters, Anthropic some of them."""
_NULL: Final[Schema] = {"type": "null"}


class Conversion(Struct, frozen=True, kw_only=True):
    """A schema in a provider's style, and what was changed."""

    schema: Schema
    notes: tuple[Note, ...] = ()
    reason: Note | None = None
    """Why it cannot be sent as a strict schema although that was asked for; None if it can."""

    @property
    def exact(self) -> bool:
        """Whether every value that fits what is sent fits the given schema too, once unwanted nulls are removed."""
        return not any(note.lossy for note in self.notes)

    @property
    def lines(self) -> tuple[str, ...]:
        """The reason and the notes as texts, one line each."""
        reasons = () if self.reason is None else (f"not strict: {self.reason}",)
        return (*reasons, *dict.fromkeys(map(str, self.notes)))


class _NotStrictError(Exception):
    """The schema cannot be strict, for the reason in `note`."""

    def __init__(self, at: str, text: str) -> None:
        super().__init__(text)
        self.note: Note = Note(at, text)


def convert(schema: Schema, style: SchemaStyle, *, strict: bool = False) -> Conversion:
    """Write a schema of JSON Schema 2020-12 in a provider's style. The input is not changed.

    If there is a `reason`, it cannot be strict and is in the form for `strict: false`. Raises ToolDefinitionError for
    what cannot be sent at all: a root that is not an object, and references that lead nowhere.
    """
    if deeper_than(DEEPEST_SCHEMA, schema):
        raise _too_deep()
    try:
        notes, reason = list[Note](), None
        document = Document(schema)
        is_plain = schema.get("type") == "object" and not schema.keys() & _NOT_AT_THE_ROOT
        root = schema if is_plain else _merge_root(document, notes)
        if strict and style in _RULES:
            writer = _StrictWriter(document, _RULES[style], root_is_target=is_plain)
            try:
                written = writer.write(root)
                return Conversion(schema=written, notes=(*notes, *writer.notes))
            except _NotStrictError as error:
                reason = error.note
            except (TooLargeError, RecursionError):
                reason = Note("", "it is too large with its references resolved")
        return Conversion(schema=_write_plain(root, document, notes), notes=tuple(notes), reason=reason)
    except RecursionError:  # a chain of references
        raise _too_deep() from None


def _too_deep() -> ToolDefinitionError:
    message = f"The schema is nested too deeply: {DEEPEST_SCHEMA} levels are allowed, with its references resolved."
    return ToolDefinitionError(message, hint="Give it fewer levels.")


def exceeded_together(schemas: Sequence[Schema], style: SchemaStyle) -> list[str]:
    """Why a provider would refuse strict schemas in one request that it accepts one by one; empty if it would not."""
    return exceeded_limits(schemas, _RULES[style].max_total_sizes) if style in _RULES else []


def _merge_root(document: Document, notes: list[Note]) -> Schema:
    definitions = {word: value for word, value in document.root.items() if word in ("$defs", "definitions")}
    given = {word: value for word, value in document.root.items() if word not in definitions}
    whole = merge(document, given, "", notes)
    if whole is None or whole.get("not") == {}:
        why = f"type {given['type']!r}" if "type" in given else "nothing fits it"
        message = f"A schema for a model must describe an object, but its root allows none: {why}."
        raise ToolDefinitionError(message, hint='Put it into a property of an object: {"type": "object", ...}.')
    notes.append(Note("/type", 'read as "object"'))
    described = {word: whole[word] for word in sorted(_NOT_AT_THE_ROOT & whole.keys())}
    notes += [only_described("", word, value) for word, value in described.items()]
    kept = {word: value for word, value in whole.items() if word not in described}
    return _describe({**kept, "type": "object", "properties": properties_of(whole), **definitions}, described)


def _write_plain(root: Schema, document: Document, notes: list[Note]) -> Schema:
    """All of JSON Schema, except that Gemini takes only keywords that start with `$` beside `$ref`."""
    is_merged = root is not document.root

    def write(schema: Schema) -> Schema:
        copy = map_subschemas(schema, write)
        if not isinstance(reference := copy.get("$ref"), str):
            return copy
        pointer = document.pointer(reference)
        if is_merged and not pointer.startswith(("/$defs/", "/definitions/")):
            message = f"The schema refers to {reference}, but its root had to be merged into one object."
            raise ToolDefinitionError(message, hint="Put the definition under $defs.")
        if all(word.startswith("$") for word in copy):
            return copy
        around = {word: value for word, value in copy.items() if word != "$ref" and word not in META}
        word = "allOf" if "anyOf" in around else "anyOf"  # the latter is known to more providers
        notes.append(Note("", f"reference to {reference} put into {word}, since there are other keywords beside it"))
        others = around.get(word)
        return {**around, word: [*(others if is_array(others) else []), {"$ref": reference}]}

    has_references = '"$ref"' in as_json(root)  # most have none, and a walk takes a while
    written = write(root) if has_references else root
    return {word: value for word, value in written.items() if word != "$schema"}


# --- the strict styles ------------------------------------------------------------------------------------------------


class _StrictWriter:
    """Writes one document in a strict style. Raises _NotStrictError if that cannot be done."""

    def __init__(self, document: Document, rules: Rules, *, root_is_target: bool) -> None:
        self._document: Document = document
        self._rules: Rules = rules
        self.notes: list[Note] = []
        self._references: dict[str, str] = {"": "#"} if root_is_target else {}
        """What is written for a reference, by the pointer that it means."""
        self._definitions: Schema = {}
        self._open: list[str] = [""] if root_is_target else []
        """Pointers to the targets of references that are being written, the outermost first."""

    def write(self, root: Schema) -> Schema:
        """The whole document."""
        schema = self._write_typed(root, "", is_root=True)
        if self._definitions:
            schema["$defs"] = self._definitions
        for text in exceeded_limits([schema], {**self._rules.max_sizes, **self._rules.max_total_sizes}):
            raise _NotStrictError("", text)
        return schema

    def _write(self, given: object, at: str, outer: Schema | None = None) -> Schema:
        """One schema. `outer`: the annotations of a reference or a combinator that contains only this schema."""
        self._document.spend()
        if isinstance(given, bool):
            raise _NotStrictError(at, "any value is allowed" if given else "nothing fits")
        if not is_object(given):
            raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shorten(given)}.")
        annotations = {**{word: given[word] for word in ANNOTATIONS if word in given}, **(outer or {})}
        if text := join_texts((outer or {}).get("description"), given.get("description")):
            annotations["description"] = text
        rest = {word: value for word, value in given.items() if word not in ANNOTATIONS and word not in META}
        combinators = rest.keys() & COMBINATORS
        if not combinators:
            return self._write_typed({**annotations, **rest}, at)
        if _is_repeated_type(rest):
            del rest["type"]
        if len(rest) == 1:
            ((word, value),) = rest.items()
            if word == "$ref" and isinstance(value, str):
                return self._write_reference(self._document.pointer(value), annotations, at)
            if is_array(value) and len(value) == 1:
                return self._write(value[0], f"{at}/{word}/0", annotations)
            if is_array(value) and word != "allOf":
                if word == "oneOf":
                    self.notes.append(Note(f"{at}/oneOf", "written as anyOf: several forms may fit", lossy=True))
                branches = [self._write(sub, f"{at}/{word}/{i}") for i, sub in enumerate(value) if sub is not False]
                return self._write_union(branches, self._annotations(annotations, at), at)
        merged = merge(self._document, {**annotations, **rest}, at, self.notes)
        if merged is None:
            raise _NotStrictError(at, f"{' and '.join(sorted(combinators))} cannot be merged into one object")
        return self._write_typed({**merged, "type": "object"}, at)

    def _write_union(self, branches: list[Schema], annotations: Schema, at: str) -> Schema:
        branches = distinct(branches)
        if not branches:
            raise _NotStrictError(at, "nothing fits")
        if len(branches) > 1 or "$ref" in branches[0]:
            return {**annotations, "anyOf": branches}
        if text := join_texts(annotations.get("description"), branches[0].get("description")):
            annotations = {**annotations, "description": text}
        return _order({**branches[0], **annotations})

    def _write_reference(self, pointer: str, annotations: Schema, at: str) -> Schema:
        pointer = self._document.follow(pointer)
        if pointer in self._open and not self._rules.recursive:
            raise _NotStrictError(pointer, "the schema is recursive")
        annotations = self._annotations(annotations, at)
        if annotations and self._rules.inline_references:
            return self._write_target(pointer, annotations)
        if pointer not in self._references:
            name = _free_name(pointer.rpartition("/")[2] or "root", self._definitions)
            self._references[pointer] = f"#/$defs/{escape(name)}"
            self._definitions[name] = {}  # takes its place before what it refers to
            self._definitions[name] = self._write_target(pointer, {})
        reference: Schema = {"$ref": self._references[pointer]}
        return {**annotations, "anyOf": [reference]} if annotations else reference

    def _write_target(self, pointer: str, annotations: Schema) -> Schema:
        self._open.append(pointer)
        schema = self._write(self._document.at(pointer), pointer, annotations)
        self._open.pop()
        return schema

    def _write_typed(self, given: Schema, at: str, *, is_root: bool = False) -> Schema:
        """A schema without combinators, except those that `merge` left for the description."""
        types = _types_of(given)
        if not types:
            types = _implied_types(given)
            if not types:
                raise _NotStrictError(at, "any value is allowed")
            self.notes.append(Note(f"{at}/type", f"added: {', '.join(types)}"))
        schema: Schema = {"type": types[0] if len(types) == 1 else types}
        described: Schema = {}
        for word, value in given.items():
            if word in NO_LIMITS and value == NO_LIMITS[word]:
                continue
            if word in LIMITED_TYPE:
                if any(_is_one_of(kind, [LIMITED_TYPE[word]]) for kind in types):
                    (schema if self._enforces(word, value) else described)[word] = value
                else:
                    self.notes.append(Note(f"{at}/{word}", f"removed, it limits no {' or '.join(types)}"))
            elif word in ONLY_DESCRIBED:
                described[word] = value
            elif word not in KNOWN:
                self.notes.append(Note(f"{at}/{word}", "removed, the provider does not know it"))
        if is_array(values := _values_of(given)):
            values = [value for value in values if _is_one_of(kind_of(value), types)]
            if not values:
                raise _NotStrictError(at, "nothing fits")
            (described if any(map(_is_container, values)) else schema)["enum"] = values
        if "enum" not in schema and "object" in types:
            schema |= self._write_object(given, at, is_root=is_root)
        if "enum" not in schema and "array" in types:
            schema |= self._write_array(given, described, at)
        self.notes += [only_described(at, word, value) for word, value in described.items()]
        return _describe({**schema, **self._annotations(given, at)}, described)

    def _enforces(self, word: str, value: object) -> bool:
        rules = self._rules
        if word not in rules.limits:
            return False
        if word == "format":
            return value in rules.formats
        if word == "pattern":
            return isinstance(value, str) and re.search(rules.unknown_in_patterns, value) is None
        most = rules.highest_min_items
        return word != "minItems" or most is None or (isinstance(value, int) and value <= most)

    def _annotations(self, given: Schema, at: str) -> Schema:
        """The annotations that the provider takes, with the others in the description."""
        taken: Schema = {word: given[word] for word in ("title", "description") if isinstance(given.get(word), str)}
        texts: list[str] = []
        if "default" in given and self._rules.default:
            taken["default"] = given["default"]
        elif "default" in given:
            texts.append(f"Default: {as_json(given['default'])}.")
            self.notes.append(Note(f"{at}/default", "moved into the description"))
        listed = given.get("examples")
        examples = [*(listed if is_array(listed) else []), *([given["example"]] if "example" in given else [])]
        if examples:
            texts.append(f"Examples: {', '.join(map(as_json, examples))}.")
            self.notes.append(Note(f"{at}/examples", "moved into the description"))
        if given.get("deprecated") is True:
            texts.append("Deprecated.")
        return {**taken, "description": join_texts(taken.get("description"), *texts)} if texts else taken

    def _write_object(self, given: Schema, at: str, *, is_root: bool) -> Schema:
        properties = {name: sub for name, sub in properties_of(given).items() if sub is not False}
        required, additional = required_of(given), given.get("additionalProperties")
        if "patternProperties" in given or additional not in (None, False):
            raise _NotStrictError(at, "an object with properties of any name")
        if not is_root and additional is None and not properties:
            raise _NotStrictError(at, "an object that declares no properties")
        if undeclared := [name for name in required if name not in properties]:
            raise _NotStrictError(at, f"required but not declared: {', '.join(undeclared)}")
        written = {name: self._write(sub, f"{at}/properties/{escape(name)}") for name, sub in properties.items()}
        if self._rules.all_required:
            for name in [name for name in properties if name not in required]:
                note = "optional -> required, null where there is nothing to say"
                self.notes.append(Note(f"{at}/properties/{escape(name)}", note))
                written[name] = _make_nullable(written[name])
            required = list(properties)
        needed: Schema = {"required": required} if required or self._rules.all_required else {}
        return {"properties": written, **needed, "additionalProperties": False}

    def _write_array(self, given: Schema, described: Schema, at: str) -> Schema:
        items, prefix = given.get("items"), given.get("prefixItems")
        if is_array(prefix) and prefix:  # items that differ by position: each may be any of them
            described["prefixItems"] = prefix
            written = [self._write(sub, f"{at}/prefixItems/{i}") for i, sub in enumerate(prefix)]
            return {"items": self._write_union(written, {}, at)}
        if items is None:
            raise _NotStrictError(at, "an array that declares no items")
        return {"items": self._write(items, f"{at}/items")}


def _is_repeated_type(schema: Schema) -> bool:
    """Whether a schema is a type and alternatives that all name the same type themselves."""
    if len(schema) != 2 or "type" not in schema:
        return False
    branches = schema.get("anyOf", schema.get("oneOf"))
    return is_array(branches) and all(is_object(sub) and sub.get("type") == schema["type"] for sub in branches)


def _types_of(schema: Schema) -> list[str]:
    types = schema.get("type", [])
    return [str(kind) for kind in types] if is_array(types) else [str(types)]


def _values_of(schema: Schema) -> object:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _implied_types(schema: Schema) -> list[str]:
    """The types that a schema without `type` is about."""
    if is_array(values := _values_of(schema)):
        kinds = dict.fromkeys(map(kind_of, values))
        return [kind for kind in kinds if kind != "integer" or "number" not in kinds]
    return list(dict.fromkeys(IMPLIED_TYPE[word] for word in schema if word in IMPLIED_TYPE))


def _is_one_of(kind: str, types: Sequence[str]) -> bool:
    return kind in types or (kind == "integer" and "number" in types)


def _is_container(value: object) -> bool:
    return isinstance(value, list | dict)


def _describe(schema: Schema, described: Schema) -> Schema:
    """The schema with constraints in its description that nothing else tells the model."""
    if described:
        text = f"Must also match the JSON Schema {as_json(described)}."
        schema = {**schema, "description": join_texts(schema.get("description"), text)}
    return _order(schema)


def _order(schema: Schema) -> Schema:
    """The same members with type and annotations first: models read schemas too."""
    return {**{word: schema[word] for word in ("type", "title", "description", "default") if word in schema}, **schema}


def _make_nullable(schema: Schema) -> Schema:
    if is_array(branches := schema.get("anyOf")):
        return schema if _NULL in branches else {**schema, "anyOf": [*branches, dict(_NULL)]}
    if "$ref" in schema:
        return {"anyOf": [schema, dict(_NULL)]}
    types = _types_of(schema)
    result = {**schema, "type": [*types, "null"]} if "null" not in types else schema
    values = result.get("enum")
    return {**result, "enum": [*values, None]} if is_array(values) and None not in values else result


def _free_name(name: str, taken: Schema) -> str:
    """A name for a definition that is not taken, as near as possible to a wanted one."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", name.replace("~1", "/").replace("~0", "~")).strip("_") or "schema"
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
