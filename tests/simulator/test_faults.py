"""Every fault in every dialect, compared byte by byte with the same reply without it; combinations of faults."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from dragoman.conversation import Text, Thinking, ToolCall
from dragoman.simulator import (
    FAULTS,
    Cut,
    Drip,
    ErrorEvent,
    Form,
    MissingEnd,
    Reply,
    Simulator,
    Stall,
    Status,
    UnknownFields,
)
from tests.simulator.raw_client import DIALECTS, Answer, ask, body_of, path_of, read_to_end, request_bytes, said

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


def exchange(simulator: Simulator, name: str, dialect: str, *, stream: bool) -> Case:
    simulator.play([Reply(*BLOCKS), Reply(*BLOCKS, faults=[FAULTS[name]])])
    good = ask(simulator, dialect, stream=stream)
    bad = ask(simulator, dialect, stream=stream)
    assert simulator.wait_until_idle()
    assert not simulator.errors
    # The two replies differ in the number that their ids contain.
    before, last = [b"sim%06d" % request.number for request in simulator.requests[-2:]]
    good.body = good.body.replace(before, last)
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


# --- in how it is sent ---


def behind_the_end(case: Case) -> None:
    """The reply is complete for the dialect, but a stream stays open."""
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


# --- in its content ---


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
    **dict.fromkeys(("error_event", "error_event_first"), tells_of_an_error),
    **dict.fromkeys(("missing_end", "missing_finish"), in_streams(without_end)),
    "unknown_event": in_streams(with_something_new),
    "unknown_fields": with_new_fields,
    "keep_alive": with_comments,
    "crlf": with_carriage_returns,
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_in_dialect(simulator: Simulator, name: str, dialect: str, stream: bool) -> None:
    case = exchange(simulator, name, dialect, stream=stream)
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


TEXT = "Let me look, one moment please, it will not take long."


@pytest.mark.parametrize("dialect", DIALECTS)
def test_faults_combine(dialect: str) -> None:
    faults = [
        FAULTS["delay"],
        UnknownFields(),
        Form("keep_alive"),
        Form("crlf"),
        Form("gzip"),
        Drip(50, 0),
        MissingEnd(),
    ]
    with Simulator([Reply(TEXT, faults=faults)]) as simulator:
        answer = ask(simulator, dialect, stream=True)
    assert answer.complete
    assert answer.headers["content-encoding"] == "gzip"
    assert b": keep-alive\r\n\r\n" in answer.body
    assert b"x_simulated" in answer.body
    assert not any(
        end in answer.events[-1][1] for end in ("[DONE]", "message_stop", "response.completed", "finishReason")
    )
    assert len(answer.chunks) > 3
    assert {len(chunk) for chunk in answer.chunks[:-1]} == {50}


def test_faults_of_the_simulator_apply_to_every_reply() -> None:
    with Simulator(["one", "two"], faults=[FAULTS["status_503"]]) as simulator:
        assert ask(simulator, "anthropic").status == 503
        assert ask(simulator, "gemini").status == 503


@pytest.mark.parametrize("dialect", DIALECTS)
def test_faults_apply_to_the_shortest_replies(dialect: str) -> None:
    shortest: list[tuple[str | ToolCall, ...]] = [(), ("x",), (ToolCall("c", "f"),)]
    script = [Reply(*blocks, faults=[fault]) for blocks in shortest for fault in FAULTS.values()]
    with Simulator(script, longest_pause=0.01) as simulator:
        for _ in script:
            ask(simulator, dialect, stream=True)
        assert not simulator.errors


def test_gzip_only_if_the_client_accepts_it() -> None:
    with Simulator([Reply("plain", faults=[Form("gzip")])]) as simulator:
        plain = ask(simulator, "openai_chat", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("how", ["close", "reset", "end"])
def test_cut_position_is_exact(dialect: str, how: str) -> None:
    with Simulator(lambda request: Reply("Hello")) as simulator:
        length = len(ask(simulator, dialect, stream=True).body)
        for after in {0, 1, 2, length // 3, length - 1, length, length + 5}:
            simulator.play([Reply("Hello", faults=[Cut(how, after=after)])])
            answer = ask(simulator, dialect, stream=True)
            assert len(answer.body) == min(after, length)
            assert answer.complete == (how == "end")


def test_gemini_puts_retry_delay_into_the_body() -> None:
    with Simulator([FAULTS["status_429_retry_after"]]) as simulator:
        details = ask(simulator, "gemini").json["error"]["details"]
    assert details == [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}]


@pytest.mark.parametrize(
    ("dialect", "status", "code"),
    [
        ("anthropic", 402, "billing_error"),
        ("anthropic", 504, "timeout_error"),
        ("openai_chat", 504, "timeout"),
        ("openai_responses", 504, "timeout"),
        ("gemini", 499, "CANCELLED"),
        ("gemini", 501, "UNIMPLEMENTED"),
        ("gemini", 504, "DEADLINE_EXCEEDED"),
    ],
)
def test_statuses_have_the_error_codes_of_their_provider(dialect: str, status: int, code: str) -> None:
    with Simulator([Status(status)]) as simulator:
        assert code in ask(simulator, dialect).json["error"].values()


def test_error_code_can_be_scripted() -> None:
    fault = Status(400, "Too long by far.", "context_length_exceeded")
    with Simulator([fault, fault, fault, ErrorEvent(429, "Slow down.", "slow_down")]) as simulator:
        assert ask(simulator, "openai_chat").json["error"]["code"] == "context_length_exceeded"
        assert ask(simulator, "anthropic").json["error"]["type"] == "context_length_exceeded"
        assert ask(simulator, "gemini").json["error"]["status"] == "context_length_exceeded"
        event = ask(simulator, "openai_responses", stream=True).datas[-1]
        assert (event["code"], event["message"]) == ("slow_down", "Slow down.")


@pytest.mark.parametrize("who", ["client", "simulator"])
@pytest.mark.parametrize("fault", [Stall(where="head"), Stall(), Stall(after=0)])
def test_stall_ends_when_either_side_closes(fault: Stall, who: str) -> None:
    with Simulator([Reply("Hello", faults=[fault])], longest_pause=600) as simulator:
        with socket.create_connection(("127.0.0.1", simulator.port), timeout=20) as sock:
            sock.sendall(request_bytes(path_of("anthropic", stream=True), body_of("anthropic", stream=True)))
            assert simulator.wait_for_requests(1)
            assert simulator.open_connections == 1
            if who == "simulator":
                simulator.close()
                read_to_end(sock)
        assert simulator.wait_until_idle()


# --- however a reply is cut, it is the same reply --------------------------------------------------------------------

PIECES = (Thinking("Hm, let me see… 🤔", provider=""), Text("Grüße! " * 5), ToolCall("c1", "f", '{"a":"ß","b":[1]}'))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
@given(delta=st.integers(0, 40), drip=st.none() | st.integers(1, 3) | st.integers(1, 5000))
@settings(max_examples=15)
def test_reply_is_the_same_in_any_pieces(
    simulator: Simulator, dialect: str, stream: bool, delta: int, drip: int | None
) -> None:
    faults = [] if drip is None else [Drip(drip, 0)]
    simulator.play([Reply(*PIECES, delta=delta, faults=faults)])
    answer = ask(simulator, dialect, stream=stream)
    assert answer.complete
    found = said(dialect, answer, stream=stream)
    assert (found.text, found.thinking) == ("Grüße! " * 5, "Hm, let me see… 🤔")
    assert found.calls == [("c1", "f", {"a": "ß", "b": [1]})]
    if stream and drip is None:
        assert len(answer.chunks) == len(answer.events)
    elif stream:
        assert {len(chunk) for chunk in answer.chunks[:-1]} <= {drip}
