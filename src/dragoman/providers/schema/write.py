"""From nodes to the schema that is sent, in one of three styles; and from a value back to the given schema.

Owns: what is done when a schema cannot be strict, and undoing what a style did to values.

A schema that needs more freedom than a strict subset has (a free-form object, a value of any type) is not bent to fit:
the reasons are collected, and it is sent as a plain one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, cast

from msgspec import Struct

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle

from .read import Document, Node, Reader, alternatives, reference_of
from .rules import (
    ANTHROPIC,
    JSON_SCHEMA,
    META,
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
    kind_is_one_of,
    kind_of,
    map_subschemas,
    same,
)

_RULES: Final[dict[SchemaStyle, Rules]] = {
    "json_schema": JSON_SCHEMA,
    "openai_strict": OPENAI,
    "anthropic_strict": ANTHROPIC,
}
_NOT_AT_THE_TOP: Final = frozenset(["allOf", "anyOf", "const", "enum", "not", "oneOf", "$ref"])
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
        plain = _leave_plain(schema)
        if style == "json_schema" or not strict:
            return plain
        done = _rewrite(schema, _RULES[style])
        return Conversion(schema=plain.schema, notes=plain.notes, reasons=done.reasons) if done.reasons else done
    except RecursionError:
        message = "The schema is nested too deeply to be read."
        raise ToolDefinitionError(message, hint="Give it fewer levels.") from None


def together(schemas: Sequence[Schema], style: SchemaStyle) -> tuple[str, ...]:
    """Why a provider would refuse strict schemas in one request that it takes one by one; empty if it would not."""
    return excesses(schemas, _RULES[style])


def _rewrite(schema: Schema, rules: Rules) -> Conversion:
    notes = Notes()
    reader = Reader(Document(schema), rules, notes)
    writer = _Writer(reader, rules, notes, root_is_target=_has_plain_root(schema))
    written = writer.document(_object_root(reader, notes))
    reasons = tuple(Note(at, text) for at, text in writer.reasons.items())
    return Conversion(schema=written, notes=notes.all, reasons=reasons)


def _has_plain_root(schema: Schema) -> bool:
    return schema.get("type") == "object" and not schema.keys() & _NOT_AT_THE_TOP


# --- JSON Schema as it is ---------------------------------------------------------------------------------------------


def _leave_plain(schema: Schema) -> Conversion:
    """All of JSON Schema, but for what even those refuse who take it: combinators at the top, words beside `$ref`."""
    if not _has_plain_root(schema):
        return _rewrite(schema, JSON_SCHEMA)
    document, notes = Document(schema), Notes()

    def visit(value: object, at: str) -> object:
        if not is_object(value):
            return value
        copy = map_subschemas(value, at, visit)
        reference = reference_of(value)
        if reference is None:
            return copy
        document.pointer(reference, at)  # refuses one that leads nowhere, or to another document
        return _separate_reference(copy, at, notes)

    copy = cast("Schema", visit(schema, ""))
    return Conversion(schema={word: value for word, value in copy.items() if word != "$schema"}, notes=notes.all)


def _separate_reference(schema: Schema, at: str, notes: Notes) -> Schema:
    """Beside `$ref` Gemini's JSON Schema takes nothing but words that start with `$`; the others move around it."""
    if all(word.startswith("$") for word in schema):
        return schema
    around = {word: value for word, value in schema.items() if word != "$ref" and word not in META}
    word = "allOf" if "anyOf" in around else "anyOf"  # the latter is known to more providers
    notes.rewritten(at, f"$ref put into {word}, since other keywords stand beside it")
    others = around.get(word)
    return {**around, word: [*(others if is_array(others) else []), {"$ref": schema["$ref"]}]}


# --- the root ---------------------------------------------------------------------------------------------------------


def _object_root(reader: Reader, notes: Notes) -> Node:
    """The root as one object, since that is what a tool's arguments and a structured reply are."""
    root = reader.document.root
    node = reader.expand(reader.node(root, ""))
    forms = [form for form in _forms(node, reader) if form.types is None or "object" in form.types]
    if not forms:
        message = f"A schema for a model must describe an object, but its root allows none: type {root.get('type')!r}."
        raise ToolDefinitionError(message, hint='Put it into a property of an object: {"type": "object", ...}.')
    if not _has_plain_root(root):
        notes.rewritten("/type", 'read as "object"')
    forms = [_without_values(form.with_types(["object"]), notes) for form in forms]
    whole = forms[0] if len(forms) == 1 else _fold(forms, notes)
    return whole if whole.at == node.at and not node.any_of else whole.with_words(node, whole)


def _forms(node: Node, reader: Reader, seen: frozenset[str] = frozenset()) -> Iterator[Node]:
    """A node as nodes that are neither references nor alternatives."""
    if node.ref is not None:
        if node.ref not in seen:
            yield from _forms(reader.target(node.ref), reader, seen | {node.ref})
    elif node.any_of:
        for one in node.any_of:
            yield from _forms(one, reader, seen)
    elif not node.never:
        yield node


def _without_values(node: Node, notes: Notes) -> Node:
    if node.values is None:
        return node
    notes.only_described(node.at, "enum", list(node.values))
    return node.with_changes(values=None, described={**node.described, "enum": list(node.values)})


def _fold(forms: list[Node], notes: Notes) -> Node:
    """Alternatives as one object that has the properties of all of them; only words say which ones go together."""
    notes.lost("", "the alternatives are folded into one object, only the description tells them apart")
    first = forms[0]
    required = [name for name in first.required if all(name in form.required for form in forms)]
    names = dict.fromkeys(name for form in forms for name in form.properties)
    summaries = "; ".join(f"({number}) {_summarise(form, required)}" for number, form in enumerate(forms, 1))
    described = [dict(form.described) for form in forms]
    return Node(
        at="",
        annotations={"description": f"One of these forms must be met: {summaries}."},
        described=described[0] if len(distinct(described)) == 1 else {"anyOf": described},
        types=("object",),
        limits={w: v for w, v in first.limits.items() if all(same(form.limits.get(w), v) for form in forms)},
        properties={
            name: _unite([form.properties[name] for form in forms if name in form.properties]) for name in names
        },
        required=tuple(required),
        others=first.others if all(form.others is not None and form.others.never for form in forms) else None,
        patterned=any(form.patterned for form in forms),
    )


def _unite(nodes: list[Node]) -> Node:
    """Any of these; lists of values become one list."""
    if any(node.values is None for node in nodes):
        return alternatives(nodes, nodes[0].at)
    values = distinct([value for node in nodes for value in node.values or ()])
    return nodes[0].with_changes(values=tuple(values), types=None, limits={}).simplified()


def _summarise(form: Node, common: list[str]) -> str:
    """A form in a few words: what it needs beyond what all need."""
    needed: list[str] = []
    for name in form.required:
        values = form.properties[name].values if name in form.properties else None
        if values is not None and len(values) == 1:
            needed.append(f"{name} = {as_json(values[0])}")
        elif name not in common:
            needed.append(name)
    title = form.annotations.get("title")
    return (f"{title}: " if title else "") + (f"with {', '.join(needed)}" if needed else "nothing in particular")


# --- writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes one document."""

    def __init__(self, reader: Reader, rules: Rules, notes: Notes, *, root_is_target: bool) -> None:
        self._reader: Reader = reader
        self._rules: Rules = rules
        self._notes: Notes = notes
        self._names: dict[str, str] = {"": "#"} if root_is_target else {}
        """What is written for a reference to a pointer."""
        self._definitions: dict[str, Schema] = {}
        self._open: list[str] = [""] if root_is_target else []
        """References that are being written, the outermost first."""
        self.reasons: dict[str, str] = {}
        """Why the schema cannot be strict: texts by pointer."""

    def document(self, root: Node) -> Schema:
        """The whole document. A strict one is worth something only if there are no `reasons` then."""
        schema: Schema = {"type": "object", **self._limits(root, ["object"]), **self._words(root)}
        schema |= self._members(root, is_root=True)
        if self._definitions:
            schema["$defs"] = dict(self._definitions)
        for text in excesses([schema], self._rules):
            self.reasons.setdefault("", text)
        return _order(schema)

    def schema(self, node: Node) -> Schema:
        """One node."""
        if node.ref is not None:
            return self._reference(node, node.ref)
        if node.never and not self._rules.strict:
            return {"not": {}}
        if node.never:
            self._notes.lost(node.at, "nothing fits, but that cannot be said")
            node = Node(at=node.at, annotations={"description": "Nothing fits here."})
        if node.any_of:
            return self._union([self.schema(one) for one in node.any_of], self._words(node))
        return _order(self._plain(node))

    def _plain(self, node: Node) -> Schema:
        about = node.types or node.plausible_types
        types = about if self._rules.strict else node.types or ()
        if self._rules.strict and node.types is None:
            self._notes.rewritten(f"{node.at}/type", f"added: {', '.join(types)}")
            if not types:
                self._reason(node.at, "any value is allowed")
        schema: Schema = {"type": types[0] if len(types) == 1 else list(types)} if types else {}
        schema |= {**self._words(node), **self._limits(node, about)}
        if node.values is not None:
            schema["enum"] = list(node.values)
            return schema
        if "object" in about:
            schema |= self._members(node)
        if "array" in about:
            schema |= self._elements(node, schema)
        return schema

    def _limits(self, node: Node, types: Sequence[str]) -> Schema:
        return {w: v for w, v in node.limits.items() if any(self._rules.takes(w, v, kind) for kind in types)}

    def _words(self, node: Node) -> Schema:
        words = dict(node.annotations)
        if node.described:
            limits = f"Must also match the JSON Schema {as_json(dict(node.described))}."
            words["description"] = join_texts(words.get("description"), limits)
        return {word: words[word] for word in _WORDS if word in words and word in self._rules.annotations}

    def _reason(self, at: str, text: str) -> None:
        self.reasons.setdefault(at, text)

    def _union(self, branches: list[Schema], words: Schema) -> Schema:
        branches = distinct(branches)
        if len(branches) > 1 or "$ref" in branches[0]:
            return {**words, "anyOf": branches}
        if text := join_texts(words.get("description"), branches[0].get("description")):
            words = {**words, "description": text}
        return _order({**branches[0], **words})

    # --- objects and arrays -------------------------------------------------------------------------------------------

    def _members(self, node: Node, *, is_root: bool = False) -> Schema:
        """The part of a schema that is about objects."""
        rules, others = self._rules, node.others
        properties = dict(node.properties)
        if rules.strict or (others is not None and others.never):
            properties = {name: sub for name, sub in properties.items() if not sub.never}
        if rules.strict:
            self._check_closed(node, is_root=is_root)
        written: Schema = {name: self.schema(sub) for name, sub in properties.items()}
        required = list(node.required)
        if rules.all_required:
            for name in [name for name in properties if name not in required]:
                what = "optional -> required, null where there is nothing to say"
                self._notes.rewritten(properties[name].at, what)
                written[name] = _make_nullable(cast("Schema", written[name]))
            required = list(properties)
        schema: Schema = {"properties": written} if written or is_root or rules.strict else {}
        if required or rules.all_required:
            schema["required"] = required
        if rules.strict:
            schema["additionalProperties"] = False
        elif node.patterned:
            schema["additionalProperties"] = True
        elif others is not None:
            schema["additionalProperties"] = not others.never and self.schema(others)
        return schema

    def _check_closed(self, node: Node, *, is_root: bool) -> None:
        closed = node.others is not None and node.others.never
        if node.patterned or (node.others is not None and not closed):
            self._reason(node.at, "an object with properties of any name")
        elif not is_root and not closed and all(sub.never for sub in node.properties.values()):
            self._reason(node.at, "an object that says nothing of its properties")
        if strangers := [name for name in node.required if name not in node.properties]:
            self._reason(node.at, f"required but not described: {', '.join(strangers)}")

    def _elements(self, node: Node, schema: Schema) -> Schema:
        """The part of a schema that is about arrays."""
        items = node.items
        if not self._rules.strict:
            prefix: Schema = {"prefixItems": [self.schema(one) for one in node.prefix]} if node.prefix else {}
            return prefix if items is None else {**prefix, "items": self.schema(items)}
        if node.prefix:
            return self._items_by_position(node, schema)
        if items is None:
            self._reason(node.at, "an array that says nothing of its items")
            return {}
        if items.never:
            self._reason(node.at, "an array that must be empty")
            return {}
        return {"items": self.schema(items)}

    def _items_by_position(self, node: Node, schema: Schema) -> Schema:
        """Items that differ by position, as items that may each be any of them."""
        written = [self.schema(one) for one in node.prefix]
        changes: Schema = {}
        countable = "maxItems" in self._rules.limits
        if countable:
            most = schema.get("maxItems")
            changes["maxItems"] = min(len(written), most) if isinstance(most, int | float) else len(written)
        changes["items"] = self._union(written, {})
        if countable and len(distinct(written)) == 1:
            self._notes.rewritten(f"{node.at}/prefixItems", "written as items")
            return changes
        self._notes.lost(f"{node.at}/prefixItems", "written as items, in no fixed order")
        kinds = ", ".join(
            one.ref.rpartition("/")[2] if one.ref else " or ".join(one.plausible_types) or "any value"
            for one in node.prefix
        )
        changes["description"] = join_texts(schema.get("description"), f"Items by position: {kinds}.")
        return changes

    # --- references ---------------------------------------------------------------------------------------------------

    def _reference(self, node: Node, pointer: str) -> Schema:
        if pointer in self._open and not self._rules.recursive:
            self._reason(pointer, "the schema is recursive")
            return {}
        words = self._words(node)
        if words and self._rules.bare_references:
            return self._target(pointer, node)
        if pointer not in self._names:
            name = _free_name(pointer.rpartition("/")[2] or "root", self._definitions)
            self._names[pointer] = f"#/$defs/{escape(name)}"
            self._definitions[name] = {}  # takes its place before what it refers to
            self._definitions[name] = self._target(pointer)
        reference: Schema = {"$ref": self._names[pointer]}
        return {**words, "anyOf": [reference]} if words else reference

    def _target(self, pointer: str, words: Node | None = None) -> Schema:
        target = self._reader.target(pointer)
        self._open.append(pointer)
        schema = self.schema(target if words is None else target.with_words(words, target))
        self._open.pop()
        return schema


def _order(schema: Schema) -> Schema:
    """The same members, the telling ones first: models read schemas too."""
    return {**{word: schema[word] for word in ("type", *_WORDS) if word in schema}, **schema}


def _make_nullable(schema: Schema) -> Schema:
    """The schema, or null."""
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


def _free_name(name: str, taken: dict[str, Schema]) -> str:
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
    reader = Reader(Document(schema), JSON_SCHEMA, Notes())
    return _restore(value, list(_forms(reader.node(schema, ""), reader)), reader)


def _restore(value: object, forms: list[Node], reader: Reader) -> object:
    forms = [form for form in forms if form.types is None or kind_is_one_of(kind_of(value), form.types)] or forms

    def below(nodes: Iterator[Node | None]) -> list[Node]:
        return [form for node in nodes if node is not None for form in _forms(node, reader)]

    if is_array(value):
        return [
            _restore(item, below(f.prefix[i] if i < len(f.prefix) else f.items for f in forms), reader)
            for i, item in enumerate(value)
        ]
    if not is_object(value):
        return value
    forms = [form for form in forms if value.keys() >= set(form.required)] or forms
    found: Schema = {}
    for name, sub in value.items():
        declared = below(form.properties.get(name) for form in forms)
        needed = bool(forms) and all(name in form.required for form in forms)
        if sub is not None or needed or not declared or any(_takes(form, None) for form in declared):
            found[name] = _restore(sub, declared, reader)
    return found


def _takes(form: Node, value: object) -> bool:
    if form.types is not None and kind_of(value) not in form.types:
        return False
    return form.values is None or any(same(value, listed) for listed in form.values)
