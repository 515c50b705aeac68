"""How a tool tells how far it is.

A context variable carries the listener: it follows the call into worker threads and tasks, so plain and async tools
report alike, and where nobody listens a report costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

ProgressListener: TypeAlias = Callable[[float, float | None, str | None], None]
"""Called with what is done, what there is to do, and a text; from any thread."""

LISTENER: ContextVar[ProgressListener | None] = ContextVar("dragoman-mcp-progress", default=None)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Tell the program that called this tool over MCP how far it is; does nothing where nobody asked.

    `done` must grow from one report to the next; one that does not is left out.
    """
    listener = LISTENER.get()
    if listener is not None:
        listener(done, total, message)
