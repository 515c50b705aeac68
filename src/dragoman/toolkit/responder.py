"""Who is on the other side: whatever shows a person what happens, and asks back.

Owns: Responder, and the ready ones: on the console, into callbacks, nowhere.
Must not know: tools, and what decides when a person is asked.

A method may be plain or async: it returns what it has to say, or an awaitable of it. Whoever calls one awaits the
latter in the colour of the run; a tool simply returns it, and the executor awaits it on the caller's event loop, or on
its own where there is none. So one responder serves both colours.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, TextIO, TypeAlias

from msgspec import Struct

from dragoman.conversation import ToolCall

__all__ = [
    "CallbackResponder",
    "ConsoleResponder",
    "NullResponder",
    "PermissionAnswer",
    "PermissionRequest",
    "Remember",
    "Responder",
]

Remember: TypeAlias = Literal["no", "session"]
"""How long an answer holds: for this one call, or until the end of the session for calls like it."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """A call that a person is asked about."""

    call: ToolCall
    reason: str = ""
    """Why somebody must be asked."""


class PermissionAnswer(Struct, frozen=True, kw_only=True):
    """What the person said."""

    allowed: bool
    reason: str = ""
    """Why not, for the model to read."""
    remember: Remember = "no"


class Responder(Protocol):
    """The way to a person. Each method may be plain or async."""

    def typing(self) -> Awaitable[None] | None:
        """Show that an answer is being worked on."""
        ...

    def post(self, text: str) -> Awaitable[None] | None:
        """Show a message of the model."""
        ...

    def reaction(self, emoji: str) -> Awaitable[None] | None:
        """React to the person's last message."""
        ...

    def update(self, text: str) -> Awaitable[None] | None:
        """Show how the work goes on, before it is done."""
        ...

    def ask_permission(
        self, request: PermissionRequest
    ) -> Awaitable[PermissionAnswer | None] | PermissionAnswer | None:
        """Ask whether a call may run. None: nobody can answer now, and the call waits."""
        ...


class NullResponder:
    """Shows nothing, and leaves every question open."""

    def typing(self) -> None:
        pass

    def post(self, text: str) -> None:
        pass

    def reaction(self, emoji: str) -> None:
        pass

    def update(self, text: str) -> None:
        pass

    def ask_permission(self, request: PermissionRequest) -> PermissionAnswer | None:
        return None


class CallbackResponder:
    """Hands everything to functions, plain or async. What has no function is not shown, or not answered."""

    def __init__(
        self,
        *,
        typing: Callable[[], Awaitable[None] | None] | None = None,
        post: Callable[[str], Awaitable[None] | None] | None = None,
        reaction: Callable[[str], Awaitable[None] | None] | None = None,
        update: Callable[[str], Awaitable[None] | None] | None = None,
        ask_permission: Callable[[PermissionRequest], Awaitable[PermissionAnswer | None] | PermissionAnswer | None]
        | None = None,
    ) -> None:
        self._typing = typing
        self._post = post
        self._reaction = reaction
        self._update = update
        self._ask_permission = ask_permission

    def typing(self) -> Awaitable[None] | None:
        return None if self._typing is None else self._typing()

    def post(self, text: str) -> Awaitable[None] | None:
        return None if self._post is None else self._post(text)

    def reaction(self, emoji: str) -> Awaitable[None] | None:
        return None if self._reaction is None else self._reaction(emoji)

    def update(self, text: str) -> Awaitable[None] | None:
        return None if self._update is None else self._update(text)

    def ask_permission(
        self, request: PermissionRequest
    ) -> Awaitable[PermissionAnswer | None] | PermissionAnswer | None:
        return None if self._ask_permission is None else self._ask_permission(request)


_ANSWERS: Final[dict[str, PermissionAnswer]] = {
    "y": PermissionAnswer(allowed=True),
    "yes": PermissionAnswer(allowed=True),
    "a": PermissionAnswer(allowed=True, remember="session"),
    "always": PermissionAnswer(allowed=True, remember="session"),
    "n": PermissionAnswer(allowed=False, reason="the user refused"),
    "no": PermissionAnswer(allowed=False, reason="the user refused"),
    "never": PermissionAnswer(allowed=False, reason="the user refused", remember="session"),
}
_TRIES: Final = 3
_KEPT: Final = "\n\t\u200d"
"""Not printable, and harmless: the last one joins emoji."""


class ConsoleResponder:
    """Writes to a terminal and asks there. One question at a time, also if several calls ask at once."""

    def __init__(self, *, out: TextIO | None = None, ask: Callable[[str], str] | None = None) -> None:
        self._out: TextIO | None = out
        self._ask: Callable[[str], str] = input if ask is None else ask
        self._lock: threading.Lock = threading.Lock()

    def typing(self) -> None:
        self._write("…")

    def post(self, text: str) -> None:
        self._write(text)

    def reaction(self, emoji: str) -> None:
        self._write(f"[{emoji}]")

    def update(self, text: str) -> None:
        self._write(f"> {text}")

    def ask_permission(self, request: PermissionRequest) -> PermissionAnswer | None:
        """Ask on the terminal; no answer, or none that can be understood, leaves the question open."""
        # All of it, however long: nobody can agree to what was not shown.
        arguments = _harmless(request.call.arguments).replace("\n", "\n  ")
        why = f" ({_one_line(request.reason)})" if request.reason else ""
        with self._lock:
            self._print(f"{_one_line(request.call.name)} wants to run{why}:\n  {arguments}")
            for _ in range(_TRIES):
                try:
                    said = self._ask("Allow? [y]es, [n]o, [a]lways, never: ")
                except (EOFError, OSError):  # nobody is there
                    return None
                if answer := _ANSWERS.get(said.strip().lower()):
                    return answer
        return None

    def _write(self, text: str) -> None:
        with self._lock:
            self._print(_harmless(text))

    def _print(self, text: str) -> None:
        out = sys.stdout if self._out is None else self._out
        out.write(f"{text}\n")
        out.flush()


def _harmless(text: str) -> str:
    """The text without what a terminal takes for a command, or what turns around the order of its letters."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() or each in _KEPT else f"\\u{ord(each):04x}" for each in text])


def _one_line(text: str) -> str:
    return " ".join(_harmless(text).split())
