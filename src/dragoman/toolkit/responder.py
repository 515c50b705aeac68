"""Who is on the other side: whatever shows a person what happens, and asks back; and the tools that speak to them.

A method of a responder may be plain or async: it returns what it has to say, or an awaitable of it. Whoever calls one
awaits the latter in the colour of the run; a tool simply returns it, and the executor awaits it on the caller's event
loop, or on its own where there is none. So one responder serves both colours.
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
_MOST_TRIES: Final = 5
"""How often somebody is asked again who does not answer the question."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """A call that a person is asked about."""

    call: ToolCall
    reason: str = ""
    """Why somebody must be asked."""
    rules: tuple[Rule, ...] = ()
    """What could be remembered for the rest of the session: first a rule for exactly this call, then wider ones. The
    `text` of each says what it means."""
    about: str = ""
    """What the tool says it does, in a line."""
    title: str = ""
    """How the question begins where "NAME wants to run" would not say enough."""


class PermissionAnswer(Struct, frozen=True, kw_only=True):
    """What the person said."""

    allowed: bool
    reason: str = ""
    """Why not, for the model to read."""
    remember: Rule | None = None
    """The rule to go by for the rest of the session, mostly one of `request.rules`; its action becomes that of the
    answer, and it holds only until the tool changes."""


_Done: TypeAlias = Awaitable[None] | None
_Answer: TypeAlias = Awaitable[PermissionAnswer | None] | PermissionAnswer | None


class AsksPermission(Protocol):
    """Somebody who can be asked about a call; plain or async."""

    def ask_permission(self, request: PermissionRequest, /) -> _Answer:
        """Ask whether a call may run. None: nobody can answer now, and the call waits."""


class Responder(AsksPermission, Protocol):
    """The way to a person. Each method may be plain or async."""

    def reaction(self, emoji: str, /) -> _Done:
        """React to the person's last message."""

    def update(self, text: str, /) -> _Done:
        """Show how the work goes on, before it is done."""


class NullResponder(Responder):
    """Shows nothing, and leaves every question open."""


class CallbackResponder(NullResponder):
    """Hands everything to functions, plain or async. What has no function is not shown, or not answered."""

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
    sys.stdout.flush()  # also into a pipe: it is said before the work is done


class ConsoleResponder:
    """Writes to a terminal and asks there. One question at a time, also if several calls ask at once."""

    def __init__(self, *, show: Callable[[str], object] = _print, ask: Callable[[str], str] = input) -> None:
        self._show: Callable[[str], object] = show
        self._ask: Callable[[str], str] = ask
        self._lock: threading.Lock = threading.Lock()

    # Not while a question waits for its answer: a model's text could pass for another question.

    def reaction(self, emoji: str, /) -> None:
        with self._lock:
            self._show(f"[{escape_controls(emoji)}]")

    def update(self, text: str, /) -> None:
        with self._lock:
            self._show(f"> {escape_controls(text)}")

    def ask_permission(self, request: PermissionRequest, /) -> PermissionAnswer | None:
        """Ask on the terminal. Where nobody answers (Ctrl-D, the end of a pipe, no sense) the question stays open."""
        exactly, *wider = request.rules or (None,)
        numbered = {str(number): rule for number, rule in enumerate(wider, start=1)}
        choices = "".join(f", [{number}]" for number in numbered)
        with self._lock:
            self._show_call(request)
            for number, rule in numbered.items():
                self._show(f"  [{number}] from now on: {to_line(rule.text)}")
            for _ in range(_MOST_TRIES):
                try:
                    said = self._ask(f"[y]es, [n]o, [a]lways exactly this{choices}? ").strip()
                except (EOFError, OSError):
                    return None
                word, _, reason = said.partition(" ")
                match word.lower():
                    case "n" | "no":
                        return PermissionAnswer(allowed=False, reason=reason.strip() or _REFUSED)
                    case "never":
                        return PermissionAnswer(allowed=False, reason=reason.strip() or _REFUSED, remember=exactly)
                    case "y" | "yes" if not reason:  # "yes, but …" is no consent
                        return PermissionAnswer(allowed=True)
                    case "a" | "always" if not reason:
                        return self._allow(exactly)
                    case number if said in numbered:
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
        # All of it, however long: nobody can agree to what was not shown.
        self._show("  " + escape_controls(arguments).replace("\n", "\n  "))

    def _allow(self, rule: Rule | None) -> PermissionAnswer:
        if rule is not None:
            self._show(f"Until the end of this session: {to_line(rule.text)}")
        return PermissionAnswer(allowed=True, remember=rule)


# --- tools -----------------------------------------------------------------------------------------------------------


def responder_tools(responder: Responder) -> list[AnyTool]:
    # A reaction that is already there stays as it is.
    @tool(name="react_emoji", idempotent=True)
    def react_emoji(*, emoji: Given) -> str | Awaitable[str]:
        """React to the user's last message with an emoji.

        Args:
            emoji: The emoji, or its name as the chat system knows it.
        """
        return _say(responder.reaction(emoji), "reaction added")

    @tool(name="send_update", retries=0)
    def send_update(*, message: Given) -> str | Awaitable[str]:
        """Tell the user how the work is going before it is done.

        Args:
            message: What to say; one or two sentences.
        """
        return _say(responder.update(message), "update sent")

    return [react_emoji, send_update]


def _say(said: _Done, reply: str) -> str | Awaitable[str]:
    return reply if said is None else _Saying(said, reply)


class _Saying(Struct, eq=False):
    """An async responder at work; the executor awaits it, or closes it where nobody waits any more."""

    said: Awaitable[None]
    reply: str

    def __await__(self) -> Generator[Any, Any, str]:
        yield from self.said.__await__()
        return self.reply

    def close(self) -> None:
        discard(self.said)

    def __del__(self) -> None:
        self.close()
