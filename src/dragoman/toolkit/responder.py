"""Who is on the other side: whatever shows a person what happens, and asks back; and the tools that speak to them.

A method of a responder may be plain or async: it returns what it has to say, or an awaitable of it. Whoever calls one
awaits the latter in the colour of the run; a tool simply returns it, and the executor awaits it on the caller's event
loop, or on its own where there is none. So one responder serves both colours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from dragoman.conversation import ToolCall
from dragoman.tools import AnyTool, discard

from .base import ready
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


class CallbackResponder(Responder):
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


# --- tools -----------------------------------------------------------------------------------------------------------


def responder_tools(responder: Responder) -> list[AnyTool]:
    """The tools `react_emoji` and `send_update`."""

    # A reaction that is already there stays as it is.
    @ready(name="react_emoji", needs=["emoji"], idempotent=True)
    def react_emoji(*, emoji: str = "") -> str | Awaitable[str]:
        """React to the user's last message with an emoji.

        Args:
            emoji: The emoji, or its name as the chat system knows it.
        """
        return _say(responder.reaction(emoji), "reaction added")

    @ready(name="send_update", needs=["message"], retries=0)
    def send_update(*, message: str = "") -> str | Awaitable[str]:
        """Tell the user how the work goes on, while it is not done yet.

        Args:
            message: What to say; one or two sentences.
        """
        return _say(responder.update(message), "update sent")

    return [react_emoji, send_update]


def _say(said: _Done, reply: str) -> str | Awaitable[str]:
    """The reply once it has been said."""
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
