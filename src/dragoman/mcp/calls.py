"""What a tool may know of the MCP request that it answers, and say while it runs.

Context variables carry it: they follow a call into worker threads and tasks, so plain and async tools work alike, and
a tool that was called another way finds nobody listening. Loads nothing of the SDK.
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
"""Called with what is done, what there is to do, and a text; from any thread."""

LISTENER: ContextVar[ProgressListener | None] = ContextVar("dragoman-mcp-progress", default=None)
ASKING: ContextVar[Asking | None] = ContextVar("dragoman-mcp-asking", default=None)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Tell the program that called this tool over MCP how far it is; does nothing where nobody asked.

    `done` must grow from one report to the next; one that does not is left out.
    """
    listener = LISTENER.get()
    if listener is not None:
        listener(done, total, message)


def ask_user(message: str, schema: Mapping[str, object], *, key: str = "") -> dict[str, object] | None:
    """Ask the user of the program that called this tool over MCP; None where they refuse, or nobody can be asked.

    `schema` is that of an object whose properties are texts, numbers, booleans or choices. The tool is interrupted and
    called again with the answer, from its start: ask before anything is done. `key` tells questions apart that have the
    same message.
    """
    asking = ASKING.get()
    return None if asking is None else asking.user(message, schema, key or message)


def ask_client(**requests: InputRequest) -> dict[str, InputResponse | None]:
    """Ask several things at once, in the SDK's types: the user, the client's model, or its roots. As `ask_user`."""
    asking = ASKING.get()
    return dict.fromkeys(requests) if asking is None else asking.client(requests)


def current_request() -> ServerRequestContext[Any, Any] | None:
    """The SDK's context of the MCP request that the running tool answers; None where it was called another way.

    For what only MCP has, such as log messages. A tool that uses it must also work without.
    """
    asking = ASKING.get()
    return None if asking is None else asking.ctx
