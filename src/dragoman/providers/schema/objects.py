"""What several schemas say of an object, as one schema.

A root must be one, since a tool's arguments and a structured reply are an object; and so must be, in a strict style,
what `allOf` says or what stands beside other combinators.

References and `allOf` are put together; of alternatives the properties are, and the description says which ones go
together. Limits that have no place in the one object stay under `allOf` and `anyOf`, to be told in the description.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import ToolDefinitionError

from .document import COMBINATORS, Document, normalize, types_of
from .rules import (
    ANNOTATIONS,
    META,
    Notes,
    Schema,
    as_json,
    distinct,
    is_array,
    is_object,
    join_texts,
    members_of,
    required_of,
    same,
    shorten,
)

_PROPERTIES: Final = frozenset(["properties", "additionalProperties", "patternProperties"])
_JOINED: Final = _PROPERTIES | ANNOTATIONS | {"type", "required", "allOf"}


def join(document: Document, schema: object, at: str, notes: Notes, opened: tuple[str, ...] = ()) -> Schema | None:
    """The schema as one object without references and combinators; None if no object fits it.

    `opened` are the references that are being followed: one of them would lead in a circle and is left out.
    """
    if isinstance(schema, bool):
        return {} if schema else None
    if not is_object(schema):
        raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shorten(schema)}.")
    own = {word: value for word, value in schema.items() if word not in COMBINATORS and word not in META}
    own = normalize(own, at, notes)
    document.spend(1 + len(members_of(own)))
    types = types_of(own)
    parts: list[Schema | None] = [own if types is None or "object" in types else None]
    if isinstance(reference := schema.get("$ref"), str):
        pointer = document.pointer(reference, at)
        if pointer in opened:
            notes.lost(at, "refers to a schema that contains it: put together without it")
        else:
            parts.append(join(document, document.at(pointer), pointer, notes, (*opened, pointer)))
    for word in ("allOf", "anyOf", "oneOf"):
        if is_array(branches := schema.get(word)) and branches:
            each = [join(document, sub, f"{at}/{word}/{i}", notes, opened) for i, sub in enumerate(branches)]
            around = [part for part in parts if part is not None]
            parts += (
                each if word == "allOf" else [_fold([form for form in each if form is not None], at, notes, around)]
            )
    possible = [part for part in parts if part is not None]
    whole = _meet(possible) if len(possible) == len(parts) else None
    return None if whole is None or _lacks_required(whole) else whole


def _lacks_required(whole: Schema) -> bool:
    properties = members_of(whole)
    others = "patternProperties" in whole or whole.get("additionalProperties", True)
    return any(properties.get(name, others) is False for name in required_of(whole))


def _meet(parts: list[Schema]) -> Schema:
    """What must all be met."""
    if len(parts) == 1:
        return parts[0]
    whole = {word: value for word, value in parts[0].items() if word not in _PROPERTIES}
    properties: Schema = {}
    closed: list[Schema] = []
    beside: list[object] = []
    for part in parts:
        for name, sub in members_of(part).items():
            properties[name] = _both(properties.get(name, True), sub)
        if part.get("additionalProperties") is False and "patternProperties" not in part:
            closed.append(members_of(part))
        elif "patternProperties" in part or part.get("additionalProperties", True) is not True:
            beside.append({word: part[word] for word in _PROPERTIES if word in part})
        for word in [word for word in part if word in ANNOTATIONS]:
            whole.setdefault(word, part[word])
        limits = {word: value for word, value in part.items() if word not in _JOINED}
        if part is not parts[0] and limits:
            beside.append(limits)
        beside += found if is_array(found := part.get("allOf")) else []
    if text := join_texts(*[part.get("description") for part in parts]):
        whole["description"] = text
    if closed:
        allowed = set(closed[0]).intersection(*closed[1:])
        properties = {name: sub for name, sub in properties.items() if name in allowed}
    whole["properties"] = properties
    if required := list(dict.fromkeys([name for part in parts for name in required_of(part)])):
        whole["required"] = required
    if closed:
        whole["additionalProperties"] = False
    if beside:
        whole["allOf"] = distinct(beside)
    return whole


def _both(a: object, b: object) -> object:
    if a is True or b is True or same(a, b):
        return b if a is True else a
    return False if a is False or b is False else {"allOf": [a, b]}


def _fold(forms: list[Schema], at: str, notes: Notes, around: list[Schema]) -> Schema | None:
    """Alternatives as one object that has the properties of all of them.

    What is said `around` them of a property holds alone, where one of the forms says nothing of it.
    """
    if len(forms) < 2:
        return forms[0] if forms else None
    notes.lost(at, "the alternatives are folded into one object, only the description tells them apart")
    required = [name for name in required_of(forms[0]) if all(name in required_of(form) for form in forms)]
    declared: dict[str, list[object]] = {}
    for form in forms:
        for name, sub in members_of(form).items():
            declared.setdefault(name, []).append(sub)
    known = {name for part in around for name in members_of(part)}
    needed = [name for part in around for name in required_of(part)]
    summaries = "; ".join(f"({number}) {_summarise(form, required, needed)}" for number, form in enumerate(forms, 1))
    folded: Schema = {
        "description": f"One of these forms must be met: {summaries}.",
        "properties": {
            name: _either(several) if len(several) == len(forms) or name not in known else True
            for name, several in declared.items()
        },
        **({"required": required} if required else {}),
    }
    others = [form.get("additionalProperties") for form in forms]
    if all(other is False for other in others):
        folded["additionalProperties"] = False
    elif any(other is not None and other is not False for other in others):
        folded["additionalProperties"] = True
    limits = [{word: value for word, value in form.items() if word not in _JOINED or word == "allOf"} for form in forms]
    return {**folded, "anyOf": limits} if any(limits) else folded


def _either(several: list[object]) -> object:
    several = distinct(several)
    return several[0] if len(several) == 1 else {"anyOf": several}


def _summarise(form: Schema, common: list[str], around: list[str]) -> str:
    needed: list[str] = []
    for name in dict.fromkeys([*around, *required_of(form)]):
        sub = members_of(form).get(name)
        values = normalize(sub, "", Notes()).get("enum") if is_object(sub) else None
        if is_array(values) and len(values) == 1:
            needed.append(f"{name} = {as_json(values[0])}")
        elif name not in common and name not in around:
            needed.append(name)
    title = form.get("title")
    return (f"{title}: " if title else "") + (f"with {', '.join(needed)}" if needed else "nothing in particular")
