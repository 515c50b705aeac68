"""Programs for tests, what they say, and the four ways of asking them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.engines import AsyncClaudeEngine, ClaudeEngine, ClaudeSettings
from dragoman.simulator import Simulator
from dragoman.tools import tool
from dragoman.transport import Timeouts
from tests.engines.claude_cli.stages import install_stand_in
from tests.engines.talking import ONCE, Outcome, ask_on_loop, ask_plain, split_asked

ASKED = Conversation("Be brief.").plus(Message.user("Hello"))
WEATHER = ToolSpec("weather", "What the weather is like.")
QUICK = Timeouts(read=0.4, total=20.0)
CALM = Timeouts(read=30.0, total=60.0)
Json = dict[str, Any]


# --- what a program says ----------------------------------------------------------------------------------------------


def said(event: Json) -> Json:
    return {"say": {"type": "stream_event", "event": event, "parent_tool_use_id": None}}


def system(**more: Any) -> Json:
    message = {"type": "system", "subtype": "init", "session_id": "s1", "tools": [], "claude_code_version": "2.1.197"}
    return {"say": {**message, **more}}


HEARS_OPENING: Json = {"await": '"initialize"'}
HEARS_USER: Json = {"await": '"type":"user"'}
_GREETING = {"subtype": "success", "request_id": "dragoman-1", "response": {}}
GREETS: Json = {"say": {"type": "control_response", "response": _GREETING}}


def begins(id: str = "m1") -> Json:
    message = {"id": id, "type": "message", "role": "assistant", "model": "m", "content": []}
    return said({"type": "message_start", "message": message})


BEGINS = begins()
OPENS_TEXT = said({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})


def speaks(text: str) -> Json:
    return said({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})


SPEAKS = speaks("Hi.")
CLOSES = said({"type": "content_block_stop", "index": 0})
STOPS = said(
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 3, "output_tokens": 1}}
)
ENDS = said({"type": "message_stop"})
RESULT: Json = {
    "say": {"type": "result", "subtype": "success", "is_error": False, "result": "Hi.", "total_cost_usd": 0.5}
}
FAILS: Json = {"say": {"type": "result", "subtype": "success", "is_error": True, "result": "API Error: 500 oh"}}

START = [HEARS_OPENING, GREETS, HEARS_USER, system()]
MESSAGE = [BEGINS, OPENS_TEXT, SPEAKS, CLOSES, STOPS, ENDS]
REPLY = [*START, *MESSAGE, RESULT]
LINGERS: Json = {"await": "never said"}
"""The program waits for its input to end."""
HANGS = {
    "before a word": [LINGERS],
    "after the greeting": [HEARS_OPENING, GREETS, LINGERS],
    "before the model": [*START, LINGERS],
    "at the start of a message": [*START, BEGINS, LINGERS],
    "in a text": [*START, BEGINS, OPENS_TEXT, SPEAKS, LINGERS],
    "before the result": [*START, *MESSAGE, LINGERS],
    "in half a line": [*START, {"raw": '{"type":"stream_event","ev'}, LINGERS],
}


def opens_call(id: str = "c1", name: str = "mcp__dragoman__weather") -> Json:
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return said({"type": "content_block_start", "index": 0, "content_block": block})


def request(id: str, **request: Any) -> Json:
    return {"say": {"type": "control_request", "request_id": id, "request": request}}


def tool_request(id: str, call: str | None = "c1", name: str = "weather") -> Json:
    parameters: Json = {"name": name, "arguments": {}}
    if call is not None:
        parameters["_meta"] = {"claudecode/toolUseId": call}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": parameters}
    return request(id, subtype="mcp_message", server_name="dragoman", message=message)


# --- programs ---------------------------------------------------------------------------------------------------------


class Programs:
    """Makes settings for programs that play a script, and knows what was said to the last one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = install_stand_in(directory / "bin")
        self.log = directory / "heard"

    def playing(self, steps: Sequence[Json], **more: Any) -> ClaudeSettings:
        """A program that plays these steps."""
        script = self._directory / "script.json"
        script.write_text(json.dumps(list(steps)))
        variables = {"STAND_IN_SCRIPT": str(script), "STAND_IN_LOG": str(self.log)}
        more.setdefault("start_seconds", 20.0)
        return ClaudeSettings(program=str(self._program), environment=variables, **more)

    def acting(self, **more: Any) -> ClaudeSettings:
        """A program that asks the model."""
        return ClaudeSettings(program=str(self._program), **more)

    @property
    def heard(self) -> list[Json]:
        """What the last scripted program was told, as far as it has read."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@tool
def weather(city: str) -> str:
    """What the weather is like."""
    return f"rain in {city}"


def behind(simulator: Simulator, programs: Programs, **more: Any) -> dict[str, Any]:
    """What an engine is given whose program asks the simulator; settings are among `more`."""
    options = {name: more.pop(name) for name in ("strict",) if name in more}
    base_url = simulator.base_url("anthropic")
    return {
        "settings": programs.acting(**more),
        "key": "test-key",
        "base_url": base_url,
        "retry": ONCE,
        "timeouts": CALM,
        **options,
    }


# --- asking -----------------------------------------------------------------------------------------------------------


def _way(make: Any, ask: Callable[..., Outcome], *, stream: bool) -> Callable[..., Outcome]:
    def way(settings: ClaudeSettings, conversation: Conversation = ASKED, **more: Any) -> Outcome:
        asked = split_asked(more)
        return ask(lambda: make("m", settings=settings, **more), conversation, stream=stream, **asked)

    return way


WAYS: dict[str, Callable[..., Outcome]] = {
    "plain-whole": _way(ClaudeEngine, ask_plain, stream=False),
    "plain-stream": _way(ClaudeEngine, ask_plain, stream=True),
    "async-whole": _way(AsyncClaudeEngine, ask_on_loop, stream=False),
    "async-stream": _way(AsyncClaudeEngine, ask_on_loop, stream=True),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
every_colour = pytest.mark.parametrize("way", [WAYS["plain-whole"], WAYS["async-stream"]], ids=["plain", "async"])
"""Where it makes no difference whether the reply is streamed."""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
