"""Structured replies: native, by a tool, and by the prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from dragoman.conversation import (
    Completed,
    Conversation,
    Message,
    Native,
    OneTool,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolSpec,
    Usage,
    UsageReported,
    fold,
)
from dragoman.errors import ProtocolError
from dragoman.providers import (
    AnswerReader,
    Call,
    ModelOptions,
    Profile,
    Reasoning,
    ResponseFormat,
    answer_text,
    prepare,
)
from dragoman.providers.schema import convert

SCHEMA = Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')
WEATHER = ToolSpec("weather", "Tells the weather.")


def call_of(way: str, *tools: ToolSpec, system: str | None = None, changes: Any = None, **options: Any) -> Call:
    options = {"response_format": ResponseFormat(schema=SCHEMA, description="A city."), **options}
    profile = Profile(provider="test", dialect="test", structured=way).with_changes(**(changes or {}))  # type: ignore[arg-type]
    conversation = Conversation(system=system, messages=(Message.user("Which city?"),))
    return Call(model="m", conversation=conversation, profile=profile, tools=tools, options=ModelOptions(**options))


class Replayed:
    """A decoder that gives prepared batches of events, one for each byte."""

    def __init__(self, batches: Sequence[Sequence[ReplyEvent]], *, complete: bool = True) -> None:
        self.batches, self.complete = list(batches), complete

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        for byte in data:
            events.extend(self.batches.pop(0))
            if byte == ord("!"):
                raise ProtocolError("cut off")

    def finish(self, events: list[ReplyEvent]) -> None:
        if not self.complete:
            raise ProtocolError("not complete")


def read(reader: AnswerReader, events: list[ReplyEvent]) -> Message:
    """The message, which must be the same whole, event by event, and through `events`."""
    messages = []
    for batches in ([events], [[event] for event in events]):
        decoder = reader.wrap(Replayed(batches))
        found: list[ReplyEvent] = []
        decoder.feed(b"x" * len(batches), found)
        decoder.finish(found)
        messages.append(fold(found))
    messages.append(fold(reader.events(events)))
    assert messages[0] == messages[1] == messages[2]
    return messages[0]


def call_events(index: int, name: str, *pieces: str) -> list[ReplyEvent]:
    return [
        ToolCallStarted(index, f"call_{index}", name),
        *(ToolCallDelta(index, f"call_{index}", piece) for piece in pieces),
        ToolCallEnded(index, f"call_{index}", Native(provider="test", fields={"signature": Raw(b'"s"')})),
    ]


def text_events(index: int, *pieces: str) -> list[ReplyEvent]:
    return [TextStarted(index, "t"), *(TextDelta(index, "t", piece) for piece in pieces), TextEnded(index, "t")]


START: list[ReplyEvent] = [ReplyStarted("test", "m", "r1")]
CALLED: list[ReplyEvent] = [UsageReported(Usage(input=1, output=2)), Completed(StopReason.TOOL_CALLS, "tool_use")]
ENDED: list[ReplyEvent] = [Completed(StopReason.END, "stop")]
BY_TOOL = AnswerReader(tool="answer")


def test_native_calls_and_calls_without_a_format_are_unchanged() -> None:
    native = call_of("native")
    assert prepare(native) == (native, None)
    free = call_of("tool", response_format=None)
    assert prepare(free) == (free, None)


# --- asking by a tool -------------------------------------------------------------------------------------------------


def test_the_answer_is_a_tool_that_must_be_called() -> None:
    given_call = call_of("tool", system="Be brief.")
    call, reader = prepare(given_call)
    assert reader == AnswerReader(tool="answer")
    (spec,) = call.tools
    assert spec.name == "answer"
    assert spec.description.startswith("A city.")
    assert bytes(spec.parameters) == bytes(SCHEMA)
    assert spec.strict is True
    assert call.options.response_format is None
    assert call.options.tool_choice == OneTool("answer")
    assert call.options.parallel_tool_calls is False
    assert call.conversation == given_call.conversation
    assert given_call.options.response_format is not None


def test_the_name_of_the_answer_tool_is_unique() -> None:
    others = (ToolSpec("answer"), ToolSpec("answer_2"))
    call, reader = prepare(call_of("tool", *others))
    assert reader is not None
    assert reader.tool == "answer_3"
    assert call.tools[:2] == others


CHOICES: list[tuple[tuple[ToolSpec, ...], dict[str, Any], dict[str, Any], Any, tuple[str, ...]]] = [
    ((), {}, {}, OneTool("answer"), ("answer",)),
    ((WEATHER,), {}, {}, "required", ("weather", "answer")),
    ((WEATHER,), {"tool_choice": "none"}, {}, OneTool("answer"), ("weather", "answer")),
    ((WEATHER,), {"tool_choice": OneTool("weather")}, {}, OneTool("weather"), ("weather", "answer")),
    # Models that cannot be forced, or not while they think.
    ((), {}, {"tool_choices": frozenset(["auto", "required"])}, "required", ("answer",)),
    ((), {}, {"tool_choices": frozenset(["auto"])}, "auto", ("answer",)),
    ((WEATHER,), {"tool_choice": "none"}, {"tool_choices": frozenset(["auto"])}, "auto", ("answer",)),
    ((), {"reasoning": Reasoning(effort="high")}, {}, "auto", ("answer",)),
    ((), {"reasoning": Reasoning(effort="none")}, {}, OneTool("answer"), ("answer",)),
]


@pytest.mark.parametrize(("tools", "options", "changes", "choice", "names"), CHOICES)
def test_the_choice_of_tools(tools: Any, options: Any, changes: Any, choice: Any, names: Any) -> None:
    call, _ = prepare(call_of("tool", *tools, changes=changes, **options))
    assert call.options.tool_choice == choice
    assert tuple(spec.name for spec in call.tools) == names
    forced = choice == OneTool("answer")
    assert (call.conversation.system is None) == forced
    if not forced:
        assert "calling the tool 'answer'" in str(call.conversation.system)


def test_a_required_call_is_one_of_the_callers_tools() -> None:
    call, reader = prepare(call_of("tool", WEATHER, tool_choice="required"))
    assert (call.tools, call.options.tool_choice, call.options.response_format, reader) == (
        (WEATHER,),
        "required",
        None,
        None,
    )


@pytest.mark.parametrize(("how", "way"), [("tools", "tool"), ("server_tools", "prompt"), ("nothing", "native")])
def test_without_native_beside_tools_another_way_is_used(how: str, way: str) -> None:
    tools = (WEATHER,) if how == "tools" else ()
    own = {"server_tools": (Raw(b'{"google_search":{}}'),)} if how == "server_tools" else {}
    call = call_of("native", *tools, changes={"native_beside_tools": False}, **own)
    prepared, reader = prepare(call)
    readers = {"tool": AnswerReader(tool="answer"), "prompt": AnswerReader(fenced=True), "native": None}
    assert reader == readers[way]
    assert (prepared.options.response_format is None) == (way != "native")


THOUGHT: list[ReplyEvent] = [ThinkingStarted(0, "", "test"), ThinkingDelta(0, "", "hm"), ThinkingEnded(0, "")]
CUT: list[ReplyEvent] = [Completed(StopReason.MAX_TOKENS, "length")]
ROME = '{"city":"Rome"}'
# Events of a model with the answer's tool; its answer, the names of other calls, and the stop reason.
DONE: dict[str, tuple[list[ReplyEvent], str, list[str], StopReason]] = {
    "it calls the tool": ([*call_events(0, "answer", '{"ci', 'ty":', '"Rome"}'), *CALLED], ROME, [], StopReason.END),
    "without arguments": ([*call_events(0, "answer"), *CALLED], "{}", [], StopReason.END),
    "another one": ([*call_events(0, "weather", "{}"), *CALLED], "", ["weather"], StopReason.TOOL_CALLS),
    "both": (
        [*call_events(0, "weather", "{}"), *call_events(1, "answer", ROME), *CALLED],
        ROME,
        ["weather"],
        StopReason.TOOL_CALLS,
    ),
    "twice": ([*call_events(0, "answer", ROME), *call_events(1, "answer", "{}"), *CALLED], ROME, [], StopReason.END),
    "and thinks, but is cut off": (
        [*THOUGHT, *call_events(1, "answer", '{"ci'), *CUT],
        '{"ci',
        [],
        StopReason.MAX_TOKENS,
    ),
    "with words before": (
        [*text_events(0, "Here:"), *call_events(1, "answer", ROME), *CALLED],
        ROME,
        [],
        StopReason.END,
    ),
}


@pytest.mark.parametrize("case", DONE)
def test_the_call_becomes_a_text(case: str) -> None:
    events, answer, others, stop = DONE[case]
    message = read(BY_TOOL, [*START, *events])
    assert answer_text(message) == answer
    assert [call.name for call in message.tool_calls] == others
    assert message.stop_reason is stop
    assert message.thinking == ("hm" if THOUGHT[0] in events else "")
    assert message.usage == (Usage(input=1, output=2) if CALLED[0] in events else None)


# --- answers that are not objects -------------------------------------------------------------------------------------

LIST: dict[str, Any] = {
    "type": "array",
    "items": {"anyOf": [{"$ref": "#/$defs/Item"}, {"$ref": "#"}, {"$ref": "#/items/anyOf/0"}]},
    "$defs": {"Item": {"type": "object", "properties": {"more": {"$ref": "#"}}}},
}


def of_list(way: str) -> tuple[Call, AnswerReader]:
    wanted = ResponseFormat(schema=Raw(json.dumps(LIST).encode()))
    call, reader = prepare(call_of(way, response_format=wanted))
    assert reader is not None
    return call, reader


@pytest.mark.parametrize("way", ["tool", "native"])
def test_an_answer_that_is_not_an_object_is_wrapped(way: str) -> None:
    call, reader = of_list(way)
    assert reader.wrapped
    wanted = call.options.response_format
    schema = call.tools[0].schema if wanted is None else json.loads(bytes(wanted.schema))
    inside = "#/properties/answer"
    assert schema == {
        "type": "object",
        "properties": {
            "answer": {
                "type": "array",
                "items": {"anyOf": [{"$ref": "#/$defs/Item"}, {"$ref": inside}, {"$ref": f"{inside}/items/anyOf/0"}]},
            }
        },
        "required": ["answer"],
        "additionalProperties": False,
        "$defs": {"Item": {"type": "object", "properties": {"more": {"$ref": inside}}}},
    }
    assert convert(schema, "json_schema").schema == schema


WRAPPED = [
    ('{"answer": [1,  2]}', "[1,  2]"),
    ('{"answer": null}', "null"),
    ("[1]", "[1]"),
    ("I cannot do that.", "I cannot do that."),
    ('{"ans', '{"ans'),
    ("", ""),
]


@pytest.mark.parametrize(("text", "answer"), WRAPPED)
def test_a_wrapped_answer_is_unwrapped(text: str, answer: str) -> None:
    _, by_tool = of_list("tool")
    assert read(by_tool, [*START, *call_events(0, "answer", *text), *CALLED]).text == answer
    _, natively = of_list("native")
    assert read(natively, [*START, *text_events(0, *text), *ENDED]).text == answer


INSIDE = '[{"a": "}\\"]"}, 12, [], "\\\\"]'


@pytest.mark.parametrize("value", [INSIDE, '"a \\" b"', "-1.5e3", "null", '{"answer": {"answer": 1}}'])
@pytest.mark.parametrize("rest", ["}", " \n}", ', "why": "I } think"}', "} Is that all?", ""])
def test_a_wrapped_answer_is_streamed(value: str, rest: str) -> None:
    _, reader = of_list("native")
    text = f' {{ "answer" :\n{value}{rest}'
    events = [event for event in reader.events(text_events(0, *text)) if isinstance(event, TextDelta)]
    assert "".join(event.text for event in events) == value
    assert len(events) == len(value)  # character by character


def test_a_fenced_answer_is_streamed() -> None:
    for text, pieces in (('```json\n{"a": 1}\n```', 7), ('{"a": 1}', 8), ("Words.", 6)):
        events = AnswerReader(fenced=True).events(text_events(0, *text))
        assert len([event for event in events if isinstance(event, TextDelta)]) == pieces


@pytest.mark.parametrize("cut", ["!", "x"])
def test_an_interrupted_answer_is_kept(cut: str) -> None:
    """Whether an error comes in the middle or at the end."""
    for reader, begun, text in (
        (BY_TOOL, call_events(0, "answer", '{"ci')[:2], '{"ci'),
        (of_list("tool")[1], call_events(0, "answer", '{"ans')[:2], '{"ans'),
        (of_list("native")[1], text_events(0, '{"ans')[:2], '{"ans'),
        (AnswerReader(fenced=True), text_events(0, '```json\n{"a": 1}\n``')[:-1], '{"a": 1}\n``'),
    ):
        decoder = reader.wrap(Replayed([[*START, *begun]], complete=False))
        events: list[ReplyEvent] = []
        if cut == "x":
            decoder.feed(b"x", events)
        with pytest.raises(ProtocolError):
            decoder.finish(events) if cut == "x" else decoder.feed(b"!", events)
        assert (fold(events).text, fold(events).interrupted) == (text, True)


OBJECTS: list[tuple[Any, bool]] = [
    ({"type": "object"}, True),
    ({"type": "object", "nullable": False}, True),
    ({"type": "object", "nullable": True}, False),
    ({"properties": {}}, True),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, True),
    ({"allOf": [{"required": ["a"]}, {"type": "object"}]}, True),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "array"}}}, False),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, False),
    ({"anyOf": [{"type": "object"}, {"type": "object"}]}, False),
    ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, False),
    ({"enum": ["a"]}, False),
    ({}, False),
    (True, False),
    (False, False),
]


@pytest.mark.parametrize(("schema", "is_object"), OBJECTS)
def test_which_answers_are_objects(schema: Any, is_object: bool) -> None:
    call = call_of("native", response_format=ResponseFormat(schema=Raw(json.dumps(schema).encode())))
    assert (prepare(call) == (call, None)) is is_object


# --- asking in the prompt ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"structured": "prompt"}, {"structured": "tool", "tools": False}])
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_the_schema_is_put_into_the_prompt(changes: Any, system: str | None) -> None:
    call, reader = prepare(call_of("prompt", WEATHER, system=system, changes=changes))
    assert reader == AnswerReader(fenced=True)
    assert call.options.response_format is None
    assert call.tools == (WEATHER,)
    prompt = str(call.conversation.system)
    assert prompt.startswith(system or "Answer with one JSON value (A city.)")
    assert prompt.endswith(bytes(SCHEMA).decode())


FENCED = [
    ('{"a": 1}', '{"a": 1}'),
    ('```json\n{"a": 1}\n```', '{"a": 1}'),
    ('\n ```\n{"a": 1}```\n\n', '{"a": 1}'),
    ('```{"a": 1}```', '{"a": 1}'),
    ('```json {"a": "`"} ```', '{"a": "`"}'),
    ('```json\n{"a": "```"}\n```', '{"a": "```"}'),
    ('```json\n{"a": "```\\n"}', '{"a": "```\\n"}'),
    ("```json\n[\n  1,\n\n  2\n]\n```", "[\n  1,\n\n  2\n]"),
    ('Here: ```json\n{"a": 1}\n```', 'Here: ```json\n{"a": 1}\n```'),
    ("", ""),
    ("``", "``"),
    ("```json", "```json"),
    ("  42\n", "  42\n"),
]


@pytest.mark.parametrize(("text", "bare"), FENCED)
def test_a_fence_is_removed(text: str, bare: str) -> None:
    reader = AnswerReader(fenced=True)
    for pieces in ([text], list(text), [text[:3], text[3:]]):
        assert read(reader, [*START, *text_events(0, *pieces), *ENDED]).text == bare


@given(
    text=st.text('`{}[]" \njson1', max_size=30) | st.sampled_from([text for text, _ in FENCED]),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_pieces_make_no_difference_and_only_a_fence_is_removed(text: str, cuts: list[int]) -> None:
    reader = AnswerReader(fenced=True)
    at = sorted({cut for cut in cuts if cut <= len(text)})
    pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    whole = read(reader, [*START, *text_events(0, text), *ENDED]).text
    assert read(reader, [*START, *text_events(0, *pieces), *ENDED]).text == whole
    assert whole in text
    assert not (set(text.replace(whole, "", 1)) - set("` \njson1"))


def test_fences_are_removed_from_each_text() -> None:
    reader = AnswerReader(fenced=True)
    message = read(reader, [*START, *text_events(0, "First."), *text_events(1, "```\n{}\n```"), *ENDED])
    assert message.blocks == (Text("First."), Text("{}"))
    assert answer_text(message) == "{}"


ANSWERS = [
    (("{}",), "{}"),
    (("Sure:\n```json\n{}\n```\nAnything else?",), "{}"),
    (("```\n1\n```\nor better\n```\n2\n```",), "2"),
    (('{"code": "```x\\n1```"}',), '{"code": "```x\\n1```"}'),
    (("Well.", " ", "[1] "), "[1]"),
    ((), ""),
]


@pytest.mark.parametrize(("texts", "answer"), ANSWERS)
def test_answer_text(texts: tuple[str, ...], answer: str) -> None:
    assert answer_text(Message.assistant(*texts)) == answer
