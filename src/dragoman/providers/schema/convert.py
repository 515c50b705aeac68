"""A JSON Schema in a provider's style, what was changed to get there, and the way back for values.

Every style wants one object at the root, so alternatives and `allOf` at the root are made one. Below it, JSON Schema is
sent as it is; in a strict style every schema is closed and written in the keywords that the provider knows, and what it
does not know is put into the description. A schema that needs more freedom than a strict style has (a free-form object,
a value of any type) is not bent to fit: the reasons are collected, and it is sent as plain JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, cast

from msgspec import Struct

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle

from .document import COMBINATORS, Document, TooLargeError, normalize, types_of
from .objects import join
from .rules import (
    ANNOTATIONS,
    ANTHROPIC,
    KNOWN,
    LIMITED_TYPE,
    META,
    ONLY_DESCRIBED,
    OPENAI,
    Note,
    Notes,
    Rules,
    Schema,
    as_json,
    distinct,
    escape,
    excesses,
    is_array,
    is_object,
    join_texts,
    kind_is_limited,
    kind_is_one_of,
    kind_of,
    map_subschemas,
    members_of,
    required_of,
    same,
    shorten,
)

_RULES: Final[dict[SchemaStyle, Rules]] = {"openai_strict": OPENAI, "anthropic_strict": ANTHROPIC}
_NOT_AT_THE_TOP: Final = COMBINATORS | {"const", "enum", "not"}
"""OpenAI refuses these at the top of a function's parameters, Anthropic some of them."""
_WORDS: Final = ("title", "description", "default")
_NULL: Final[Schema] = {"type": "null"}


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
        return (*(f"not strict: {reason}" for reason in self.reasons), *map(str, self.notes))


def convert(schema: dict[str, object], style: SchemaStyle, *, strict: bool = False) -> Conversion:
    """The schema in a provider's style, and what was rewritten or lost.

    If there are `reasons`, it cannot be sent as a strict one and is in the form for `strict: false`. Raises
    ToolDefinitionError for what cannot be sent at all: a root that is no object, and references that lead nowhere.
    """
    try:
        notes, reasons = Notes(), ()
        document = Document(schema)
        is_plain = schema.get("type") == "object" and not schema.keys() & _NOT_AT_THE_TOP
        root = schema if is_plain else _object_root(document, notes)
        if strict and style in _RULES:
            writer = _StrictWriter(document, _RULES[style], root_is_target=is_plain)
            written = writer.write(root)
            reasons = tuple(Note(at, text) for at, text in writer.reasons.items())
            if not reasons:
                return Conversion(schema=written, notes=(*notes.all, *writer.notes.all))
        plain = _write_plain(root, document, notes)
        return Conversion(schema=plain, notes=notes.all, reasons=reasons)
    except RecursionError:
        message = "The schema is nested too deeply to be read."
        raise ToolDefinitionError(message, hint="Give it fewer levels.") from None


def excesses_together(schemas: Sequence[Schema], style: SchemaStyle) -> tuple[str, ...]:
    """Why a provider would refuse strict schemas in one request that it takes one by one; empty if it would not."""
    return excesses(schemas, _RULES[style].most_together) if style in _RULES else ()


# --- the root ---------------------------------------------------------------------------------------------------------


def _object_root(document: Document, notes: Notes) -> Schema:
    definitions = {word: value for word, value in document.root.items() if word in ("$defs", "definitions")}
    given = {word: value for word, value in document.root.items() if word not in definitions}
    whole = join(document, given, "", notes)
    if whole is None:
        kind = given.get("type")
        message = f"A schema for a model must describe an object, but its root allows none: type {kind!r}."
        raise ToolDefinitionError(message, hint='Put it into a property of an object: {"type": "object", ...}.')
    notes.rewritten("/type", 'read as "object"')
    described = {word: whole[word] for word in sorted(_NOT_AT_THE_TOP & whole.keys())}
    for word, value in described.items():
        notes.only_described("", word, value)
    kept = {word: value for word, value in whole.items() if word not in described}
    whole = {**kept, "type": "object", "properties": members_of(whole), **definitions}
    return _with_described(whole, described)


# --- JSON Schema as it is ---------------------------------------------------------------------------------------------


def _write_plain(root: Schema, document: Document, notes: Notes) -> Schema:
    """All of JSON Schema, but for what even those refuse who take it: words beside `$ref`."""
    folded = root is not document.root

    def visit(value: object, at: str) -> object:
        if not is_object(value):
            return value
        copy = map_subschemas(normalize(value, at, notes) if folded else value, at, visit)
        if not isinstance(reference := value.get("$ref"), str):
            return copy
        pointer = document.pointer(reference, at)  # refuses one that leads nowhere, or to another document
        if folded and not pointer.startswith(("/$defs/", "/definitions/")):
            message = f"The schema refers at {at or '/'} to {reference}, but its root had to be made one object."
            raise ToolDefinitionError(message, hint="Put what is referred to under $defs.")
        if all(word.startswith("$") for word in copy):
            return copy
        # Beside `$ref` Gemini's JSON Schema takes nothing but words that start with `$`; the others move around it.
        around = {word: value for word, value in copy.items() if word != "$ref" and word not in META}
        word = "allOf" if "anyOf" in around else "anyOf"  # the latter is known to more providers
        notes.rewritten(at, f"$ref put into {word}, since other keywords stand beside it")
        others = around.get(word)
        return {**around, word: [*(others if is_array(others) else []), {"$ref": reference}]}

    is_as_given = not folded and '"$ref"' not in as_json(root)  # as nearly all are, and a walk takes a while
    written = root if is_as_given else cast("Schema", visit(root, ""))
    return {word: value for word, value in written.items() if word != "$schema"}


# --- the strict styles ------------------------------------------------------------------------------------------------


class _StrictWriter:
    """Writes one document in a strict style."""

    def __init__(self, document: Document, rules: Rules, *, root_is_target: bool) -> None:
        self._document: Document = document
        self._rules: Rules = rules
        self.notes: Notes = Notes()
        self._names: dict[str, str] = {"": "#"} if root_is_target else {}
        """What is written for a reference to a pointer."""
        self._definitions: Schema = {}
        self._open: list[str] = [""] if root_is_target else []
        """References that are being written, the outermost first."""
        self.reasons: dict[str, str] = {}
        """Why the schema cannot be strict: texts by pointer."""

    def write(self, root: Schema) -> Schema:
        """The whole document. It is worth something only if there are no `reasons` then."""
        try:
            schema = self._typed(root, "", is_root=True)
        except TooLargeError as error:
            self.reasons[""] = error.message
            return {}
        except RecursionError:  # what is put together refers to itself
            self.reasons[""] = "the schema is recursive"
            return {}
        if self._definitions:
            schema["$defs"] = self._definitions
        for text in excesses([schema], {**self._rules.most_each, **self._rules.most_together}):
            self._reason("", text)
        return _order(schema)

    def _reason(self, at: str, text: str) -> Schema:
        self.reasons.setdefault(at, text)
        return {}

    def _schema(self, given: object, at: str, words: Schema | None = None) -> Schema:
        """One schema. `words`: annotations that stand around it and come before its own."""
        self._document.spend()
        if isinstance(given, bool):
            return self._reason(at, "any value is allowed" if given else "nothing fits")
        if not is_object(given):
            raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shorten(given)}.")
        outside = {**{word: given[word] for word in ANNOTATIONS if word in given}, **(words or {})}
        if text := join_texts((words or {}).get("description"), given.get("description")):
            outside["description"] = text
        rest = {word: value for word, value in given.items() if word not in ANNOTATIONS and word not in META}
        combinators = rest.keys() & COMBINATORS
        if rest.keys() - combinators == {"type"} and len(combinators) == 1 and "allOf" not in combinators:
            several = rest.get("anyOf", rest.get("oneOf"))
            if is_array(several) and all(is_object(sub) and sub.get("type") == rest["type"] for sub in several):
                del rest["type"]  # every form says it itself
        if len(rest) == 1 and combinators:
            (word,) = combinators
            branches = rest[word]
            if word == "$ref" and isinstance(branches, str):
                return self._reference(self._document.pointer(branches, at), outside, at)
            if is_array(branches) and len(branches) == 1:
                return self._schema(branches[0], f"{at}/{word}/0", outside)
            if is_array(branches) and word in ("anyOf", "oneOf"):
                if word == "oneOf":
                    self.notes.lost(f"{at}/oneOf", "written as anyOf: a value may fit more than one form")
                written = [self._schema(sub, f"{at}/{word}/{i}") for i, sub in enumerate(branches) if sub is not False]
                return self._union(written, self._put_into_words(outside, at), at)
        if not combinators:
            return self._typed({**outside, **rest}, at)
        joined = join(self._document, {**outside, **rest}, at, self.notes)
        if joined is None:
            return self._reason(at, f"{' and '.join(sorted(combinators))} cannot be told as one object")
        return self._typed({**joined, "type": "object"}, at)

    def _union(self, branches: list[Schema], words: Schema, at: str) -> Schema:
        branches = distinct(branches)
        if not branches:
            return self._reason(at, "nothing fits")
        if len(branches) > 1 or "$ref" in branches[0]:
            return {**words, "anyOf": branches}
        if text := join_texts(words.get("description"), branches[0].get("description")):
            words = {**words, "description": text}
        return _order({**branches[0], **words})

    def _reference(self, pointer: str, words: Schema, at: str) -> Schema:
        pointer = self._document.follow(pointer)
        if pointer in self._open and not self._rules.recursive:
            return self._reason(pointer, "the schema is recursive")
        words = self._put_into_words(words, at)
        if isinstance(target := self._document.at(pointer), bool):
            return self._schema(target, at)
        if words and self._rules.bare_references:
            return self._target(pointer, words)
        if pointer not in self._names:
            name = _free_name(pointer.rpartition("/")[2] or "root", self._definitions)
            self._names[pointer] = f"#/$defs/{escape(name)}"
            self._definitions[name] = {}  # takes its place before what it refers to
            self._definitions[name] = self._target(pointer, {})
        reference: Schema = {"$ref": self._names[pointer]}
        return {**words, "anyOf": [reference]} if words else reference

    def _target(self, pointer: str, words: Schema) -> Schema:
        self._open.append(pointer)
        schema = self._schema(self._document.at(pointer), pointer, words)
        self._open.pop()
        return schema

    # --- one schema without combinators -------------------------------------------------------------------------------

    def _typed(self, given: Schema, at: str, *, is_root: bool = False) -> Schema:
        given = normalize(given, at, self.notes)
        types = types_of(given)
        if types is None:
            types = _plausible_types(given)
            if not types:
                return self._reason(at, "any value is allowed")
            self.notes.rewritten(f"{at}/type", f"added: {', '.join(types)}")
        if not types:
            return self._reason(at, "nothing fits")
        schema: Schema = {"type": _as_type(types)}
        described: Schema = {}
        for word, value in given.items():
            if word in LIMITED_TYPE:
                if kind_is_limited(word, types):
                    (schema if self._knows(word, value, types) else described)[word] = value
            elif word in ("allOf", "anyOf") or (word in ONLY_DESCRIBED and not _says_nothing(word, value)):
                described[word] = value
            elif word not in KNOWN:
                self.notes.rewritten(f"{at}/{word}", "removed, the provider does not know it")
        values = given.get("enum")
        if is_array(values):
            values = [value for value in values if kind_is_one_of(kind_of(value), types)]
            if not values:
                return self._reason(at, "nothing fits")
            if any(kind_of(value) in ("array", "object") for value in values):
                described["enum"] = values
            else:
                schema["enum"] = values
        if "enum" not in schema and "object" in types:
            schema |= self._object(given, at, is_root=is_root)
        if "enum" not in schema and "array" in types:
            schema |= self._array(given, described, at)
        for word, value in described.items():
            self.notes.only_described(at, word, value)
        return _order(_with_described({**schema, **self._put_into_words(given, at)}, described))

    def _knows(self, word: str, value: object, types: Sequence[str]) -> bool:
        rules = self._rules
        if word not in rules.limits:
            return False
        if word == "format":
            return "string" in types and value in rules.formats
        if word == "pattern":
            return isinstance(value, str) and re.search(rules.unknown_in_patterns, value) is None
        most = rules.highest_min_items
        return word != "minItems" or most is None or (isinstance(value, int) and value <= most)

    def _put_into_words(self, given: Schema, at: str) -> Schema:
        """The annotations that the provider takes, the others told in the description."""
        found: Schema = {word: given[word] for word in ("title", "description") if isinstance(given.get(word), str)}
        told: list[str] = []
        if "default" in given and self._rules.default:
            found["default"] = given["default"]
        elif "default" in given:
            told.append(f"Default: {as_json(given['default'])}.")
            self.notes.rewritten(f"{at}/default", "told in the description")
        listed = given.get("examples")
        examples = [*(listed if is_array(listed) else []), *([given["example"]] if "example" in given else [])]
        if examples:
            told.append(f"Examples: {', '.join(map(as_json, examples))}.")
            self.notes.rewritten(f"{at}/examples", "told in the description")
        if given.get("deprecated") is True:
            told.append("Deprecated.")
        return {**found, "description": join_texts(found.get("description"), *told)} if told else found

    def _object(self, given: Schema, at: str, *, is_root: bool) -> Schema:
        properties = {name: sub for name, sub in members_of(given).items() if sub is not False}
        required, others = required_of(given), given.get("additionalProperties", True)
        if "patternProperties" in given or others not in (True, False) or given.get("additionalProperties") is True:
            self._reason(at, "an object with properties of any name")
        elif not is_root and others is not False and not properties:
            self._reason(at, "an object that says nothing of its properties")
        if strangers := [name for name in required if name not in properties]:
            self._reason(at, f"required but not described: {', '.join(strangers)}")
        written = {name: self._schema(sub, f"{at}/properties/{escape(name)}") for name, sub in properties.items()}
        if self._rules.all_required:
            for name in [name for name in properties if name not in required]:
                what = "optional -> required, null where there is nothing to say"
                self.notes.rewritten(f"{at}/properties/{escape(name)}", what)
                written[name] = _make_nullable(written[name])
            required = list(properties)
        needed: Schema = {"required": required} if required or self._rules.all_required else {}
        return {"properties": written, **needed, "additionalProperties": False}

    def _array(self, given: Schema, described: Schema, at: str) -> Schema:
        items, prefix = given.get("items"), given.get("prefixItems")
        if is_array(prefix) and prefix:  # items that differ by position, as items that may each be any of them
            described["prefixItems"] = prefix
            written = [self._schema(sub, f"{at}/prefixItems/{i}") for i, sub in enumerate(prefix)]
            return {"items": self._union(written, {}, at)}
        if items is None:
            return self._reason(at, "an array that says nothing of its items")
        if items is False:
            return self._reason(at, "an array that must be empty")
        return {"items": self._schema(items, f"{at}/items")}


def _says_nothing(word: str, value: object) -> bool:
    if word in ("not", "contains"):
        return False
    return value in (True, {}) or (word == "unevaluatedProperties" and value is False)  # only declared ones are written


def _plausible_types(schema: Schema) -> list[str]:
    """The types that a schema is about which names none: `{"minLength": 1}` means strings."""
    if is_array(values := schema.get("enum")):
        kinds = distinct([kind_of(value) for value in values])
        return [kind for kind in kinds if kind != "integer" or "number" not in kinds]
    about = [LIMITED_TYPE[word] for word in schema if word in LIMITED_TYPE]
    about += (
        ["object"] if schema.keys() & {"properties", "required", "additionalProperties", "patternProperties"} else []
    )
    about += ["array"] if schema.keys() & {"items", "prefixItems"} else []
    return distinct(about)


def _as_type(types: Sequence[str]) -> object:
    return types[0] if len(types) == 1 else list(types)


def _with_described(schema: Schema, described: Schema) -> Schema:
    """The schema with limits in its description that nothing else says to the model."""
    if not described:
        return schema
    told = f"Must also match the JSON Schema {as_json(described)}."
    return _order({**schema, "description": join_texts(schema.get("description"), told)})


def _order(schema: Schema) -> Schema:
    """The same members, the telling ones first: models read schemas too."""
    return {**{word: schema[word] for word in ("type", *_WORDS) if word in schema}, **schema}


def _make_nullable(schema: Schema) -> Schema:
    if is_array(branches := schema.get("anyOf")):
        return schema if _NULL in branches else {**schema, "anyOf": [*branches, dict(_NULL)]}
    if "$ref" in schema:
        return {"anyOf": [schema, dict(_NULL)]}
    kinds = schema.get("type")
    types = kinds if is_array(kinds) else [kinds]
    result = {**schema, "type": [*types, "null"]} if "null" not in types else dict(schema)
    if is_array(values := result.get("enum")) and None not in values:
        result["enum"] = [*values, None]
    return result


def _free_name(name: str, taken: Schema) -> str:
    """A name for a definition that is not taken, as near as possible to a wanted one."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", name.replace("~1", "/").replace("~0", "~")).strip("_") or "schema"
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


# --- the way back -----------------------------------------------------------------------------------------------------


def restored(value: object, schema: dict[str, object]) -> object:
    """A copy of a value that fits what was sent, as the given schema wants it.

    A null for an optional property that may not be null means that it is absent. What does not fit stays as it is: the
    tool's own check says so.
    """
    return _Restorer(schema).restore(value, [schema])


class _Restorer:
    def __init__(self, schema: Schema) -> None:
        self._document: Document = Document(schema)
        self._known: dict[int, list[Schema]] = {}
        """The forms of schemas, by their ids: a long array has one schema for all its items."""

    def restore(self, value: object, schemas: list[object]) -> object:
        if is_array(value):
            forms = self._forms(schemas, value)
            return [
                self.restore(item, [sub for form in forms for sub in _item(form, i)]) for i, item in enumerate(value)
            ]
        if not is_object(value):
            return value
        forms, found = self._forms(schemas, value), Schema()
        for name, sub in value.items():
            declaring = [form for form in forms if name in members_of(form)]
            declaring = [form for form in declaring if value.keys() >= set(required_of(form))] or declaring
            declared = [members_of(form)[name] for form in declaring]
            needed = bool(declared) and all(name in required_of(form) for form in forms if members_of(form))
            if sub is not None or needed or not declared or any(map(self._takes_null, declared)):
                found[name] = self.restore(sub, declared)
        return found

    def _forms(self, schemas: list[object], value: object = None) -> list[Schema]:
        """The forms of these schemas; those that a value may have, if there are such."""
        for schema in schemas:
            if id(schema) not in self._known:
                self._known[id(schema)] = [*self._forms_of(schema, set())]
        forms = [form for schema in schemas for form in self._known[id(schema)]]
        return forms if value is None else [form for form in forms if _takes(form, value)] or forms

    def _takes_null(self, schema: object, followed: tuple[str, ...] = ()) -> bool:
        if not is_object(schema):
            return schema is True
        if not _takes(
            normalize({word: value for word, value in schema.items() if word not in META}, "", Notes()), None
        ):
            return False
        if isinstance(reference := schema.get("$ref"), str):
            pointer = self._document.pointer(reference, "")
            if pointer not in followed and not self._takes_null(self._document.at(pointer), (*followed, pointer)):
                return False
        branches = {
            word: found for word in ("allOf", "anyOf", "oneOf") if is_array(found := schema.get(word)) and found
        }
        return all(
            (all if word == "allOf" else any)(self._takes_null(sub, followed) for sub in several)
            for word, several in branches.items()
        )

    def _forms_of(self, schema: object, followed: set[str]) -> Iterator[Schema]:
        """What a schema says itself, and what all those say that it refers to or combines, each for itself."""
        if schema is True:
            yield {}
        if not is_object(schema):
            return
        combined = schema.keys() & COMBINATORS
        own = {word: value for word, value in schema.items() if word not in ANNOTATIONS and word not in META}
        if not combined or own.keys() - combined:
            yield normalize({word: value for word, value in own.items() if word not in combined}, "", Notes())
        if isinstance(reference := schema.get("$ref"), str):
            pointer = self._document.pointer(reference, "")
            if pointer not in followed:
                followed.add(pointer)
                yield from self._forms_of(self._document.at(pointer), followed)
        for word in ("allOf", "anyOf", "oneOf"):
            if is_array(branches := schema.get(word)):
                for sub in branches:
                    yield from self._forms_of(sub, followed)


def _item(form: Schema, index: int) -> list[object]:
    """The schema for the item at this place of an array, if there is one."""
    prefix = found if is_array(found := form.get("prefixItems")) else []
    return [prefix[index]] if index < len(prefix) else [form["items"]] if "items" in form else []


def _takes(form: Schema, value: object) -> bool:
    types, values = types_of(form), form.get("enum")
    return (types is None or kind_is_one_of(kind_of(value), types)) and (
        not is_array(values) or any(same(value, listed) for listed in values)
    )
