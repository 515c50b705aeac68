"""The log line of a tool call.

Owns: its fields and what is kept out of it. Arguments and results are the user's data: unless asked for, only their
size is written.
"""

from __future__ import annotations

import logging

from dragoman.conversation import ToolCall, ToolResult

__all__ = ["default_logger", "log_call"]

_SHOWN_CHARACTERS = 2_000


def default_logger() -> logging.Logger:
    """The logger `dragoman.tools`, silent unless the program has set logging up."""
    logger = logging.getLogger("dragoman.tools")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def log_call(logger: logging.Logger, level: int, call: ToolCall, result: ToolResult, *, show_values: bool) -> None:
    """Write one line of key=value pairs; the same fields are on the record as `tool_call`, for structured handlers."""
    fields = {
        "tool": call.name,
        "call_id": call.id,
        "outcome": result.error_type or ("error" if result.is_error else "ok"),
        "duration_ms": round((result.duration or 0.0) * 1000, 3),
        "retries": result.retries,
        "arguments": _shown(call.arguments, show_values=show_values),
        "result": _shown(result.text, show_values=show_values),
    }
    logger.log(level, " ".join([f"{key}={value}" for key, value in fields.items()]), extra={"tool_call": fields})


def _shown(text: str, *, show_values: bool) -> str:
    if not show_values:
        return f"<{len(text)} characters>"
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
