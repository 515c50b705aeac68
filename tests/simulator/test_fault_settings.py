"""Faults one by one: their settings, how they combine, how a stall ends; and that pieces make no difference."""

from __future__ import annotations

import socket
from collections.abc import Iterator

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
from tests.simulator.raw_client import DIALECTS, ask, body_of, path_of, read_to_end, request_bytes
from tests.simulator.reading import said

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


def test_a_fault_of_the_simulator_befalls_every_reply() -> None:
    with Simulator(["one", "two"], faults=[FAULTS["status_503"]]) as simulator:
        assert ask(simulator, "anthropic").status == 503
        assert ask(simulator, "gemini").status == 503


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_befalls_the_shortest_reply_too(name: str, dialect: str) -> None:
    for reply in (Reply(), Reply("x"), Reply(ToolCall("c", "f"))):
        with Simulator([Reply(*reply.blocks, faults=[FAULTS[name]])], longest_pause=0.01) as simulator:
            ask(simulator, dialect, stream=True)
            assert not simulator.errors


def test_gzip_needs_a_client_that_can_read_it() -> None:
    with Simulator([Reply("plain", faults=[Form("gzip")])]) as simulator:
        plain = ask(simulator, "openai_chat", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("how", ["close", "reset", "end"])
def test_a_cut_at_every_place_counts_bytes_exactly(dialect: str, how: str) -> None:
    with Simulator(lambda request: Reply("Hello")) as simulator:
        length = len(ask(simulator, dialect, stream=True).body)
        for after in {0, 1, 2, length // 3, length - 1, length, length + 5}:
            simulator.play([Reply("Hello", faults=[Cut(how, after=after)])])
            answer = ask(simulator, dialect, stream=True)
            assert len(answer.body) == min(after, length)
            assert answer.complete == (how == "end")


def test_gemini_says_in_the_body_when_to_try_again() -> None:
    with Simulator([FAULTS["status_429_retry_after"]]) as simulator:
        details = ask(simulator, "gemini").json["error"]["details"]
    assert details == [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}]


def test_an_error_has_the_codes_that_the_script_says() -> None:
    fault = Status(400, "Too long by far.", "context_length_exceeded")
    with Simulator([fault, fault, fault, ErrorEvent(429, "Slow down.", "slow_down")]) as simulator:
        assert ask(simulator, "openai_chat").json["error"]["code"] == "context_length_exceeded"
        assert ask(simulator, "anthropic").json["error"]["type"] == "context_length_exceeded"
        assert ask(simulator, "gemini").json["error"]["status"] == "context_length_exceeded"
        event = ask(simulator, "openai_responses", stream=True).datas[-1]
        assert (event["code"], event["message"]) == ("slow_down", "Slow down.")


@pytest.mark.parametrize("who", ["client", "simulator"])
@pytest.mark.parametrize("fault", [Stall(where="head"), Stall(), Stall(after=0)])
def test_a_stall_ends_when_either_side_closes(fault: Stall, who: str) -> None:
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

BLOCKS = (Thinking("Hm, let me see… 🤔", provider=""), Text("Grüße! " * 5), ToolCall("c1", "f", '{"a":"ß","b":[1]}'))


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
@given(delta=st.integers(0, 40), drip=st.none() | st.integers(1, 3) | st.integers(1, 5000))
@settings(max_examples=15)
def test_pieces_make_no_difference(
    simulator: Simulator, dialect: str, stream: bool, delta: int, drip: int | None
) -> None:
    faults = [] if drip is None else [Drip(drip, 0)]
    simulator.play([Reply(*BLOCKS, delta=delta, faults=faults)])
    answer = ask(simulator, dialect, stream=stream)
    assert answer.complete
    found = said(dialect, answer, stream=stream)
    assert (found.text, found.thinking) == ("Grüße! " * 5, "Hm, let me see… 🤔")
    assert found.calls == [("c1", "f", {"a": "ß", "b": [1]})]
    if stream and drip is None:
        assert len(answer.chunks) == len(answer.events)
    elif stream:
        assert {len(chunk) for chunk in answer.chunks[:-1]} <= {drip}
