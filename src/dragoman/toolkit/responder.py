"""Responders: the person on the other side, who sees updates and answers questions; and the tools that use them.

A method of a responder may be sync or async. A tool returns an awaitable as it is, and the executor awaits it on the
caller's event loop, or on its own if there is none. So one responder serves sync and async programs.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from dragoman._printable import escape_controls, to_line
from dragoman.conversation import ToolCall
from dragoman.errors import ToolError
from dragoman.tools import AnyTool, discard, tool

from .base import Given
from .permissions.rules import Rule

_REFUSED: Final = "the user refused"
_MAX_TRIES: Final = 5
"""How often a question is repeated."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """A call that a person is asked about."""

    call: ToolCall
    reason: str = ""
    """Why a person must be asked."""
    rules: tuple[Rule, ...] = ()
    """The rules that can be remembered for the rest of the session: first one for exactly this call, then wider ones.
    Their `text` describes them."""
    about: str = ""
    """The first line of the tool's description."""
    title: str = ""
    """Replaces "NAME wants to run" at the beginning of the question."""


class PermissionAnswer(Struct, frozen=True, kw_only=True):
    """The person's answer."""

    allowed: bool
    reason: str = ""
    """Why not, for the model to read."""
    remember: Rule | None = None
    """The rule to apply for the rest of the session, usually one of `request.rules`. Its action becomes that of the
    answer, and it applies only until the tool changes."""


_Done: TypeAlias = Awaitable[None] | None
_Answer: TypeAlias = Awaitable[PermissionAnswer | None] | PermissionAnswer | None


class Responder(Protocol):
    """The connection to a person. Each method may be sync or async."""

    def ask_permission(self, request: PermissionRequest, /) -> _Answer:
        """Ask whether a call may run. None if nobody can answer now; the call then stays pending."""

    def reaction(self, emoji: str, /) -> _Done:
        """React to the person's last message."""

    def update(self, text: str, /) -> _Done:
        """Show progress before the work is done."""


class NullResponder(Responder):
    """Shows nothing, and leaves every question open."""


class CallbackResponder(NullResponder):
    """Calls functions, sync or async. Without a function, nothing is shown or answered."""

    def __init__(
        self,
        *,
        reaction: Callable[[str], _Done] | None = None,
        update: Callable[[str], _Done] | None = None,
        ask_permission: Callable[[PermissionRequest], _Answer] | None = None,
    ) -> None:
        self.reaction = reaction or self.reaction
        self.update = update or self.update
        self.ask_permission = ask_permission or self.ask_permission


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # also into a pipe


class ConsoleResponder:
    """Writes to a terminal and asks there, one question at a time."""

    def __init__(self, *, show: Callable[[str], object] = _print, ask: Callable[[str], str] = input) -> None:
        self._show: Callable[[str], object] = show
        self._ask: Callable[[str], str] = ask
        self._lock: threading.Lock = threading.Lock()

    # Not while a question is open: a model's text could pass for another question.

    def reaction(self, emoji: str, /) -> None:
        with self._lock:
            self._show(f"[{escape_controls(emoji)}]")

    def update(self, text: str, /) -> None:
        with self._lock:
            self._show(f"> {escape_controls(text)}")

    def ask_permission(self, request: PermissionRequest, /) -> PermissionAnswer | None:
        """Ask on the terminal. None without a valid answer (Ctrl-D, end of a pipe, too many tries)."""
        exactly, *wider = request.rules or (None,)
        numbered = {str(number): rule for number, rule in enumerate(wider, start=1)}
        choices = "".join(f", [{number}]" for number in numbered)
        with self._lock:
            self._show_call(request)
            for number, rule in numbered.items():
                self._show(f"  [{number}] from now on: {to_line(rule.text)}")
            for _ in range(_MAX_TRIES):
                try:
                    answer = self._ask(f"[y]es, [n]o, [a]lways exactly this{choices}? ").strip()
                except (EOFError, OSError):
                    return None
                word, _, reason = answer.partition(" ")
                match word.lower():
                    case "n" | "no":
                        return PermissionAnswer(allowed=False, reason=reason.strip() or _REFUSED)
                    case "never":
                        return PermissionAnswer(allowed=False, reason=reason.strip() or _REFUSED, remember=exactly)
                    case "y" | "yes" if not reason:  # "yes, but …" is not a yes
                        return PermissionAnswer(allowed=True)
                    case "a" | "always" if not reason:
                        return self._allow(exactly)
                    case number if answer in numbered:
                        return self._allow(numbered[number])
                    case _:
                        self._show(f"Answer y, n, never, a{choices and ' or a number'}; behind n, say why if you like.")
            return None

    def _show_call(self, request: PermissionRequest) -> None:
        why = f" ({to_line(request.reason)})" if request.reason else ""
        self._show(f"{to_line(request.title or f'{request.call.name} wants to run')}{why}:")
        if request.about:
            self._show(f"  {to_line(request.about)}")
        try:
            arguments = json.dumps(request.call.parsed, indent=2, ensure_ascii=False)
        except ToolError:
            arguments = request.call.arguments
        # All of it, however long: a person can agree only to what was shown.
        self._show("  " + escape_controls(arguments).replace("\n", "\n  "))

    def _allow(self, rule: Rule | None) -> PermissionAnswer:
        if rule is not None:
            self._show(f"Until the end of this session: {to_line(rule.text)}")
        return PermissionAnswer(allowed=True, remember=rule)


# --- tools -----------------------------------------------------------------------------------------------------------


def responder_tools(responder: Responder) -> list[AnyTool]:
    @tool(name="react_emoji", idempotent=True, speaks=True)
    def react_emoji(*, emoji: Given) -> str | Awaitable[str]:
        """React to the user's last message with an emoji.

        Args:
            emoji: The emoji, or its name as the chat system knows it.
        """
        return _reply(responder.reaction(emoji), "reaction added")

    @tool(name="send_update", retries=0, speaks=True)
    def send_update(*, message: Given) -> str | Awaitable[str]:
        """Tell the user how the work is going before it is done.

        Args:
            message: What to say; one or two sentences.
        """
        return _reply(responder.update(message), "update sent")

    return [react_emoji, send_update]


def _reply(done: _Done, text: str) -> str | Awaitable[str]:
    return text if done is None else _Reply(done, text)


class _Reply(Struct, eq=False):
    """The reply of an async responder; the executor awaits it, or closes it if the call was cancelled."""

    done: Awaitable[None]
    text: str

    def __await__(self) -> Generator[Any, Any, str]:
        yield from self.done.__await__()
        return self.text

    def close(self) -> None:
        discard(self.done)
