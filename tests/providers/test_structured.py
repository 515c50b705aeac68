from __future__ import annotations

import json

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Conversation,
    Message,
    OneTool,
    ReplyEvent,
    StopReason,
    ToolCall,
    ToolSpec,
    fold,
    unfold,
)
from dragoman.errors import ProtocolError
from dragoman.providers.codec import Call
from dragoman.providers.options import ModelOptions, ResponseFormat
from dragoman.providers.profile import Profile, StructuredStyle
from dragoman.providers.structured import prepare

POINT = Raw(b'{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}')
NUMBERS = Raw(b'{"type":"array","items":{"type":"integer"}}')
ASKED = Conversation("Be brief.").plus(Message.user("Where?"))


class Replayed:
    """A decoder that gives a reply's events one by one, and may break off."""

    def __init__(self, message: Message, *, breaks: bool = False) -> None:
        self._events = list(unfold(message, piece=3))
        self._breaks = breaks

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        events.append(self._events.pop(0))
        if self._breaks and not self._events[1:]:
            raise ProtocolError("cut off")

    def finish(self, events: list[ReplyEvent]) -> None:
        events.extend(self._events)


def asked(style: StructuredStyle, schema: Raw = POINT, *tools: ToolSpec, **profile: object) -> Call:
    return Call(
        model="m",
        conversation=ASKED,
        profile=Profile(provider="p", dialect="d", structured=style, **profile),  # type: ignore[arg-type]
        tools=tools,
        options=ModelOptions(response_format=ResponseFormat(schema=schema)),
    )


def answered(call: Call, message: Message, *, fed: int = 100) -> Message:
    _, reader = prepare(call)
    assert reader is not None
    events: list[ReplyEvent] = []
    inner = Replayed(message)
    decoder = reader.wrap(inner)
    for _ in range(min(fed, len(inner._events))):
        decoder.feed(b"", events)
    decoder.finish(events)
    return fold(events)


def test_a_model_with_the_feature_needs_no_help() -> None:
    call = asked("native")
    assert prepare(call) == (call, None)
    plain = Call(model="m", conversation=ASKED, profile=call.profile)
    assert prepare(plain) == (plain, None)


def test_the_answer_is_asked_for_as_a_tool_call() -> None:
    call, _ = prepare(asked("tool"))
    [spec] = call.tools
    assert (spec.name, spec.parameters, spec.strict) == ("answer", POINT, True)
    assert call.options.tool_choice == OneTool("answer")
    assert call.options.response_format is None


def test_other_tools_may_be_used_first_and_keep_their_names() -> None:
    call, _ = prepare(asked("tool", POINT, ToolSpec("answer")))
    assert [spec.name for spec in call.tools] == ["answer", "answer_2"]
    assert call.options.tool_choice == "required"
    limited, _ = prepare(asked("tool", POINT, tool_choices=frozenset(["auto"])))
    assert limited.options.tool_choice == "auto"


@pytest.mark.parametrize("fed", [0, 3, 100])
def test_the_call_comes_back_as_text(fed: int) -> None:
    reply = Message.assistant(ToolCall("1", "answer", '{"x": 12345}'))
    message = answered(asked("tool"), reply, fed=fed)
    assert (message.text, message.tool_calls, message.stop_reason) == ('{"x": 12345}', (), StopReason.END)


def test_calls_of_other_tools_stay_calls() -> None:
    reply = Message.assistant("Let me see.", ToolCall("1", "look", "{}"))
    message = answered(asked("tool", POINT, ToolSpec("look")), reply)
    assert (message.stop_reason, message.tool_calls) == (StopReason.TOOL_CALLS, (ToolCall("1", "look", "{}"),))


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"answer": [1,  2]}', "[1,  2]"), ("[1]", "[1]"), ("", ""), ("{", "{")]
)
def test_an_answer_that_is_no_object_is_wrapped_in_one(arguments: str, text: str) -> None:
    call, _ = prepare(asked("tool", NUMBERS))
    assert call.tools[0].schema["properties"] == {"answer": json.loads(bytes(NUMBERS))}
    message = answered(asked("tool", NUMBERS), Message.assistant(ToolCall("1", "answer", arguments)))
    assert message.text == text


def test_the_prompt_asks_for_bare_json() -> None:
    call, _ = prepare(asked("prompt"))
    system = call.conversation.system
    assert system is not None
    assert system.startswith("Be brief.\n\n")
    assert bytes(POINT).decode() in system
    assert call.options.response_format is None
    assert prepare(asked("tool", tools=False))[0].conversation.system == system  # no tools: the prompt must do


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('{"x": 1}', '{"x": 1}'),
        ('```json\n{"x": 1}\n```', '{"x": 1}'),
        ('\n```\n{"x": 1}\n```\n', '{"x": 1}'),
        ("``` no fence", "``` no fence"),
        ("", ""),
    ],
)
def test_a_fence_around_the_answer_is_taken_away(said: str, text: str) -> None:
    assert answered(asked("prompt"), Message.assistant(said)).text == text


@pytest.mark.parametrize("style", ["tool", "prompt"])
def test_what_was_held_back_comes_out_when_the_reply_breaks_off(style: StructuredStyle) -> None:
    said = (
        Message.assistant("[1, 2, 3]") if style == "prompt" else Message.assistant(ToolCall("1", "answer", "[1, 2, 3]"))
    )
    _, reader = prepare(asked(style, NUMBERS))
    assert reader is not None
    decoder = reader.wrap(Replayed(said, breaks=True))
    events: list[ReplyEvent] = []

    def feed_all() -> None:
        for _ in range(100):
            decoder.feed(b"", events)

    with pytest.raises(ProtocolError):
        feed_all()
    message = fold(events)
    assert message.text == "[1, 2, 3]"
    assert message.interrupted
