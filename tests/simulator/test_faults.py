"""Every fault in every dialect, seen byte by byte, beside the same reply without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest

from dragoman.conversation import Text, Thinking, ToolCall
from dragoman.simulator import FAULTS, Reply, Simulator
from tests.simulator.raw_client import DIALECTS, Answer, ask
from tests.simulator.reading import said

BLOCKS = (
    Thinking("I should look at the weather first.", provider=""),
    Text("Let me look, one moment please."),
    ToolCall("call_1", "weather", '{"city":"Saint-Étienne","days":3}'),
)


class Case(NamedTuple):
    name: str
    dialect: str
    stream: bool
    good: Answer
    bad: Answer


Look = Callable[[Case], None]


def exchange(name: str, dialect: str, *, stream: bool) -> Case:
    # What would last until a client gives up lasts a moment here.
    with Simulator([Reply(*BLOCKS), Reply(*BLOCKS, faults=[FAULTS[name]])], longest_pause=0.1) as simulator:
        good = ask(simulator, dialect, stream=stream)
        bad = ask(simulator, dialect, stream=stream)
        assert simulator.wait_until_idle()
        assert not simulator.errors
    # The two replies differ in the number that their ids contain.
    good.body = good.body.replace(b"sim000000", b"sim000001")
    return Case(name, dialect, stream, good, bad)


def complete(case: Case) -> None:
    """Whatever else is new about it, it says the same."""
    assert (case.bad.status, case.bad.complete, case.bad.ending) == (200, True, "close")
    found = said(case.dialect, case.bad, stream=case.stream)
    assert found == said(case.dialect, case.good, stream=case.stream)
    assert (found.thinking, found.text) == tuple(block.text for block in BLOCKS[:2])  # type: ignore[union-attr]
    assert found.calls == [("call_1", "weather", {"city": "Saint-Étienne", "days": 3})]


def same_bytes(case: Case) -> None:
    complete(case)
    assert case.bad.body == case.good.body


# --- instead of a reply ---


def status(case: Case) -> None:
    """Its shape is judged by the official clients, in test_sdks.py."""
    number = int(case.name.split("_")[1])
    assert (case.bad.status, case.bad.complete) == (number, True)
    assert FAULTS[case.name].headers.items() <= case.bad.headers.items()  # type: ignore[attr-defined]
    assert ("html" in case.bad.headers["content-type"]) == (number in {502, 504}) == (b'"error"' not in case.bad.body)


def breaks_off(
    ending: str, *, http_complete: bool = False, status: int = 200, share: float = 0.5
) -> Callable[..., None]:
    """The reply begins as it should, up to this share of it."""

    def look(case: Case) -> None:
        assert (case.bad.status, case.bad.ending, case.bad.complete) == (status, ending, http_complete)
        assert case.good.body.startswith(case.bad.body)
        assert len(case.bad.body) == pytest.approx(len(case.good.body) * share, rel=0.2)

    return look


# --- on the way ---


def behind_the_end(case: Case) -> None:
    """The dialect has said that this is all; a stream stays open nevertheless."""
    assert case.bad.body == case.good.body
    assert case.bad.complete != case.stream


def another_length(case: Case) -> None:
    by = FAULTS[case.name].by  # type: ignore[attr-defined]
    assert int(case.bad.headers["content-length"]) == len(case.good.body) + by
    assert case.bad.body + case.bad.rest == case.good.body
    assert case.bad.complete == (by < 0)


def compressed(case: Case) -> None:
    assert case.bad.headers["content-encoding"] == "gzip"
    same_bytes(case)
    assert b"".join(case.bad.chunks) != case.bad.body


def with_comments(case: Case) -> None:
    complete(case)
    said_first, count = (b": keep-alive\n\n", len(case.good.events)) if case.stream else (b"\n\n", 1)
    assert case.bad.body.count(said_first) >= count
    assert case.bad.body.replace(said_first, b"") == case.good.body.replace(said_first, b"")


def with_carriage_returns(case: Case) -> None:
    complete(case)
    assert b"\r\n" in case.bad.body
    assert case.bad.body.replace(b"\r\n", b"\n").rstrip() == case.good.body.rstrip()


# --- in what is said ---


def damaged(case: Case) -> None:
    def readable(data: bytes) -> bool:
        try:
            return data == b"[DONE]" or isinstance(json.loads(data), dict)
        except ValueError:
            return False

    frames = [frame for frame in case.bad.body.split(b"\n\n") if frame] if case.stream else [case.bad.body]
    assert case.bad.complete
    assert [readable(frame.rpartition(b"data: ")[2]) for frame in frames].count(False) == 1


def in_streams(look: Look) -> Look:
    """A fault that a whole reply shows nothing of."""
    return lambda case: look(case) if case.stream else same_bytes(case)


def doubled(case: Case) -> None:
    good, bad = case.good.events, case.bad.events
    last = len(good) - 1
    places = {"duplicated_start": [0], "duplicated_end": [last]}.get(case.name, range(1, last + 1))
    assert any(bad[at] == bad[at + 1] and [*bad[:at], *bad[at + 1 :]] == good for at in places)


def moved(case: Case) -> None:
    good, bad = case.good.events, case.bad.events
    first = next(index for index, (one, other) in enumerate(zip(good, bad, strict=True)) if one != other)
    late = bad.index(good[first])
    assert late > first
    assert [*bad[:late], *bad[late + 1 :]] == [*good[:first], *good[first + 1 :]]


def tells_of_an_error(case: Case) -> None:
    """A stream that began well; the shape of the error is judged by the official clients."""
    assert (case.bad.status, case.bad.complete) == (200, True)
    last = case.bad.body.decode()
    if case.stream:
        *before, (_, last) = case.bad.events
        assert 1 <= len(before) < len(case.good.events)
        assert before == case.good.events[: len(before)]
    assert "The simulator answers with status" in last


LAST_MARKS = {
    "openai_chat": ["[DONE]", '"usage":{', '"finish_reason":"tool_calls"'],
    "openai_responses": ["response.completed"],
    "anthropic": ["message_stop", "message_delta"],
    "gemini": ["finishReason"],
}


def without_end(case: Case) -> None:
    assert case.bad.complete
    left_out = [data for _, data in reversed(case.good.events[len(case.bad.events) :])]
    marks = LAST_MARKS[case.dialect] if case.name == "missing_finish" else LAST_MARKS[case.dialect][:1]
    assert case.bad.events == case.good.events[: len(case.bad.events)]
    assert [mark in data for mark, data in zip(marks, left_out, strict=True)] == [True] * len(marks)


def with_something_new(case: Case) -> None:
    def unnumbered(event: tuple[str, str]) -> object:
        """The events of the responses dialect are numbered, so a further one changes those after it."""
        name, data = event
        return (name, data) if data == "[DONE]" else (name, {**json.loads(data), "sequence_number": None})

    good, bad = ([unnumbered(event) for event in answer.events] for answer in (case.good, case.bad))
    (added,) = [event for event in bad if event not in good]
    assert "new" in str(added)
    assert [event for event in bad if event in good] == good


def with_new_fields(case: Case) -> None:
    complete(case)
    assert case.bad.body.count(b"x_simulated") > len(case.bad.events if case.stream else [1])


EXPECTATIONS: dict[str, Look] = {
    **{name: status for name in FAULTS if name.startswith("status_")},
    "silence": breaks_off("close", status=0, share=0),
    "no_response_close": breaks_off("close", status=0, share=0),
    "no_response_reset": breaks_off("reset", status=0, share=0),
    "delay": same_bytes,
    "drip": same_bytes,
    "stall": breaks_off("close"),
    "stall_after_headers": breaks_off("close", share=0),
    "stall_at_end": behind_the_end,
    "stall_then_go_on": same_bytes,
    "cut_close": breaks_off("close"),
    "cut_reset": breaks_off("reset"),
    "cut_end": breaks_off("close", http_complete=True),
    "cut_after_headers": breaks_off("close", share=0),
    "cut_last_byte": breaks_off("close", share=1),
    "length_too_long": another_length,
    "length_too_short": another_length,
    "gzip": compressed,
    "malformed_json": damaged,
    "malformed_event": damaged,
    "malformed_utf8": damaged,
    **dict.fromkeys(("duplicated_start", "duplicated_event", "duplicated_end"), in_streams(doubled)),
    **dict.fromkeys(("reordered_parts", "reordered_deltas"), in_streams(moved)),
    **{name: tells_of_an_error for name in FAULTS if name.startswith(("error_event", "failed_response"))},
    **dict.fromkeys(("missing_end", "missing_finish"), in_streams(without_end)),
    "unknown_event": in_streams(with_something_new),
    "unknown_fields": with_new_fields,
    "keep_alive": with_comments,
    "crlf": with_carriage_returns,
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_dialect(name: str, dialect: str, stream: bool) -> None:
    case = exchange(name, dialect, stream=stream)
    EXPECTATIONS[name](case)
    in_order = case.bad.status == 200 and case.bad.complete
    match FAULTS[name].effect(streamed=stream):
        case "none":
            assert in_order or name == "stall_at_end"
            assert said(dialect, case.bad, stream=stream) == said(dialect, case.good, stream=stream)
        case "failure" | "broken" | "silence":
            assert not (in_order and case.bad.body == case.good.body)
        case "unclear":
            pass
