"""Who is on the other side: whatever shows a person what happens, and asks back; and the tools that speak to them.

A method of a responder may be plain or async: it returns what it has to say, or an awaitable of it. Whoever calls one
awaits the latter in the colour of the run; a tool simply returns it, and the executor awaits it on the caller's event
loop, or on its own where there is none. So one responder serves both colours.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Protocol, TextIO, TypeAlias

from msgspec import Struct

from dragoman.conversation import ToolCall
from dragoman.tools import AnyTool, discard, tool

from .base import Given
from .permissions.rules import Rule


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """A call that a person is asked about."""

    call: ToolCall
    reason: str = ""
    """Why somebody must be asked."""
    rules: tuple[Rule, ...] = ()
    """What could be remembered for the rest of the session: first a rule for exactly this call, then wider ones. The
    `text` of each says what it means."""


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


_REFUSED: Final = "the user refused"
_TRIES: Final = 3
_KEPT: Final = "\n\t\u200d"
"""Not printable, and harmless: the last one joins emoji."""


class ConsoleResponder:
    """Writes to a terminal and asks there. One question at a time, also if several calls ask at once."""

    def __init__(self, *, out: TextIO | None = None, ask: Callable[[str], str] | None = None) -> None:
        self._out: TextIO | None = out
        self._ask: Callable[[str], str] = input if ask is None else ask
        self._lock: threading.RLock = threading.RLock()

    def reaction(self, emoji: str, /) -> None:
        self._print(f"[{_harmless(emoji)}]")

    def update(self, text: str, /) -> None:
        self._print(f"> {_harmless(text)}")

    def ask_permission(self, request: PermissionRequest, /) -> PermissionAnswer | None:
        """Ask on the terminal; no answer, or none that can be understood, leaves the question open."""
        # All of it, however long: nobody can agree to what was not shown.
        arguments = _harmless(request.call.arguments).replace("\n", "\n  ")
        why = f" ({_one_line(request.reason)})" if request.reason else ""
        exactly, *wider = request.rules or (None,)
        answers: dict[str, PermissionAnswer] = {
            "y": PermissionAnswer(allowed=True),
            "n": PermissionAnswer(allowed=False, reason=_REFUSED),
            "a": PermissionAnswer(allowed=True, remember=exactly),
            "never": PermissionAnswer(allowed=False, reason=_REFUSED, remember=exactly),
        }
        question = "Allow? [y]es, [n]o; for exactly this call [a]lways, never"
        for number, rule in enumerate(wider, start=1):
            answers[str(number)] = PermissionAnswer(allowed=True, remember=rule)
            question += f"; [{number}] from now on {_one_line(rule.text)}"  # nobody can agree to what was not shown
        with self._lock:
            self._print(f"{_one_line(request.call.name)} wants to run{why}:\n  {arguments}")
            for _ in range(_TRIES):
                try:
                    said = self._ask(f"{question}: ").strip().lower()
                except (EOFError, OSError):  # nobody is there
                    return None
                if answer := answers.get({"yes": "y", "no": "n", "always": "a"}.get(said, said)):
                    return answer
        return None

    def _print(self, text: str) -> None:
        out = sys.stdout if self._out is None else self._out
        with self._lock:
            out.write(f"{text}\n")
            out.flush()


def _harmless(text: str) -> str:
    """The text without what a terminal takes for a command, or what turns around the order of its letters."""
    return "".join([each if each.isprintable() or each in _KEPT else f"\\u{ord(each):04x}" for each in text])


def _one_line(text: str) -> str:
    return " ".join(_harmless(text).split())


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
        """Tell the user how the work goes on, while it is not done yet.

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
