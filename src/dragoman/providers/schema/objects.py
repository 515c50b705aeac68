"""Merge references and combinators into one object schema.

The root must be one object, since a tool's arguments and a structured reply are. In a strict style the same holds for
`allOf`, and for combinators beside other keywords.

References and `allOf` are merged. Of alternatives the properties are merged, and the description says which of them
belong together. Constraints that have no place in one object stay under `allOf` and `anyOf`, to be described.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import ToolDefinitionError
from dragoman.tools import is_array, is_object

from .document import (
    COMBINATORS,
    META,
    Document,
    Note,
    Schema,
    as_json,
    distinct,
    join_texts,
    properties_of,
    required_of,
    shorten,
)
from .rules import ANNOTATIONS

_PROPERTIES: Final = frozenset(["properties", "additionalProperties", "patternProperties"])
_MERGED: Final = _PROPERTIES | ANNOTATIONS | {"type", "required", "allOf"}


def merge(
    document: Document, schema: object, at: str, notes: list[Note], opened: tuple[str, ...] = ()
) -> Schema | None:
    """The schema as one object without references and combinators; None if no object fits it.

    `opened` are the references that are being followed; a reference back to one of them is left out.
    """
    if isinstance(schema, bool):
        return {} if schema else None
    if not is_object(schema):
        raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shorten(schema)}.")
    own = {word: value for word, value in schema.items() if word not in COMBINATORS and word not in META}
    document.spend(1 + len(properties_of(own)))
    types = own.get("type", "object")
    parts: list[Schema | None] = [own if types == "object" or (is_array(types) and "object" in types) else None]
    if isinstance(reference := schema.get("$ref"), str):
        pointer = document.pointer(reference)
        if pointer in opened:
            notes.append(Note(at, "refers to a schema that contains it; merged without it", lossy=True))
        else:
            parts.append(merge(document, document.at(pointer), pointer, notes, (*opened, pointer)))
    for word in ("allOf", "anyOf", "oneOf"):
        if is_array(branches := schema.get(word)) and branches:
            each = [merge(document, sub, f"{at}/{word}/{i}", notes, opened) for i, sub in enumerate(branches)]
            if word == "allOf":
                parts += each
            else:
                around = [part for part in parts if part is not None]
                parts.append(_merge_alternatives([form for form in each if form is not None], at, notes, around))
    possible = [part for part in parts if part is not None]
    return _merge_all(possible) if len(possible) == len(parts) else None


def _merge_all(parts: list[Schema]) -> Schema:
    """One object for schemas that must all hold."""
    first = parts[0]
    if len(parts) == 1:
        return first
    closed = [part for part in parts if part.get("additionalProperties") is False and "patternProperties" not in part]
    properties: Schema = {}
    beside: list[object] = []
    for part in parts:
        for name, sub in properties_of(part).items():
            if all(name in properties_of(other) for other in closed):
                properties[name] = _both(properties.get(name, True), sub)
        if "patternProperties" in part or part.get("additionalProperties", True) not in (True, False):
            beside.append({word: part[word] for word in _PROPERTIES if word in part})
        limits = {word: value for word, value in part.items() if word not in _MERGED}
        if part is not first and limits:
            beside.append(limits)
        beside += found if is_array(found := part.get("allOf")) else []
    whole: Schema = {}
    for part in reversed(parts):  # what an earlier part says wins
        whole |= {word: value for word, value in part.items() if word in ANNOTATIONS}
    if text := join_texts(*[part.get("description") for part in parts]):
        whole["description"] = text
    whole |= {word: value for word, value in first.items() if word not in _PROPERTIES and word not in ANNOTATIONS}
    whole["properties"] = properties
    if required := list(dict.fromkeys([name for part in parts for name in required_of(part)])):
        whole["required"] = required
    if closed:
        whole["additionalProperties"] = False
    return {**whole, "allOf": distinct(beside)} if beside else whole


def _both(a: object, b: object) -> object:
    """A schema for values that fit two schemas."""
    if a is False or b is False:
        return False
    several = distinct([sub for sub in (a, b) if sub is not True])
    return {"allOf": several} if len(several) > 1 else several[0] if several else True


def _merge_alternatives(forms: list[Schema], at: str, notes: list[Note], around: list[Schema]) -> Schema | None:
    """One object with the properties of all alternatives.

    A property that the schemas `around` them declare is left to those, unless every alternative declares it too.
    """
    if len(forms) < 2:
        return forms[0] if forms else None
    text = "the alternatives are merged into one object, only the description tells them apart"
    notes.append(Note(at, text, lossy=True))
    required = [name for name in required_of(forms[0]) if all(name in required_of(form) for form in forms)]
    declared: dict[str, list[object]] = {}
    for form in forms:
        for name, sub in properties_of(form).items():
            declared.setdefault(name, []).append(sub)
    known = {name for part in around for name in properties_of(part)}
    needed = [name for part in around for name in required_of(part)]
    summaries = [f"({number}) {_summarize(form, required, needed)}" for number, form in enumerate(forms, 1)]
    merged: Schema = {
        "description": f"One of these forms must be met: {'; '.join(summaries)}.",
        "properties": {
            name: _either(several) if len(several) == len(forms) or name not in known else True
            for name, several in declared.items()
        },
        **({"required": required} if required else {}),
    }
    additional = [form.get("additionalProperties") for form in forms]
    if all(one is False for one in additional):
        merged["additionalProperties"] = False
    elif any(one not in (None, False) for one in additional):
        merged["additionalProperties"] = True
    limits = [{word: value for word, value in form.items() if word not in _MERGED or word == "allOf"} for form in forms]
    return {**merged, "anyOf": limits} if any(limits) else merged


def _either(several: list[object]) -> object:
    several = distinct(several)
    return several[0] if len(several) == 1 else {"anyOf": several}


def _summarize(form: Schema, common: list[str], around: list[str]) -> str:
    """What sets an alternative apart: its required properties, and their values where there is only one."""
    needed: list[str] = []
    for name in dict.fromkeys([*around, *required_of(form)]):
        sub = properties_of(form).get(name)
        values = [] if not is_object(sub) else [sub["const"]] if "const" in sub else sub.get("enum")
        if is_array(values) and len(values) == 1:
            needed.append(f"{name} = {as_json(values[0])}")
        elif name not in common and name not in around:
            needed.append(name)
    title = form.get("title")
    return (f"{title}: " if title else "") + (f"with {', '.join(needed)}" if needed else "nothing in particular")
