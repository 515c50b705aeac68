"""What is printed: turns as text or JSON, lists as tables or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from dragoman.chat import ChatClient
from dragoman.conversation import (
    BlockReceived,
    Event,
    HandedOver,
    Message,
    Opaque,
    ServerToolUse,
    TextDelta,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ToolCall,
    ToolFinished,
    ToolProgress,
    ToolResult,
    ToolStarted,
    Usage,
)
from dragoman.engines import FallbackEngine
from dragoman.errors import ToolError
from dragoman.providers import conversation_cost, known_cost

from .terminal import Terminal, shorten, to_line

T = TypeVar("T")


class View:
    """Shows a turn while it happens. This one shows nothing."""

    def wait(self) -> None:
        """The model has been asked, and nothing has arrived yet."""

    def show(self, event: Event) -> None:
        """Show an event."""

    def pause(self) -> None:
        """Make room: somebody else uses the terminal, or the turn is over."""

    def end(self, sources: Sequence[str] = ()) -> None:
        """The answer is complete, or broken off; show the sources that it cites."""


class JsonLinesView(View):
    """Each event as a line of JSON."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal: Terminal = terminal

    def show(self, event: Event) -> None:
        self._terminal.line(msgspec.json.encode(event).decode())


class TextView(View):
    """The answer to standard output as it arrives; thoughts and tools to standard error."""

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

    def end(self, sources: Sequence[str] = ()) -> None:
        self.pause()
        self._end_line()
        for line in sources:
            self._terminal.note(line)

    def show(self, event: Event) -> None:
        match event:
            case TextStarted():  # the texts of several steps do not run into each other
                self._end_line()
            case TextDelta():
                self.pause()
                self._terminal.answer(event.text)
                self._last = event.text[-1:] or self._last
            case ThinkingDelta() if event.text and not self._terminal.quiet:
                self._terminal.write_error(("" if self._thinking else "thinking: ") + event.text, "dim")
                self._thinking = True
            case ThinkingEnded():
                self.pause()
            case _:
                line, is_error = format_event(event, self._terminal.width)
                if line:
                    self.pause()
                    self._terminal.note(line, "yellow" if is_error else "dim")

    def _end_line(self) -> None:
        if self._last != "\n":
            self._terminal.answer("\n")
            self._last = "\n"


def format_event(event: Event, width: int) -> tuple[str, bool]:
    """What a tool or an agent does, on one line, and whether it failed; an empty line for events not worth one."""
    match event:
        case ToolStarted():
            return f"→ {shorten(format_call(event.call), width - 4)}", False
        case ToolFinished():
            return format_result(event.result, width), event.result.is_error
        case HandedOver():
            return shorten(f"{event.agent} is in charge now ({event.model})", width), False
        case ToolProgress():
            return _format_progress(event, width), False
        case BlockReceived(block=Opaque(used=ServerToolUse() as used)):
            arrow = "←" if used.phase == "result" else "→"
            return f"{arrow} at the provider: {shorten(to_line(str(used)), max(20, width - 22))}", used.is_error
        case _:
            return "", False


def format_call(call: ToolCall) -> str:
    return f"{call.name} {call.arguments}"


def format_result(result: ToolResult, width: int) -> str:
    took = f" {result.duration:.1f} s" if result.duration is not None else ""
    head = f"← {to_line(result.name)}{took}{' failed' if result.is_error else ''}: "
    return head + shorten(result.text or "…", max(20, width - len(head) - 1))


def _format_progress(event: ToolProgress, width: int) -> str:
    """What a tool reports, or what an agent behind it does."""
    names, said = [event.name], event.said
    while isinstance(said, ToolProgress):
        names.append(said.name)
        said = said.said
    if isinstance(said, ToolStarted):
        said = f"→ {format_call(said.call)}"
    elif isinstance(said, HandedOver):
        said = f"{said.agent} is in charge now"
    return shorten(f"  {' > '.join(names)}: {said}", width) if isinstance(said, str) else ""


# --- a whole turn -----------------------------------------------------------------------------------------------------


def sum_up(client: ChatClient, since: int, **further: object) -> dict[str, object]:
    """A turn as one JSON object; it starts after `since` messages."""
    new = client.history[since:]
    last = next((message for message in reversed(new) if message.role == "assistant"), None)
    results = {result.call_id: result for message in new for result in message.tool_results}
    calls = [_sum_up_call(call, results.get(call.id)) for message in new for call in message.tool_calls]
    is_chain = isinstance(client.engine, FallbackEngine)
    cited = {"citations": msgspec.to_builtins(last.citations)} if last is not None and last.citations else {}
    return {
        "text": last.text if last is not None else "",
        **cited,
        "model": f"{last.provider}:{last.model}" if is_chain and last is not None else client.model,
        "conversation": client.id if client.history else None,
        "stop_reason": last.stop_reason.value if last is not None and last.stop_reason is not None else None,
        "usage": msgspec.to_builtins(_add_usage(new)),
        "cost": conversation_cost(new),
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
    behind_tools = [result.usage for each in messages for result in each.tool_results if result.usage is not None]
    return Usage.total_of([*[each.usage for each in messages if each.role == "assistant"], *behind_tools])


def format_usage(messages: tuple[Message, ...]) -> str:
    usage = _add_usage(messages)
    counts = {"in": usage.input, "cached": usage.cache_read, "out": usage.output, "thinking": usage.reasoning}
    known = [f"{count:,} {name}" for name, count in counts.items() if count]
    tokens = f"tokens: {', '.join(known) or 'not reported'}{' (at least)' if usage.partial and known else ''}"
    cost, known = conversation_cost(messages), known_cost(messages)
    return f"{tokens}; cost: {f'at least {format_cost(known)}' if cost is None and known else format_cost(cost)}"


def format_cost(cost: float | None) -> str:
    if cost is None:
        return "unknown"
    return f"${cost:,.2f}" if cost >= 1 else "$0" if not cost else f"${cost:.4f}" if cost >= 0.001 else f"${cost:.6f}"


# --- lists ------------------------------------------------------------------------------------------------------------


def print_list(
    terminal: Terminal,
    items: Sequence[T],
    show: Callable[[T], Mapping[str, object]],
    *,
    as_json: bool,
    otherwise: str = "There are none.",
) -> None:
    """Print items as JSON, or as a table of what `show` returns for each; without items, print `otherwise`.

    On a terminal, lines are cut at its width.
    """
    if as_json:
        print_json(terminal, items)
        return
    if not items:
        terminal.say(otherwise)
        return
    shown = [show(item) for item in items]
    rows = [list(shown[0]), *([to_line(str(cell)) for cell in row.values()] for row in shown)]
    widths = [*[max(map(len, column)) for column in zip(*rows, strict=True)][:-1], 0]
    for row in rows:
        line = "  ".join([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]).rstrip()
        is_cut = terminal.out_is_tty and len(line) > terminal.width
        terminal.line(line[: terminal.width - 1] + "…" if is_cut else line)


def print_json(terminal: Terminal, value: object) -> None:
    encoded = msgspec.json.encode(value, enc_hook=str)
    terminal.line(msgspec.json.format(encoded, indent=2).decode())
