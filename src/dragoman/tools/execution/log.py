"""The log line of a tool call.

Owns: its fields and what is kept out of it. Arguments and results are the user's data: unless asked for, only their
size is written.
"""

from __future__ import annotations

import logging
from typing import Final

from dragoman.conversation import ToolCall, ToolResult

__all__ = ["PACKAGE", "ROOT", "TOOLS", "log_call"]

_SHOWN_CHARACTERS = 2_000


ROOT: Final = logging.getLogger()
PACKAGE: Final = logging.getLogger("dragoman")
TOOLS: Final = logging.getLogger("dragoman.tools")
"""The default logger. It has no other loggers above it than these two, which the executor's quick way relies on."""


def log_call(logger: logging.Logger, call: ToolCall, result: ToolResult, *, show_values: bool) -> None:
    """Write one line of key=value pairs; the same fields are on the record as `tool_call`, for structured handlers.

    Where the program has set up no logging at all nothing is written, not even Python's last resort on stderr.
    """
    level = logging.WARNING if result.is_error else logging.INFO
    if not logger.isEnabledFor(level) or not logger.hasHandlers():
        return
    fields = {
        "tool": _word(call.name),
        "call_id": _word(call.id),
        "outcome": result.error_type or ("error" if result.is_error else "ok"),
        "duration_ms": round((result.duration or 0.0) * 1000, 3),
        "retries": result.retries,
        "arguments": _shown(call.arguments, show_values=show_values),
        "result": _shown(result.text, show_values=show_values),
    }
    logger.log(level, " ".join([f"{key}={value}" for key, value in fields.items()]), extra={"tool_call": fields})


def _word(text: str) -> str:
    """A name as the model wrote it, unless it could be taken for more than one word or line."""
    return text if text.isprintable() and " " not in text else repr(text)


def _shown(text: str, *, show_values: bool) -> str:
    if not show_values:
        return f"<{len(text)} characters>"
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
