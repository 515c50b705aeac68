"""What a tool can do while it serves an MCP request: report progress, ask questions, look at the request.

Context variables follow a call into worker threads and tasks, so sync and async tools work alike; without an MCP
request these functions do nothing. Does not import the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import InputRequest, InputResponse

    from .asking import Asking

ProgressListener: TypeAlias = Callable[[float, float | None, str | None], None]
"""Called with the progress, the total and a message; from any thread."""

LISTENER: ContextVar[ProgressListener | None] = ContextVar("dragoman-mcp-progress", default=None)
ASKING: ContextVar[Asking | None] = ContextVar("dragoman-mcp-asking", default=None)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Report progress to the program that called this tool over MCP, if it asked for it.

    `done` must grow from one report to the next; other reports are dropped.
    """
    listener = LISTENER.get()
    if listener is not None:
        listener(done, total, message)


def ask_user(message: str, schema: Mapping[str, object], *, key: str = "") -> dict[str, object] | None:
    """Ask the user of the program that called this tool over MCP; None if they refuse, or nobody can be asked.

    `schema` describes an object of strings, numbers, booleans and choices. The tool is interrupted, and called again
    from its start with the answer, so ask first. `key` distinguishes questions with the same message.
    """
    asking = ASKING.get()
    return None if asking is None else asking.user(message, schema, key or message)


def ask_client(**requests: InputRequest) -> dict[str, InputResponse | None]:
    """Ask several questions at once, in the SDK's types: to the user, the client's model, or for its roots."""
    asking = ASKING.get()
    return dict.fromkeys(requests) if asking is None else asking.client(requests)


def current_request() -> ServerRequestContext[Any, Any] | None:
    """The SDK's context of the MCP request that the running tool serves; None if it was called another way.

    For features that only MCP has, such as log messages.
    """
    asking = ASKING.get()
    return None if asking is None else asking.ctx
