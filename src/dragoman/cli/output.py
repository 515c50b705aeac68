"""What is printed: a turn as text or as JSON, lists in columns or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.chat import ChatClient
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

from .terminal import Terminal, shorten, to_line


class View:
    """Shows a turn while it happens. This one shows nothing."""

    def wait(self) -> None:
        """The model has been asked, and nothing has been heard yet."""

    def show(self, event: Event) -> None:
        """Something has happened."""

    def pause(self) -> None:
        """Nothing happens until somebody else has used the terminal, or the turn is over."""

    def end(self) -> None:
        """The answer is complete, or broken off."""


class JsonLinesView(View):
    """Each event as JSON, one a line."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal: Terminal = terminal

    def show(self, event: Event) -> None:
        self._terminal.line(msgspec.json.encode(event).decode())


class TextView(View):
    """The answer to standard output as it comes; thoughts and tools to standard error."""

    def __init__(self, terminal: Terminal, waiting: str = "waiting") -> None:
        self._terminal: Terminal = terminal
        self._waiting: str = waiting
        self._last: str = "\n"
        self._thinking: bool = False

    def wait(self) -> None:
        self._terminal.show_status(f"{self._waiting} …")

    def pause(self) -> None:
        if self._thinking:
            self._thinking = False
            self._terminal.write_error("\n")

    def end(self) -> None:
        self.pause()
        self._end_line()

    def show(self, event: Event) -> None:
        match event:
            case TextStarted():  # texts of several steps do not run into each other
                self._end_line()
            case TextDelta():
                self.pause()
                self._answer(event.text)
            case ThinkingDelta():
                self._think(event.text)
            case ThinkingEnded():
                self.pause()
            case ToolStarted():
                self.pause()
                called = f"{event.call.name} {event.call.arguments}"
                self._terminal.note(f"→ {shorten(called, self._terminal.width - 4)}")
            case ToolFinished():
                style = "yellow" if event.result.is_error else "dim"
                self._terminal.note(format_result(event.result, self._terminal.width), style)
            case _:
                pass

    def _answer(self, text: str) -> None:
        if text:
            self._terminal.answer(text)
            self._last = text[-1]

    def _end_line(self) -> None:
        if self._last != "\n":
            self._answer("\n")

    def _think(self, text: str) -> None:
        if self._terminal.quiet or not text:
            return
        head = "" if self._thinking else "thinking: "
        self._thinking = True
        self._terminal.write_error(head + text, "dim")


def format_result(result: ToolResult, width: int) -> str:
    """What came of a call, on one line."""
    took = f" {result.duration:.1f} s" if result.duration is not None else ""
    head = f"← {to_line(result.name)}{took}{' failed' if result.is_error else ''}: "
    return head + shorten(result.text or "…", max(20, width - len(head) - 1))


# --- the sum of a turn ------------------------------------------------------------------------------------------------


def sum_up(client: ChatClient, since: int, **further: object) -> dict[str, object]:
    """A turn as one JSON object. `since` is how many messages there were before."""
    new = client.history[since:]
    last = next((message for message in reversed(new) if message.role == "assistant"), None)
    results = {result.call_id: result for message in new for result in message.tool_results}
    calls = [_sum_up_call(call, results.get(call.id)) for message in new for call in message.tool_calls]
    return {
        "text": last.text if last is not None else "",
        "model": client.model,
        "conversation": client.id if client.history else None,
        "stop_reason": last.stop_reason.value if last is not None and last.stop_reason is not None else None,
        "usage": msgspec.to_builtins(_add_usage(new)),
        "tool_calls": calls,
        **further,
    }


def _sum_up_call(call: ToolCall, result: ToolResult | None) -> dict[str, object]:
    try:
        arguments: object = call.parsed
    except ToolError:
        arguments = call.arguments
    found: dict[str, object] = {"id": call.id, "name": call.name, "arguments": arguments}
    if result is not None:
        found |= {"result": result.text, "is_error": result.is_error, "seconds": result.duration}
    return found


def _add_usage(messages: tuple[Message, ...]) -> Usage:
    spent = [message.usage or Usage() for message in messages if message.role == "assistant"]
    return sum(spent, Usage(input=0, output=0))


def format_usage(messages: tuple[Message, ...]) -> str:
    """How many tokens some messages took."""
    usage = _add_usage(messages)
    counts = {"in": usage.input, "cached": usage.cache_read, "out": usage.output, "thinking": usage.reasoning}
    known = [f"{count:,} {name}" for name, count in counts.items() if count]
    return f"tokens: {', '.join(known) or 'not reported'}{' (at least)' if usage.partial and known else ''}"


# --- lists -----------------------------------------------------------------------------------------------


def print_rows(terminal: Terminal, names: Sequence[str], rows: Iterable[Sequence[str]], *, as_json: bool) -> None:
    """A list, as a table or as JSON, of which these are the heads and the members' names."""
    if as_json:
        print_json(terminal, [dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(terminal, names, rows)


def print_table(terminal: Terminal, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows in columns under a head; the last column is as wide as it likes, or as the terminal is."""
    cells = [list(head), *([to_line(cell) for cell in row] for row in rows)]
    wide = [max(len(row[index]) for row in cells) for index in range(len(head) - 1)]
    for row in cells:
        line = "  ".join([f"{cell:<{width}}" for cell, width in zip(row, wide, strict=False)] + [row[-1]]).rstrip()
        most = terminal.width
        terminal.line(line if not terminal.out_is_tty or len(line) <= most else line[: most - 1] + "…")


def print_json(terminal: Terminal, value: object) -> None:
    """A value as JSON, with line ends for people."""
    terminal.line(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
