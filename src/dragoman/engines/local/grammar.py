"""What a model can write in one turn: a call of one of its tools, or an answer.

A grammar is a text for llama.cpp, which passes it to llguidance; it contains JSON schemas as they are. A reply may
contain a call after a few words at most: a model that explains at length is answering. The call must then match the
tool's schema, and ends the turn. After a call of an unknown function the model is made to answer in plain text.

llama.cpp silently ignores a grammar that it cannot read. So each schema is checked here first, by the same library:
what it cannot enforce is reported, and a schema that nothing can satisfy is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeGuard

import msgspec
from msgspec import Struct

from dragoman.errors import LocalModelError, ToolDefinitionError

from .models import Thinks
from .prompt import CLOSING, FENCE_END, INSTEAD, call_start, start_parts

try:
    from llguidance import LLMatcher
except ImportError:  # an error as soon as a grammar is needed
    LLMatcher = None

_HEAD: Final = "%llguidance {}"
_WORDS: Final = "(?s:.{0,240})"
"""The text that may come before a call."""
_BLANKS: Final = r"[ \n]*"
_FORM: Final = {
    # One line, with a blank after each comma and colon: what models write most.
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,
    "coerce_one_of": True,
}
_SCHEMAS_BY_NAME: Final = frozenset(["properties", "patternProperties", "$defs", "definitions"])
_LISTS_OF_SCHEMAS: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_SCHEMAS: Final = frozenset(["items", "additionalProperties"])
_COMBINING: Final = frozenset(["allOf", "anyOf", "oneOf", "$ref", "additionalProperties", "patternProperties"])
# Bounds for what a schema leaves unbounded: a small model may not stop by itself.
_MAX_CHARACTERS: Final = 2000
_MAX_FORMATTED: Final = 254
"""Characters of a string with a format or a pattern, such as an address."""
_MAX_ITEMS: Final = 100
_MAX_NUMBER: Final = 10**15
_STEP: Final = 1e-9
"""Limits the decimals; the library supports a step only for numbers from 0 on."""
_EMAIL: Final = r"^[\w+-]{1,20}(\.[\w+-]{1,20}){0,2}@[a-zA-Z0-9]{1,30}(\.[a-zA-Z0-9]{1,30}){0,2}\.[a-zA-Z]{2,12}$"
"""Stricter than the library's own, which allows what validators refuse."""


class Turn(Struct, frozen=True):
    """What is allowed in a turn, hashable."""

    tools: tuple[tuple[str, bytes], ...] = ()
    """The tools that may be called, and their schemas."""
    must_call: bool = False
    answer: bytes | None = None
    """The schema of the answer; None: any text."""
    thinks: Thinks = "never"


@lru_cache(maxsize=64)
def turn_grammar(turn: Turn) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The grammar, and what it does not enforce: where, and why. Raises ToolDefinitionError."""
    notes: list[tuple[str, str]] = []
    rules: list[str] = []
    calls: list[str] = []
    free = not turn.must_call and turn.answer is None
    for number, (name, parameters) in enumerate(turn.tools):
        schema = _close_arguments(msgspec.json.decode(parameters))
        rules.append(f"arguments{number}: {_json_rule(f'tool {name!r}', schema, notes)}")
        if free:
            rules.append(f"until{number}[lazy]: /{_WORDS}{_BLANKS.join(map(_pattern, start_parts(name)))}/")
            calls.append(f"until{number} BLANKS? arguments{number} CLOSE")
        else:
            calls.append(f"{_literal(call_start(name))} arguments{number} {_literal(CLOSING)}")
    if turn.answer is not None:
        rules.append(f"answer: {_json_rule('the reply', msgspec.json.decode(turn.answer), notes)}")
        calls += [] if turn.must_call else ["answer"]
        if turn.tools and not turn.must_call:
            # Models like to fence JSON. If only a call may begin with a fence, such a model calls again and again.
            rules.append(r"FENCE: /```(json)?[ \n]/")
            calls.append(f"FENCE answer {_literal(FENCE_END)}")
    elif free:
        calls.append(f"unknown rest {_literal(INSTEAD)} TEXT | TEXT")
        begun = _BLANKS.join([*map(_pattern, start_parts("")[:4]), ""])
        names = "|".join([_pattern(_literal(name)) for name, _ in turn.tools])
        rules += [
            r"BLANKS: /[ \n]+/",
            rf"CLOSE: /{_BLANKS}\}}{_BLANKS}```/",
            "TEXT: /(?s:.*)/ & ~/(?s:.*)```[Tt]ool(?s:.*)/",  # nor any other spelling of the fence
            "unknown[lazy]: UNKNOWN",
            rf'UNKNOWN: /{_WORDS}{begun}"[^"\n]{{0,99}}"/ & ~/(?s:.*){begun}({names})/',
            "rest[lazy]: /(?s:.{0,400})```/",
        ]
    start = f"({' | '.join(calls)})"
    if turn.thinks != "never":
        opening = "" if turn.thinks == "always" else r"<think>"
        rules.append(rf"thought[lazy]: /{opening}(?s:.*)<\/think>/")
        thought = r'thought ("\n" "\n"?)?'
        start = f"{thought} {start}" if turn.thinks == "always" else f"({thought})? {start}"
    return "\n".join([_HEAD, f"start: {start}", *rules]), tuple(notes)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _pattern(text: str) -> str:
    return "".join([letter if letter.isalnum() else f"\\x{{{ord(letter):x}}}" for letter in text])


# --- schemas ----------------------------------------------------------------------------------------------------------


def _json_rule(what: str, schema: object, notes: list[tuple[str, str]]) -> str:
    """The rule for a JSON value of this schema; what is not enforced is added to the notes."""
    about = f"schema of {what}"
    open_ended = '"allOf"' in json.dumps(schema)  # each of its schemas may name some of the properties
    limited = _limit(schema, lambda why: notes.append((about, why)), close=not open_ended)
    document = limited if limited is False else {**(limited if _is_object(limited) else {}), "x-guidance": _FORM}
    rule = f"%json {json.dumps(document, ensure_ascii=False)}"
    failed, problems = _check(f"{_HEAD}\nstart: {rule}")
    if failed:
        why = problems[0].partition("schema: ")[2].splitlines()[:1] or problems
        message = f"The {about} cannot be used: {why[0].removeprefix('Unsatisfiable schema: ')}."
        raise ToolDefinitionError(message, hint="Correct the schema.")
    notes += [(about, f"not enforced: {problem}") for problem in problems]
    return rule


def _check(grammar: str) -> tuple[bool, list[str]]:
    if LLMatcher is None:
        message = "The runtime for local models is not installed."
        raise LocalModelError(message, reason="not_installed", hint="Install it: pip install 'dragoman[local]'")
    return LLMatcher.validate_grammar_with_warnings(grammar)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _close_arguments(schema: object) -> object:
    """The schema of arguments; if it names none, there are none, although the schema would allow any."""
    named = _COMBINING | {"properties"}
    if _is_object(schema) and schema.get("type") == "object" and not any(map(schema.get, named)):
        return {**schema, "additionalProperties": False}
    return schema


def _limit(schema: object, note: Callable[[str], None], *, close: bool) -> object:
    """The schema without what no grammar can enforce, and with bounds.

    An object has only the properties that are named, even if its schema allows others: a small model would invent some.
    """
    if not _is_object(schema):
        return schema
    found: dict[str, object] = {}
    combined = close and not _COMBINING.isdisjoint(schema)
    for word, value in schema.items():
        if word in _SCHEMAS_BY_NAME and _is_object(value):
            found[word] = {name: _limit(each, note, close=close) for name, each in value.items()}
        elif word in _LISTS_OF_SCHEMAS:
            apart = close and (word == "prefixItems" or "properties" not in schema)
            found[word] = [_limit(each, note, close=apart) for each in value]
        elif word in _SCHEMAS:
            found[word] = _limit(value, note, close=close)
        elif word == "pattern" and isinstance(value, str) and not _is_regular(value):
            note(f"not enforced: the pattern {value!r}")
        elif (word, value) == ("format", "email") and "pattern" not in schema:
            found["pattern"] = _EMAIL
        else:
            found[word] = value
    if close and not combined and found.get("properties"):
        found["additionalProperties"] = False
    return _add_bounds(found)


def _add_bounds(found: dict[str, Any]) -> dict[str, Any]:
    """The schema with bounds for strings, arrays and numbers that have none."""
    if "enum" in found or "const" in found:
        return found
    if _may_be("string", found) and "minLength" not in found:
        formatted = "format" in found or "pattern" in found
        found.setdefault("maxLength", _MAX_FORMATTED if formatted else _MAX_CHARACTERS)
    if _may_be("array", found) and "minItems" not in found:
        found.setdefault("maxItems", _MAX_ITEMS)
    if not (_may_be("integer", found) or _may_be("number", found)):
        return found
    low = found.get("exclusiveMinimum", found.setdefault("minimum", -_MAX_NUMBER))
    high = found.get("exclusiveMaximum", found.setdefault("maximum", _MAX_NUMBER))
    if not _may_be("number", found) or "multipleOf" in found or high < 0:
        return found
    if low >= 0:
        return {**found, "multipleOf": _STEP}
    negative = {**found, "exclusiveMaximum": 0}
    return {"anyOf": [{**found, "minimum": 0, "exclusiveMinimum": -1, "multipleOf": _STEP}, negative]}


def _may_be(kind: str, schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    return types == kind or (isinstance(types, list) and kind in types)


@lru_cache(maxsize=256)
def _is_regular(pattern: str) -> bool:
    """Whether a pattern can be enforced: look-arounds, back references and word boundaries cannot."""
    return not _check(f"{_HEAD}\nstart: %json {json.dumps({'type': 'string', 'pattern': pattern})}")[0]
