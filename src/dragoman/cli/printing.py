"""A turn as text or as JSON.

Owns: the views of a single question, and the JSON object that sums a turn up.
Must not know: what is asked, and how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from dragoman.chat.client import ChatClient
from dragoman.conversation import (
    Event,
    Message,
    TextDelta,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
    Usage,
)
from dragoman.errors import ToolError

from .failures import described
from .terminal import Terminal, harmless, one_line, shortened

__all__ = ["JsonLinesView", "SilentView", "TextView", "error_object", "sum_up", "tool_line", "usage_line"]

_ENDS_WITHOUT: Final = "…"


class TextView:
    """The answer to standard output as it comes; thoughts and tools to standard error."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal: Terminal = terminal
        self._last: str = "\n"
        self._thinking: bool = False
        self._calls: dict[str, ToolCall] = {}

    def waiting(self) -> None:
        pass

    def still(self) -> None:
        self._end_thought()

    def end(self) -> None:
        """The answer is complete: it ends with a line end."""
        self._end_thought()
        if self._last != "\n":
            self._answer("\n")

    def event(self, event: Event) -> None:
        handler = _SHOW.get(type(event))
        if handler is not None:
            handler(self, event)

    def text(self, text: str) -> None:
        """A piece of the answer."""
        self._end_thought()
        self._answer(text)

    def begin_text(self) -> None:
        """Texts of several steps do not run into each other."""
        if self._last != "\n":
            self._answer("\n")

    def _answer(self, text: str) -> None:
        if text:
            self._terminal.answer(text)
            self._last = text[-1]

    def thought(self, text: str) -> None:
        """A piece of the model's thinking."""
        if self._terminal.quiet or not text:
            return
        if not self._thinking:
            self._thinking = True
            self._terminal.write_error(self._terminal.styled("thinking: ", "dim"))
        self._terminal.write_error(self._terminal.styled(harmless(text), "dim"))

    def _end_thought(self) -> None:
        if self._thinking:
            self._thinking = False
            self._terminal.write_error("\n")

    def started(self, call: ToolCall) -> None:
        """A tool begins to run."""
        self._end_thought()
        self._calls[call.id] = call
        self._terminal.note(f"→ {shortened(f'{call.name} {call.arguments}', self._terminal.width - 4)}")

    def finished(self, result: ToolResult) -> None:
        """A tool is done."""
        self._terminal.note(tool_line(result, self._terminal.width), "yellow" if result.is_error else "dim")


def tool_line(result: ToolResult, width: int) -> str:
    """What came of a call, on one line."""
    took = f" {result.duration:.1f} s" if result.duration is not None else ""
    head = f"← {one_line(result.name)}{took}{' failed' if result.is_error else ''}: "
    return head + shortened(result.text or _ENDS_WITHOUT, max(20, width - len(head) - 1))


_SHOW: Final[Mapping[type[Event], Callable[[TextView, Event], None]]] = {
    TextStarted: lambda view, _: view.begin_text(),
    TextDelta: lambda view, event: view.text(event.text) if isinstance(event, TextDelta) else None,
    ThinkingDelta: lambda view, event: view.thought(event.text) if isinstance(event, ThinkingDelta) else None,
    ThinkingEnded: lambda view, _: view.still(),
    ToolStarted: lambda view, event: view.started(event.call) if isinstance(event, ToolStarted) else None,
    ToolFinished: lambda view, event: view.finished(event.result) if isinstance(event, ToolFinished) else None,
}


class SilentView:
    """Shows nothing: the sum of it all comes at the end."""

    def waiting(self) -> None:
        pass

    def still(self) -> None:
        pass

    def event(self, event: Event) -> None:
        pass


class JsonLinesView:
    """Each event as JSON, one a line."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal: Terminal = terminal

    def waiting(self) -> None:
        pass

    def still(self) -> None:
        pass

    def event(self, event: Event) -> None:
        self._terminal.line(msgspec.json.encode(event).decode())


# --- the sum of a turn ------------------------------------------------------------------------------------------------


def sum_up(client: ChatClient, since: int, **further: object) -> dict[str, object]:
    """A turn as one JSON object. `since` is how many messages there were before."""
    new = client.history[since:]
    last = next((message for message in reversed(new) if message.role == "assistant"), None)
    summary: dict[str, object] = {
        "text": last.text if last is not None else "",
        "model": client.model,
        "conversation": client.id if client.history else None,
        "stop_reason": last.stop_reason.value if last is not None and last.stop_reason is not None else None,
        "usage": msgspec.to_builtins(_usage(new)),
        "tool_calls": _tool_calls(new),
    }
    return {**summary, **further}


def _usage(messages: tuple[Message, ...]) -> Usage:
    total = Usage(input=0, output=0)
    for message in messages:
        if message.role == "assistant":
            total += message.usage or Usage()
    return total


def _tool_calls(messages: tuple[Message, ...]) -> list[dict[str, object]]:
    results = {result.call_id: result for message in messages for result in message.tool_results}
    found: list[dict[str, object]] = []
    for call in [call for message in messages for call in message.tool_calls]:
        result = results.get(call.id)
        one: dict[str, object] = {"id": call.id, "name": call.name, "arguments": _arguments(call)}
        if result is not None:
            one |= {"result": result.text, "is_error": result.is_error, "seconds": result.duration}
        found.append(one)
    return found


def _arguments(call: ToolCall) -> object:
    try:
        return call.parsed
    except ToolError:
        return call.arguments


def error_object(error: BaseException, code: int) -> dict[str, object]:
    """An error, for programs that read JSON."""
    message, hint = described(error)
    return {"type": type(error).__name__, "message": message, "hint": hint, "exit_code": code}


def usage_line(client: ChatClient, since: int) -> str:
    """How many tokens a turn took."""
    usage = _usage(client.history[since:])
    counts = {
        "in": usage.input,
        "cached": usage.cache_read,
        "out": usage.output,
        "thinking": usage.reasoning,
    }
    known = [f"{count:,} {name}" for name, count in counts.items() if count]
    return f"tokens: {', '.join(known) or 'not reported'}{' (at least)' if usage.partial and known else ''}"
