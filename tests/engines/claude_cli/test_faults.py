"""What can go wrong with a program: a typed error says what to do, and no process is left behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.conversation import Conversation, Failed, Message, StopReason
from dragoman.engines import ClaudeEngine, ClaudeSettings
from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    ContextTooLongError,
    ProviderError,
    RateLimitError,
    RequestTimeoutError,
)
from dragoman.transport import Timeouts
from tests.engines.claude_cli.programs import (
    BEGINS,
    CALM,
    CLOSES,
    ENDS,
    FAILS,
    GREETS,
    HANGS,
    HEARS_OPENING,
    HEARS_USER,
    LINGERS,
    MESSAGE,
    OPENS_TEXT,
    QUICK,
    REPLY,
    RESULT,
    SPEAKS,
    START,
    STOPS,
    WAYS,
    WEATHER,
    Programs,
    every_colour,
    every_way,
    is_alive,
    request,
    speaks,
    system,
)

Way = Callable[..., Any]


FLOOD = {"stderr": ("y" * 99 + "\n") * 10_000}
NOISE = [
    {"raw": "not json\n\n[1, 2]\n{}\nnull\n\x00\x01\n"},
    {"raw": '{"type": 7}\n{"type": "assistant"}\n{"type": "user", "message": 3}\n{"type":"stream_event"}\n'},
    {"say": {"type": "tomorrow", "subtype": "news"}},
    {"say": {"type": "system", "subtype": "something_new"}},
    {"say": {"type": "stream_event", "event": {"type": "message_stop"}, "parent_tool_use_id": "helper"}},
]
WHOLE = {"id": "m2", "model": "m", "role": "assistant", "type": "message", "stop_reason": "end_turn"}
NOT_STREAMED = [
    {"say": {"type": "assistant", "message": {**WHOLE, "content": [{"type": "text", "text": each}]}}}
    for each in ("Recovered.", " Really.")
]
ANSWERS = {
    "plainly": (REPLY, "Hi."),
    "in a line of megabytes": (
        [*START, BEGINS, OPENS_TEXT, speaks("x" * 5_000_000), CLOSES, STOPS, ENDS, RESULT],
        "x" * 5_000_000,
    ),
    "between garbage and unknown messages": (
        [*START, *NOISE, *MESSAGE[:3], *NOISE, *MESSAGE[3:], *NOISE, RESULT],
        "Hi.",
    ),
    "while it complains": ([FLOOD, *START, FLOOD, *MESSAGE, RESULT], "Hi."),
    # After a broken stream the program asks for the whole reply, and tells it block by block.
    "not streamed": ([*START, BEGINS, *NOT_STREAMED, RESULT], "Recovered. Really."),
}


@every_colour
@pytest.mark.parametrize(("steps", "text"), ANSWERS.values(), ids=ANSWERS.keys())
def test_unusual_output_is_read(way: Way, steps: list[Any], text: str, programs: Programs) -> None:
    message = way(programs.playing([*steps, LINGERS])).reply.message
    assert message.text == text
    assert (message.stop_reason, message.provider) == (StopReason.END, "claude-local")
    assert steps != REPLY or (message.usage.input, message.usage.output) == (3, 1)


REFUSAL = {"subtype": "error", "request_id": "dragoman-1", "error": "not today"}
PROBLEMS = {
    "it exits at once": (
        [{"stderr": "first\nboom: no config\n"}, {"exit": 3}],
        ConnectionFailedError,
        ["exited with code 3", "boom: no config"],
    ),
    "it is too old": (
        [HEARS_OPENING, GREETS, HEARS_USER, system(claude_code_version="1.0.33"), *MESSAGE, RESULT],
        ConfigurationError,
        ["1.0.33"],
    ),
    "it refuses the opening": (
        [HEARS_OPENING, {"say": {"type": "control_response", "response": REFUSAL}}, LINGERS],
        ConfigurationError,
        ["not today"],
    ),
}


@every_colour
@pytest.mark.parametrize(("steps", "kind", "words"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_programs_that_cannot_answer(
    way: Way, steps: list[Any], kind: type[Exception], words: list[str], programs: Programs
) -> None:
    error = way(programs.playing(steps)).error
    assert type(error) is kind
    assert all(each in error.message for each in words)


@every_colour
def test_a_missing_or_broken_program_is_a_configuration_error(way: Way, tmp_path: Path) -> None:
    for outcome in (way(ClaudeSettings(), find_program=lambda _: None), way(ClaudeSettings(program="/no/claude"))):
        error = outcome.error
        assert isinstance(error, ConfigurationError)
        assert "npm install -g @anthropic-ai/claude-code" in error.hint
        assert "PATH" in error.hint
    file = tmp_path / "claude"
    file.write_bytes(b"\x7fELF nothing")
    file.chmod(0o755)
    error = way(ClaudeSettings(program=str(file))).error
    assert isinstance(error, ConfigurationError)
    assert "cannot be started" in error.message


def test_ctrl_c_while_a_program_starts_leaves_no_file_open(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def interrupted(_arguments: object, **options: Any) -> None:
        given.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with ClaudeEngine(settings=programs.playing([])) as engine, pytest.raises(KeyboardInterrupt):
        engine.reply(Conversation().plus(Message.user("Hello")))
    assert given["stderr"].closed


@every_way
def test_an_exit_in_the_middle_of_a_reply(way: Way, programs: Programs) -> None:
    outcome = way(programs.playing([*START, BEGINS, OPENS_TEXT, SPEAKS, {"sleep": 0.1}, {"exit": 1}]))
    assert isinstance(outcome.error, ConnectionFailedError)
    if outcome.events:  # streamed: what was received is not lost
        assert outcome.error.partial.text == "Hi."
        assert isinstance(outcome.events[-1], Failed)


TALKS = [*START, BEGINS, OPENS_TEXT] + [SPEAKS, {"sleep": 0.05}] * 200
LIMITS = {name: (steps, QUICK, "read_timeout") for name, steps in HANGS.items()} | {
    "before a word": (HANGS["before a word"], QUICK, "start_timeout"),
    "never": (TALKS, Timeouts(read=10.0, total=1.5), "total_timeout"),
}


@every_colour
@pytest.mark.parametrize(("steps", "timeouts", "code"), LIMITS.values(), ids=LIMITS.keys())
def test_timeouts(way: Way, steps: list[Any], timeouts: Timeouts, code: str, programs: Programs) -> None:
    start = 0.4 if code == "start_timeout" else 20.0
    outcome = way(programs.playing(steps, start_seconds=start), timeouts=timeouts)
    assert isinstance(outcome.error, RequestTimeoutError)
    assert outcome.error.code == code


@every_colour
def test_a_large_prompt(way: Way, programs: Programs) -> None:
    asked = Conversation().plus(Message.user("x" * 5_000_000))
    # It does not read for a while, and writes meanwhile: neither side may wait for the other.
    steps = [{"say": {"type": "noise", "text": "y" * 200_000}}, {"sleep": 0.2}, *REPLY]
    assert way(programs.playing(steps), asked, timeouts=CALM).reply.message.text == "Hi."


@every_colour
def test_requests_of_the_program_are_answered(way: Way, programs: Programs) -> None:
    def asks(id: str, **fields: Any) -> list[Any]:
        return [request(id, **fields), {"await": id}]

    def mcp(id: int, method: str, **parameters: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}
        return {"subtype": "mcp_message", "server_name": "dragoman", "message": message}

    steps = [
        HEARS_OPENING,
        *asks("q1", **mcp(0, "initialize", protocolVersion="2025-11-25")),
        *asks("q2", **mcp(1, "tools/list")),
        *[GREETS, system()],
        *asks("q3", subtype="make_coffee"),
        *asks("q4", **mcp(2, "prompts/list")),
        *asks("q5", subtype="mcp_message"),
        *[*MESSAGE, RESULT],
    ]
    assert way(programs.playing(steps), tools=[WEATHER]).reply.message.text == "Hi."
    heard = {each["response"]["request_id"]: each["response"] for each in programs.heard if "response" in each}
    answers = [heard[id]["response"]["mcp_response"] for id in ("q1", "q2", "q4")]
    assert answers[0]["result"]["protocolVersion"] == "2025-11-25"
    assert [tool["name"] for tool in answers[1]["result"]["tools"]] == ["weather"]
    assert answers[2]["error"]["code"] == -32601
    assert (heard["q3"]["subtype"], heard["q5"]["subtype"]) == ("error", "error")
    assert "make_coffee" in heard["q3"]["error"]


FAILURES = {
    "rate limit": ({"result": "API Error: too many", "api_error_status": 429}, "rate_limit", RateLimitError),
    "usage limit": ({"result": "You've hit your limit · resets 3pm"}, None, RateLimitError),
    "not logged in": ({"result": "Not logged in · Please run /login"}, "authentication_failed", AuthenticationError),
    "key refused": ({"result": "Failed to authenticate.", "api_error_status": 401}, None, AuthenticationError),
    "context": ({"result": "Prompt is too long"}, "invalid_request", ContextTooLongError),
    "other": ({"subtype": "error_max_turns", "errors": ["it broke"]}, None, ProviderError),
    "says nothing": ({}, None, ProviderError),
}


@every_colour
@pytest.mark.parametrize(("fields", "name", "kind"), FAILURES.values(), ids=FAILURES.keys())
def test_failed_turns(way: Way, fields: Any, name: str | None, kind: type[ProviderError], programs: Programs) -> None:
    synthetic = {"id": "e", "model": "<synthetic>", "content": [{"type": "text", "text": "error text"}]}
    steps = [
        *START,
        {"say": {"type": "assistant", "message": synthetic, "error": name}},
        {"say": {"type": "result", "subtype": "success", "is_error": True, **fields}},
    ]
    outcome = way(programs.playing(steps))
    assert type(outcome.error) is kind
    assert outcome.error.partial is None  # the program's own message is not a reply
    assert [attempt.outcome for attempt in outcome.error.attempts] == [kind.__name__]
    if kind is AuthenticationError:
        assert "/login" in outcome.error.hint
    if "subtype" in fields:
        assert outcome.error.code == fields["subtype"]


ENDS_OF_IT = {"well": [RESULT, LINGERS], "failed": [FAILS, LINGERS], "hung": [{"sleep": 600}], "dead": [{"exit": 4}]}


@every_colour
@pytest.mark.parametrize("end", ENDS_OF_IT)
def test_children_of_the_program_are_killed(way: Way, end: str, programs: Programs, tmp_path: Path) -> None:
    """The child holds the program's pipes open."""
    note = tmp_path / "grandchild"
    message = [BEGINS] if end == "dead" else MESSAGE
    steps = [*START, {"spawn": str(note)}, *message, *ENDS_OF_IT[end]]
    outcome = way(programs.playing(steps), timeouts=CALM if end == "dead" else QUICK)
    assert end != "dead" or isinstance(outcome.error, ConnectionFailedError)
    pid = int(note.read_text())
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


def test_a_stream_that_starts_again(programs: Programs) -> None:
    """Half an answer followed by another one is an error only for a caller who has seen the first half."""
    again = [BEGINS, OPENS_TEXT, SPEAKS, {"sleep": 0.1}, *MESSAGE, RESULT]
    assert WAYS["plain-whole"](programs.playing([*START, *again])).reply.message.text == "Hi."
    outcome = WAYS["plain-stream"](programs.playing([*START, *again]))
    assert isinstance(outcome.error, ConnectionFailedError)
    assert outcome.error.partial.text == "Hi."
