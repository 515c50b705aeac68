"""What a model may write in one turn: a call of one of its tools, or an answer.

A grammar is a text for llama.cpp, which hands it to llguidance; JSON schemas stand in it as they are. A reply may open
a call of one of the tools, after a few words at most: a model that explains at length how a question can be answered is
answering it. From there on the call is held to that tool's schema, and ends the turn. After a call of a function that
nobody offered the model is made to answer the question itself, in text.

llama.cpp ignores a grammar that it cannot read, without a word. So each schema is checked here first, by the same
library: what it cannot enforce is noted, and what nothing can satisfy is an error.
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
from .prompt import CLOSING, INSTEAD, call_start, start_parts

try:
    from llguidance import LLMatcher
except ImportError:  # the extra is not installed, which is said when a grammar is needed
    LLMatcher = None

_HEAD: Final = "%llguidance {}"
_WORDS: Final = "(?s:.{0,240})"
"""What may stand before a call."""
_BLANKS: Final = r"[ \n]*"
_FORM: Final = {
    # One line, with one blank behind each comma and colon: what models write most.
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
# What has no end in a schema gets one: a small model may not find it by itself.
_MOST_CHARACTERS: Final = 2000
_MOST_OF_A_FORM: Final = 254
"""… of a string that has a format or a pattern, such as an address."""
_MOST_ITEMS: Final = 100
_LARGEST: Final = 10**15
_STEP: Final = 1e-9
"""Decimals end by a step; the library takes one for numbers from 0 on only."""
_EMAIL: Final = r"^[\w+-]{1,20}(\.[\w+-]{1,20}){0,2}@[a-zA-Z0-9]{1,30}(\.[a-zA-Z0-9]{1,30}){0,2}\.[a-zA-Z]{2,12}$"
"""Stricter than the library's own, which lets through what validators refuse."""


class Turn(Struct, frozen=True):
    """What is allowed in a turn, hashable."""

    tools: tuple[tuple[str, bytes], ...] = ()
    """The tools that may be called, and their schemas."""
    must_call: bool = False
    answer: bytes | None = None
    """The schema of the answer; None: any text."""
    thinks: Thinks = "never"
    """Whether the model thinks before it does either."""


@lru_cache(maxsize=64)
def turn_grammar(turn: Turn) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The grammar, and what it does not enforce: of what, and why. Raises ToolDefinitionError."""
    notes: list[tuple[str, str]] = []
    rules: list[str] = []
    calls: list[str] = []
    free = not turn.must_call and turn.answer is None
    for number, (name, parameters) in enumerate(turn.tools):
        schema = _close_arguments(msgspec.json.decode(parameters))
        rules.append(f"arguments{number}: {_json_rule(f'tool {name!r}', schema, notes)}")
        if free:
            rules.append(f"until{number}[lazy]: /{_WORDS}{_start(name)}/")
            calls.append(f"until{number} BLANKS? arguments{number} CLOSE")
        else:
            calls.append(f"{_literal(call_start(name))} arguments{number} {_literal(CLOSING)}")
    if turn.answer is not None:
        rules.append(f"answer: {_json_rule('the reply', msgspec.json.decode(turn.answer), notes)}")
        calls += [] if turn.must_call else ["answer"]
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


def _start(name: str) -> str:
    """A regular expression for what stands before the arguments of a call."""
    return _BLANKS.join(map(_pattern, start_parts(name)))


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _pattern(text: str) -> str:
    return "".join([letter if letter.isalnum() else f"\\x{{{ord(letter):x}}}" for letter in text])


# --- schemas ----------------------------------------------------------------------------------------------------------


def _json_rule(what: str, schema: object, notes: list[tuple[str, str]]) -> str:
    """The rule for a JSON value of this schema; what of the schema is not enforced is added to the notes."""
    about = f"schema of {what}"
    open_ended = '"allOf"' in json.dumps(schema)  # its parts may each know some of the properties
    limited = _limit(schema, lambda why: notes.append((about, why)), close=not open_ended)
    document = limited if limited is False else {**(limited if _is_object(limited) else {}), "x-guidance": _FORM}
    rule = f"%json {json.dumps(document, ensure_ascii=False)}"
    failed, said = _check(f"{_HEAD}\nstart: {rule}")
    if failed:
        why = said[0].partition("schema: ")[2].splitlines()[:1] or said
        message = f"The {about} cannot be used: {why[0].removeprefix('Unsatisfiable schema: ')}."
        raise ToolDefinitionError(message, hint="Correct the schema.")
    notes += [(about, f"not enforced: {warning}") for warning in said]
    return rule


def _check(grammar: str) -> tuple[bool, list[str]]:
    if LLMatcher is None:
        message = "The runtime for local models is not installed."
        raise LocalModelError(message, reason="not_installed", hint="Install it: pip install 'dragoman[local]'")
    return LLMatcher.validate_grammar_with_warnings(grammar)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _close_arguments(schema: object) -> object:
    """The schema of arguments; a tool that names none has none, although its schema would allow any."""
    named = _COMBINING | {"properties"}
    if _is_object(schema) and schema.get("type") == "object" and not any(map(schema.get, named)):
        return {**schema, "additionalProperties": False}
    return schema


def _limit(schema: object, note: Callable[[str], None], *, close: bool) -> object:
    """The schema without what no grammar can hold, and with an end for what has none.

    An object has the properties that are named, although its schema may allow others: a small model would invent some.
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
    return _end_endless(found)


def _end_endless(found: dict[str, Any]) -> dict[str, Any]:
    """The schema with an end for strings, arrays and numbers that have none."""
    if "enum" in found or "const" in found:
        return found
    if _may_be("string", found) and "minLength" not in found:
        formed = "format" in found or "pattern" in found
        found.setdefault("maxLength", _MOST_OF_A_FORM if formed else _MOST_CHARACTERS)
    if _may_be("array", found) and "minItems" not in found:
        found.setdefault("maxItems", _MOST_ITEMS)
    if not (_may_be("integer", found) or _may_be("number", found)):
        return found
    low = found.get("exclusiveMinimum", found.setdefault("minimum", -_LARGEST))
    high = found.get("exclusiveMaximum", found.setdefault("maximum", _LARGEST))
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
