"""What a model says, as bytes of each dialect, for servers that decide on every byte that they send."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from dragoman.conversation import ToolCall, Usage
from dragoman.simulator import Reply, Request
from dragoman.simulator.anthropic import ANTHROPIC
from dragoman.simulator.dialect import Answer, Dialect, Frame, Refusal
from dragoman.simulator.gemini import GEMINI
from dragoman.simulator.openai_chat import OPENAI_CHAT
from dragoman.simulator.openai_responses import OPENAI_RESPONSES


class Say(NamedTuple):
    """One reply: a text, and perhaps a call of the tool `note`."""

    text: str
    word: str | None = None
    """What the tool is to note; None: no call."""
    pieces: int = 1
    """In how many the text is streamed."""

    @property
    def answer(self) -> Answer:
        call = [ToolCall(f"call_{self.word}", "note", json.dumps({"word": self.word}))] if self.word else []
        delta = -(-len(self.text) // self.pieces)
        reply = Reply(self.text, *call, usage=Usage(input=1, output=1), delta=delta)
        return Answer(reply, Request(model="m"))


class Speaker(NamedTuple):
    """How one service writes."""

    model: str
    """A model that speaks its dialect, by the name that an engine takes."""
    base: str
    """What the base URL has behind the host."""
    path: str
    """What the path of its requests contains."""
    dialect: Dialect

    def body(self, say: Say) -> bytes:
        return msgspec.json.encode(self.dialect.whole(say.answer))

    def stream(self, say: Say) -> list[bytes]:
        """The events, one by one."""
        return [_event(frame) for frame in self.dialect.frames(say.answer)]

    def refusal(self, status: int, message: str) -> bytes:
        return msgspec.json.encode(self.dialect.failure(Refusal(status, message), "req_1"))


def _event(frame: Frame) -> bytes:
    return (b"event: %s\n" % frame.name.encode() if frame.name else b"") + b"data: %s\n\n" % frame.encoded


DIALECTS = {
    "anthropic": Speaker("anthropic:claude-sonnet-4-5", "", "/messages", ANTHROPIC),
    "openai_chat": Speaker("openai:gpt-4o", "/v1", "/chat/completions", OPENAI_CHAT),
    "openai_responses": Speaker("openai-responses:gpt-4o", "/v1", "/responses", OPENAI_RESPONSES),
    "gemini": Speaker("gemini:gemini-2.5-flash", "", "/models/", GEMINI),
}
