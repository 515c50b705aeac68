"""How deep JSON may be nested: the same on every Python, and a typed error for what is deeper."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

import dragoman
from dragoman import ChatClient, ToolCall
from dragoman._decoding import DEEPEST, DEEPEST_SCHEMA, TooDeepError, check_depth, deeper_than
from dragoman.chat import answer_type
from dragoman.conversation import (
    Conversation,
    Json,
    Message,
    Opaque,
    ToolResult,
    conversation_from_json,
    conversation_to_json,
    tool_spec_from_json,
)
from dragoman.conversation.tool_spec import parse_schema
from dragoman.errors import (
    ConfigurationError,
    ConversationError,
    InvalidAnswerError,
    MalformedDataError,
    ToolDefinitionError,
    ToolValidationError,
)
from dragoman.simulator import Reply, Simulator
from dragoman.stores import snapshot_from_json
from dragoman.toolkit.permissions.rules import Rule
from dragoman.tools import Tool

SOURCES = Path(dragoman.__file__).parent
TOO_DEEP = [DEEPEST + 60, 900, 5_000, 100_000]
"""Every Python can decode the first ones, and some can decode all."""
MODELS = ["anthropic:claude-sonnet-4-5", "openai:gpt-5", "gemini:gemini-3-flash-preview"]


def nested(depth: int) -> str:
    """An object with so many objects and arrays inside each other, itself included."""
    return '{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


def stored(inner: str) -> bytes:
    return b'{"format":"dragoman.conversation","version":1,"conversation":%s}' % inner.encode()


def with_opaque(depth: int) -> Conversation:
    return Conversation(messages=(Message.assistant(Opaque("openai", Raw(nested(depth).encode()))),))


# --- measuring --------------------------------------------------------------------------------------------------------


THREE_DEEP = ["[" * 3 + "]" * 3, '[{"a":[]}]', '["[[[[",[{"\\\\":"]"}],[[', '[[["\\"[[["', "[[[", "[[],[[]]"]


@pytest.mark.parametrize("text", THREE_DEEP)
def test_depth_is_measured_in_texts_that_are_whole_cut_or_wrong(text: str) -> None:
    for form in (text, text.encode(), Raw(text.encode())):
        check_depth(form, 3)
        with pytest.raises(TooDeepError):
            check_depth(form, 2)


def test_text_that_only_looks_deep() -> None:
    check_depth(json.dumps(["[" * 5_000, "\\", '"' + "{" * 5_000, '\\"' + "[" * 5_000]), 1)
    check_depth("[" + ",".join(["[]"] * 5_000) + "]", 2)
    check_depth("]" * 300 + "[" * 300, 300)


def test_a_value_and_its_text_are_equally_deep() -> None:
    for depth in (2, 3, 50, 200):
        value = json.loads(nested(depth))
        assert deeper_than(depth - 1, value)
        assert not deeper_than(depth, value)
        check_depth(nested(depth), depth)
        with pytest.raises(TooDeepError):
            check_depth(nested(depth) + " " * 300, depth - 1)


# --- every place where JSON of others comes in ------------------------------------------------------------------------

READERS: list[tuple[str, Callable[[str], object], type[Exception]]] = [
    ("a conversation", lambda text: conversation_from_json(stored(text)), MalformedDataError),
    ("a tool", tool_spec_from_json, MalformedDataError),
    ("a snapshot", lambda text: snapshot_from_json(text.encode()), dragoman.errors.SnapshotCorruptError),
    ("arguments", lambda text: ToolCall("1", "t", text).parsed, ToolValidationError),
    ("a schema", lambda text: parse_schema(Raw(text.encode())), ToolDefinitionError),
    ("an answer", answer_type(dict[str, object]).decode, InvalidAnswerError),
    ("an answer with a schema", answer_type({"type": "object"}).decode, InvalidAnswerError),
    ("a rule", lambda text: Rule(tool="t", action="allow", arguments=text), ConfigurationError),
]


@pytest.mark.parametrize("depth", TOO_DEEP)
@pytest.mark.parametrize(("read", "error"), [pytest.param(*row[1:], id=row[0]) for row in READERS])
def test_what_is_nested_too_deeply_is_a_typed_error(
    depth: int, read: Callable[[str], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(nested(depth))


@pytest.mark.parametrize("depth", TOO_DEEP)
def test_a_conversation_that_could_not_be_read_again_is_not_written(depth: int) -> None:
    with pytest.raises(ConversationError, match="nested too deeply"):
        conversation_to_json(with_opaque(depth))


def test_what_may_be_nested_this_deep_comes_back() -> None:
    whole = with_opaque(DEEPEST)
    assert conversation_from_json(conversation_to_json(whole)) == whole
    assert ToolCall("1", "t", nested(DEEPEST)).parsed == json.loads(nested(DEEPEST))
    assert answer_type(dict[str, object]).decode(nested(DEEPEST)) == json.loads(nested(DEEPEST))


@pytest.mark.parametrize("depth", [DEEPEST_SCHEMA, 900, 100_000])
def test_a_chain_of_references_has_the_limit_of_schemas(depth: int) -> None:
    chain = {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(depth)}
    with pytest.raises(ToolDefinitionError, match="too large"):
        Tool.from_schema(lambda **_: None, {"$defs": chain, "$ref": "#/$defs/d0"}, name="t")


# --- turns ------------------------------------------------------------------------------------------------------------


def give(depth: int) -> object:
    """A deep value."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def take(x: object) -> str:
    """Take anything."""
    return f"taken: {x is not None}"


def result_of(model: str, call: ToolCall) -> ToolResult:
    with Simulator([Reply(call), "fine"]) as provider:
        url = provider.base_url(model.partition(":")[0])
        with ChatClient(model, [give, take], key="any", base_url=url) as client:
            result = client.chat("go")
            assert conversation_from_json(conversation_to_json(result.conversation)) == result.conversation
            assert result.text == "fine"
            [found] = [
                block
                for message in result.conversation.messages
                for block in message.blocks
                if isinstance(block, ToolResult)
            ]
            return found


@pytest.mark.parametrize("model", MODELS)
def test_results_and_arguments_of_a_turn(model: str) -> None:
    most = result_of(model, ToolCall("call_1", "give", json.dumps({"depth": DEEPEST})))
    assert isinstance(most.content[0], Json)
    assert not most.is_error
    for depth in (DEEPEST + 1, 900, 5_000):
        deeper = result_of(model, ToolCall("call_1", "give", json.dumps({"depth": depth})))
        assert deeper.is_error
        assert f"nested too deeply: more than {DEEPEST}" in deeper.text
    assert result_of(model, ToolCall("call_1", "take", '{"x":' + nested(DEEPEST - 20) + "}")).text == "taken: True"


@pytest.mark.parametrize("depth", [DEEPEST + 1, 900])
def test_arguments_that_are_too_deep_are_told_to_the_model(depth: int) -> None:
    refused = result_of("openai:gpt-5", ToolCall("call_1", "take", '{"x":' + nested(depth) + "}"))
    assert refused.is_error
    assert "nested too deeply" in refused.text


# --- no other place ---------------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"\b(?:json\.loads?|json\.decode|raw_decode|json\.Decoder|measured_decoder_of)\(")
NOT_MEASURED = {
    "_decoding.py": "it measures",
    "chat/answers.py": "our own schema, measured when the type was made; a text that is measured when it is decoded",
    "cli/ask.py": "measured the line before",
    "engines/claude_cli/engine.py": "our own definitions",
    "engines/local/child.py": "our own words to our own process",
    "engines/local/grammar.py": "schemas that the engine was given, after they were fitted",
    "engines/local/prompt.py": "a name; arguments, measured the line before",
    "providers/anthropic/decode.py": "parts of a reply, which is measured as a whole",
    "providers/bedrock/decode.py": "parts of a reply, which is measured as a whole",
    "providers/gemini/decode.py": "parts of a reply, which is measured as a whole",
    "providers/openai_chat/decode.py": "parts of a reply, which is measured as a whole",
    "providers/openai_responses/decode.py": "parts of a reply, which is measured as a whole",
    "providers/wire.py": "parts of a reply, which is measured as a whole; the repair measures",
    "simulator/batches.py": "a file for the simulator",
    "toolkit/match_worker.py": "our own words to our own process",
    "toolkit/permissions/rules.py": "measured the line before",
    "toolkit/permissions/subject.py": "measured the line before",
    "tools/arguments/hints.py": "a schema that was made from a type",
    "tools/arguments/nodes.py": "a default of a function",
    "transport/tape.py": "requests that were encoded here, and recordings of them",
}


def test_every_place_that_decodes_json_without_measuring_it_says_why() -> None:
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if _PLAIN.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(NOT_MEASURED), "use dragoman._decoding.decode there"
