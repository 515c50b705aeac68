"""`react_emoji` and `send_update`: what the model says to the person before its answer is done.

Owns: the two tools and their replies.
Must not know: where the words go; the responder does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from dragoman.errors import ToolExecutionError
from dragoman.tools.definition import AnyTool
from dragoman.tools.call import discard

from .defining import ready
from .responder import Responder

__all__ = ["react_emoji_tool", "send_update_tool"]


def react_emoji_tool(responder: Responder) -> AnyTool:
    """The tool `react_emoji`."""

    # A reaction that is already there stays as it is.
    @ready(name="react_emoji", filled=["emoji"], idempotent=True)
    def react_emoji(emoji: str) -> str | Awaitable[str]:
        """React to the user's last message with an emoji.

        Args:
            emoji: The emoji, or its name as the chat system knows it.
        """
        return _said(lambda: responder.reaction(emoji), "reaction added")

    return react_emoji


def send_update_tool(responder: Responder) -> AnyTool:
    """The tool `send_update`."""

    @ready(name="send_update", filled=["message"], retries=0)
    def send_update(message: str) -> str | Awaitable[str]:
        """Tell the user how the work goes on, while it is not done yet.

        Args:
            message: What to say; one or two sentences.
        """
        return _said(lambda: responder.update(message), "update sent")

    return send_update


def _said(say: Callable[[], Awaitable[None] | None], reply: str) -> str | Awaitable[str]:
    """The reply once it has been said. What the responder complains about is what the model reads."""
    try:
        said = say()
    except Exception as error:
        raise _failed(error) from error
    return reply if said is None else _Saying(said, reply)


class _Saying:
    """An async responder at work; the executor awaits it."""

    def __init__(self, said: Awaitable[None], reply: str) -> None:
        self._said: Awaitable[None] = said
        self._reply: str = reply

    def __await__(self) -> Generator[Any, Any, str]:
        try:
            yield from self._said.__await__()
        except Exception as error:
            raise _failed(error) from error
        return self._reply

    def __del__(self) -> None:
        discard(self._said)  # a run that was cancelled in between awaits nothing any more


def _failed(error: Exception) -> ToolExecutionError:
    return ToolExecutionError(str(error) or type(error).__name__, hint="", details=error)
