"""Every fault in every dialect, seen byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dragoman.conversation import Text, Thinking, ToolCall
from dragoman.simulator import FAULTS, Reply, Simulator
from tests.simulator.raw_client import DIALECTS, Answer, ask
from tests.simulator.reading import Said, said

BLOCKS = (
    Thinking("I should look at the weather first.", provider=""),
    Text("Let me look, one moment please."),
    ToolCall("call_1", "weather", '{"city":"Saint-Étienne","days":3}'),
)
EXPECTED = Said(
    "Let me look, one moment please.",
    "I should look at the weather first.",
    [("call_1", "weather", {"city": "Saint-Étienne", "days": 3})],
)


@dataclass
class Case:
    """What a fault does: the same reply without it beside it."""

    dialect: str
    stream: bool
    good: Answer
    bad: Answer

    @property
    def whole(self) -> bool:
        return not self.stream


def exchange(name: str, dialect: str, *, stream: bool) -> Case:
    fault = FAULTS[name]
    # What would last until a client gives up lasts a moment here.
    with Simulator([Reply(*BLOCKS), Reply(*BLOCKS, faults=[fault])], longest_pause=0.1) as simulator:
        good = ask(simulator, dialect, stream=stream)
        bad = ask(simulator, dialect, stream=stream)
        assert simulator.wait_until_idle()
        assert not simulator.errors
    # The two replies differ in the number that their ids contain.
    good.body = good.body.replace(b"sim000000", b"sim000001")
    good.chunks = [chunk.replace(b"sim000000", b"sim000001") for chunk in good.chunks]
    return Case(dialect, stream, good, bad)


def complete(case: Case) -> None:
    assert case.bad.status == 200
    assert case.bad.complete
    assert case.bad.ending == "close"
    found, wanted = said(case.dialect, case.bad, stream=case.stream), said(case.dialect, case.good, stream=case.stream)
    assert found == wanted
    assert (found.text, found.thinking, found.calls) == (EXPECTED.text, EXPECTED.thinking, EXPECTED.calls)


def same_bytes(case: Case) -> None:
    complete(case)
    assert case.bad.body == case.good.body


def error_body(dialect: str, body: dict[str, object], status: int) -> None:
    """The shape of the provider's errors."""
    error = body["error"]
    assert isinstance(error, dict)
    assert error["message"]
    if dialect == "anthropic":
        assert body["type"] == "error"
        assert str(error["type"]).endswith(("_error", "request_too_large"))
        assert str(body["request_id"]).startswith("req_")
    elif dialect == "gemini":
        assert error["code"] == status
        assert str(error["status"]).isupper()
    else:
        assert set(error) == {"message", "type", "param", "code"}


def status(number: int, **headers: str) -> Callable[[Case], None]:
    def look(case: Case) -> None:
        assert case.bad.status == number
        assert case.bad.complete
        error_body(case.dialect, case.bad.json, number)
        for name, value in headers.items():
            assert case.bad.headers[name.replace("_", "-")] == value

    return look


def no_json(number: int) -> Callable[[Case], None]:
    def look(case: Case) -> None:
        assert case.bad.status == number
        assert case.bad.headers["content-type"].startswith("text/html")
        assert not case.bad.body.startswith(b"{")

    return look


def nothing(ending: str) -> Callable[[Case], None]:
    def look(case: Case) -> None:
        assert case.bad.status == 0
        assert case.bad.ending == ending

    return look


def beginning(*, ending: str, http_complete: bool, share: tuple[float, float] = (0.4, 0.6)) -> Callable[[Case], None]:
    """The reply begins as it should and breaks off."""

    def look(case: Case) -> None:
        assert case.bad.status == 200
        assert case.good.body.startswith(case.bad.body)
        low, high = (len(case.good.body) * part for part in share)
        assert low <= len(case.bad.body) <= high
        assert case.bad.complete == http_complete
        assert case.bad.ending == ending

    return look


def behind_the_end(case: Case) -> None:
    """The dialect has said that this is all; a stream stays open nevertheless."""
    assert case.bad.body == case.good.body
    assert case.bad.complete == case.whole


def longer_than_promised(case: Case) -> None:
    assert not case.stream or "transfer-encoding" not in case.bad.headers
    assert int(case.bad.headers["content-length"]) == len(case.good.body) - 7
    assert case.bad.body + case.bad.rest == case.good.body


def shorter_than_promised(case: Case) -> None:
    assert int(case.bad.headers["content-length"]) == len(case.good.body) + 7
    assert case.bad.body == case.good.body
    assert not case.bad.complete


def compressed(case: Case) -> None:
    assert case.bad.headers["content-encoding"] == "gzip"
    same_bytes(case)
    assert b"".join(case.bad.chunks) != case.bad.body


def damaged(case: Case) -> None:
    assert case.bad.complete
    datas = [data for _, data in _events(case.bad)] if case.stream else [case.bad.body]
    readable = [_readable(data) for data in datas]
    assert readable.count(False) == 1


def _events(answer: Answer) -> list[tuple[bytes, bytes]]:
    frames = [frame for frame in answer.body.split(b"\n\n") if frame]
    return [(b"", frame.rpartition(b"data: ")[2]) for frame in frames]


def _readable(data: bytes) -> bool:
    try:
        return data == b"[DONE]" or isinstance(json.loads(data), dict)
    except ValueError:
        return False


def doubled(where: str) -> Callable[[Case], None]:
    def look(case: Case) -> None:
        if case.whole:
            return same_bytes(case)
        good, bad = case.good.events, case.bad.events
        last = len(good) - 1
        indexes = {"start": [0], "middle": range(1, last + 1), "end": [last]}[where]
        assert any(bad[at] == bad[at + 1] and [*bad[:at], *bad[at + 1 :]] == good for at in indexes)
        return None

    return look


def moved(case: Case) -> None:
    if case.whole:
        return same_bytes(case)
    good, bad = case.good.events, case.bad.events
    first = next(index for index, (one, other) in enumerate(zip(good, bad, strict=True)) if one != other)
    late = bad.index(good[first])
    assert late > first
    assert [*bad[:late], *bad[late + 1 :]] == [*good[:first], *good[first + 1 :]]
    return None


def tells_of_an_error(number: int, form: str = "event") -> Callable[[Case], None]:
    def look(case: Case) -> None:
        assert case.bad.status == 200
        assert case.bad.complete
        if case.whole:
            if form == "failed" and case.dialect == "openai_responses":
                assert case.bad.json["status"] == "failed"
                assert case.bad.json["error"]["message"]
            else:
                error_body(case.dialect, case.bad.json, number)
            return
        good, bad = case.good.events, case.bad.events
        assert 1 <= len(bad) - 1 < len(good)
        assert bad[:-1] == good[: len(bad) - 1]
        name, last = bad[-1][0], json.loads(bad[-1][1])
        if case.dialect != "openai_responses":
            assert name == ("error" if case.dialect == "anthropic" else "")
            error_body(case.dialect, last, number)
            return
        assert last["sequence_number"] == len(bad) - 1
        if form == "failed":
            assert name == last["type"] == "response.failed"
            assert last["response"]["status"] == "failed"
            assert last["response"]["error"]["code"]
        else:
            assert name == last["type"] == "error"
            error = last["error"] if form == "nested" else last
            assert error["message"]
            assert error["code"]

    return look


ENDS = {"openai_chat": "[DONE]", "openai_responses": "completed", "anthropic": "message_stop", "gemini": "finishReason"}
FINISHES = {
    "openai_chat": '"finish_reason":"tool_calls"',
    "openai_responses": "completed",
    "anthropic": "stop_reason",
    "gemini": "finishReason",
}


def without_end(case: Case) -> None:
    if case.whole:
        return same_bytes(case)
    assert case.bad.complete
    assert case.bad.events == case.good.events[:-1]
    assert ENDS[case.dialect] in case.good.events[-1][1]
    return None


def without_finish(case: Case) -> None:
    if case.whole:
        return same_bytes(case)
    assert case.bad.complete
    assert case.bad.events == case.good.events[: len(case.bad.events)]
    assert FINISHES[case.dialect] in case.good.body.decode()
    # The message that starts, and items that are done, are not the end of the reply.
    last = case.bad.events[-1][1]
    assert FINISHES[case.dialect] not in last or case.dialect == "openai_responses"
    assert "response.completed" not in case.bad.body.decode()
    return None


def with_something_new(case: Case) -> None:
    if case.whole:
        return same_bytes(case)
    good, bad = ([_without_number(event) for event in answer.events] for answer in (case.good, case.bad))
    added = [event for event in bad if event not in good]
    assert len(added) == 1
    assert "new" in str(added[0])
    assert [event for event in bad if event in good] == good
    return None


def _without_number(event: tuple[str, str]) -> object:
    """The events of the responses dialect are numbered, so a further one changes those after it."""
    name, data = event
    return (name, data) if data == "[DONE]" else (name, {**json.loads(data), "sequence_number": None})


def with_new_fields(case: Case) -> None:
    complete(case)
    assert case.bad.body.count(b"x_simulated") > len(case.bad.events if case.stream else [1])


def with_comments(case: Case) -> None:
    complete(case)
    if case.stream:
        assert case.bad.body.count(b": keep-alive\n\n") == len(case.good.events)
        assert case.bad.body.replace(b": keep-alive\n\n", b"") == case.good.body
    else:
        assert case.bad.body == b"\n\n" + case.good.body


def with_carriage_returns(case: Case) -> None:
    complete(case)
    assert b"\r\n" in case.bad.body
    assert case.bad.body.replace(b"\r\n", b"\n").rstrip() == case.good.body.rstrip()


EXPECTATIONS: dict[str, Callable[[Case], None]] = {
    **{f"status_{number}": status(number) for number in (400, 401, 403, 404, 408, 409, 413, 429, 500, 503, 529)},
    "status_429_retry_after": status(429, retry_after="1"),
    "status_429_retry_after_ms": status(429, retry_after_ms="20"),
    "status_429_retry_after_date": status(429, retry_after="Thu, 01 Jan 2026 00:00:00 GMT"),
    "status_502_html": no_json(502),
    "status_504_empty": no_json(504),
    "silence": nothing("close"),
    "no_response_close": nothing("close"),
    "no_response_reset": nothing("reset"),
    "delay": same_bytes,
    "drip": same_bytes,
    "stall": beginning(ending="close", http_complete=False),
    "stall_after_headers": beginning(ending="close", http_complete=False, share=(0, 0)),
    "stall_at_end": behind_the_end,
    "stall_then_go_on": same_bytes,
    "cut_close": beginning(ending="close", http_complete=False),
    "cut_reset": beginning(ending="reset", http_complete=False),
    "cut_end": beginning(ending="close", http_complete=True),
    "cut_after_headers": beginning(ending="close", http_complete=False, share=(0, 0)),
    "cut_last_byte": beginning(ending="close", http_complete=False, share=(0.99, 1)),
    "length_too_long": shorter_than_promised,
    "length_too_short": longer_than_promised,
    "gzip": compressed,
    "malformed_json": damaged,
    "malformed_event": damaged,
    "malformed_utf8": damaged,
    "duplicated_start": doubled("start"),
    "duplicated_event": doubled("middle"),
    "duplicated_end": doubled("end"),
    "reordered_parts": moved,
    "reordered_deltas": moved,
    "error_event": tells_of_an_error(503),
    "error_event_first": tells_of_an_error(503),
    "error_event_nested": tells_of_an_error(500, "nested"),
    "failed_response": tells_of_an_error(500, "failed"),
    "missing_end": without_end,
    "missing_finish": without_finish,
    "unknown_event": with_something_new,
    "unknown_fields": with_new_fields,
    "keep_alive": with_comments,
    "crlf": with_carriage_returns,
}


def test_every_fault_has_an_expectation() -> None:
    assert set(EXPECTATIONS) == set(FAULTS)


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
