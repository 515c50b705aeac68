"""What the grammar of a turn lets through, as the library that llama.cpp uses reads it."""

from __future__ import annotations

import json
from random import Random
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest

from dragoman.engines.local.grammar import Turn, turn_grammar
from dragoman.engines.local.models import Thinks
from dragoman.engines.local.prompt import FENCE, INSTEAD, call_start, write_call
from dragoman.errors import ToolDefinitionError
from tests.engines.local.real import quality

llguidance = pytest.importorskip("llguidance")

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NONE = {"type": "object", "properties": {}}
TOOLS = (("weather", json.dumps(CITY).encode()), ("we", json.dumps(CITY).encode()), ("a/ö", json.dumps(NONE).encode()))
LYON = '{"city": "Lyon"}'
CALL = write_call("weather", LYON)
BYTES = llguidance.LLTokenizer("byte")


def matcher(grammar: str) -> Any:
    found = llguidance.LLMatcher(BYTES, grammar, log_level=0)
    assert not found.is_error(), found.get_error()
    return found


def fits(turn: Turn | str, text: str) -> bool:
    """Whether a turn, or its grammar, allows a text."""
    reading = matcher(turn if isinstance(turn, str) else turn_grammar(turn)[0])
    return all(reading.consume_token(byte) for byte in text.encode()) and reading.is_accepting()


def of_schema(schema: Any) -> Turn:
    return Turn(answer=json.dumps(schema).encode())


FREE = Turn(tools=TOOLS)
MUST = Turn(tools=TOOLS, must_call=True)
ANSWER = Turn(tools=TOOLS, answer=json.dumps(CITY).encode())


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("Just words.", [FREE]),
        ("", [FREE]),
        (CALL, [FREE, MUST, ANSWER]),
        (f"I look.\n\n{CALL}", [FREE]),
        (f"``{CALL}", [FREE]),
        (f"{CALL} and more", []),
        (write_call("we", LYON), [FREE, MUST, ANSWER]),
        (write_call("a/ö", "{}"), [FREE, MUST, ANSWER]),
        (write_call("a/ö", '{"x": 1}'), []),
        (write_call("weather", "{}"), []),
        (write_call("weather", '{"city": "Lyon", "more": 1}'), []),
        (write_call("weather", '{ "city":"Lyon"}'), []),
        (CALL.replace(": ", ":\n  ", 2).replace("{", "{\n", 1).replace("}\n", "\n}"), [FREE]),
        ("I explain at length. " * 12 + CALL, []),
        (CALL.replace("tool_call", "toolCall"), []),
        (write_call("nobody", "{}"), []),
        (write_call("nobody", "{}") + INSTEAD + "It rains.", [FREE]),
        (write_call("weathe", '{"a": 1}') + INSTEAD, [FREE]),
        (CALL + INSTEAD + "It rains.", []),
        (call_start("weather") + "oh", []),
        (FENCE, []),
        ('```json\n{"name": "weather"}\n```', [FREE]),
        (LYON, [FREE, ANSWER]),
        (f"```json\n{LYON}\n```", [FREE, ANSWER]),
        (f"```\n{LYON}\n```", [FREE, ANSWER]),
        (f"```json\n{LYON}", [FREE]),
        ('```json\n{"town": "Lyon"}\n```', [FREE]),
        (f"```json\n{LYON}\n```\n{CALL}", [FREE]),
    ],
)
def test_what_a_turn_allows(text: str, allowed: list[Turn]) -> None:
    assert [turn for turn in (FREE, MUST, ANSWER) if fits(turn, text)] == allowed


@pytest.mark.parametrize(
    ("text", "maybe", "always"),
    [
        (f"<think>hm < hm</think>\n\n{CALL}", True, True),
        (f"hm</think>{CALL}", False, True),
        (CALL, True, False),
        (f"<think>hm</think>\n\n\n{CALL}", False, False),
        ("<think>hm", False, False),
    ],
)
def test_thinking_before_a_call(text: str, *, maybe: bool, always: bool) -> None:
    assert fits(Turn(tools=TOOLS, must_call=True, thinks="maybe"), text) == maybe
    assert fits(Turn(tools=TOOLS, must_call=True, thinks="always"), text) == always


@pytest.mark.parametrize("thinks", get_args(Thinks))
def test_where_a_call_is_fenced_an_answer_may_be_fenced(thinks: Thinks) -> None:
    """Or a model that begins its JSON with a fence is forced into a call, in every reply."""
    thought = "" if thinks == "never" else "hm</think>" if thinks == "always" else "<think>hm</think>"
    turn = msgspec.structs.replace(ANSWER, thinks=thinks)
    assert fits(turn, thought + CALL)
    assert fits(turn, f"{thought}```json\n{LYON}\n```")


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ['"a"', '"' + "x" * 2000 + '"'], ['"' + "x" * 2001 + '"']),
        ({"type": "string", "format": "email"}, ['"a@b.de"'], ['"' + "x" * 300 + '@b.de"']),
        ({"type": "string", "pattern": "^[a-z]+$"}, ['"abc"'], ['"A"', '"' + "x" * 300 + '"']),
        ({"type": ["integer", "null"]}, ["12", "-3", "null"], ["1.5", "1" * 17]),
        ({"type": "integer", "minimum": 5}, ["5", "500"], ["4", "1" * 17]),
        ({"type": "number", "exclusiveMinimum": 0}, ["0.5", "7"], ["0", "-1", "0.1" + "1" * 9]),
        ({"type": ["number", "null"]}, ["0", "-1.5", "12.25", "null"], ["0.1" + "1" * 9, "1" * 17]),
        ({"type": "number", "minimum": -5, "maximum": 5.5}, ["-5", "5.5", "0"], ["-6", "5.6"]),
        ({"type": "array", "items": {"type": "integer"}}, ["[]", "[1, 2]"], ["[" + "1, " * 100 + "1]", "[1,2]"]),
        ({"type": "array", "minItems": 2, "maxItems": 2}, ["[1, 2]"], ["[1]", "[1, 2, 3]"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, ['{"a": 1}', "{}"], ['{"a": "b"}']),
        ({"type": "object"}, ['{"a": [1]}'], ["[]"]),
        ({"enum": ["a", 1, None]}, ['"a"', "1", "null"], ["2"]),
        ({"const": {"a": 1}}, ['{"a": 1}'], ["{}"]),
        (CITY, [LYON], ['{"city": "Lyon", "b": 1}']),
        ({"allOf": [CITY, {"properties": {"b": {}}, "required": ["b"]}]}, ['{"city": "x", "b": 1}'], [LYON]),
        ({**CITY, "anyOf": [{"properties": {"b": {"type": "integer"}}}]}, ['{"city": "x", "b": 1}'], ["{}"]),
        ({"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
         ['{"n": {"n": {}}}'], ['{"m": 1}']),
        (True, ["1", "{}"], ["x"]),
    ],
)  # fmt: skip
def test_schemas_and_bounds(schema: Any, good: list[str], bad: list[str]) -> None:
    assert [text for text in [*good, *bad] if fits(of_schema(schema), text)] == good


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "string", "minLength": 5, "maxLength": 3},
        {"$ref": "#/$defs/nowhere"},
        {"type": "thing"},
        False,
    ],
)
def test_unsatisfiable_schemas_are_refused(schema: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="schema of tool 't' cannot be used") as caught:
        turn_grammar(Turn(tools=(("t", json.dumps(schema).encode()),)))
    assert "x-guidance" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "pattern": "^(?=a).*$"}, "(?=a)"),
        ({"type": "string", "pattern": r"\bword"}, "word"),
        ({"type": "string", "format": "colour"}, "colour"),
        ({"not": {"type": "string"}}, "not"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    ],
)
def test_unenforced_keywords_are_reported(schema: Any, named: str) -> None:
    ((what, why),) = turn_grammar(of_schema(schema))[1]
    assert what == "schema of the reply"
    assert why.startswith("not enforced: ")
    assert named in why


@pytest.mark.parametrize("seed", range(25))
def test_whatever_the_grammar_allows_is_valid(seed: int) -> None:
    """A model without any sense: at each place it takes one of the bytes that are allowed."""
    random = Random(seed)
    schema = quality().members(random, 2)
    reading = matcher(turn_grammar(of_schema(schema))[0])
    written = bytearray()
    for _ in range(4000):
        mask = reading.compute_bitmask()
        allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        ends = [byte for byte in allowed if byte in b'"]}']
        if not allowed or reading.is_stopped():
            break
        byte = random.choice(ends if ends and random.random() < 0.3 else allowed)
        assert reading.consume_token(byte)
        written.append(byte)
    value = json.loads(written)
    assert jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(value), value
