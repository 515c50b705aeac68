"""From what a function returned or raised to what the model reads.

Owns: the mapping of Python values and exceptions to a ToolResult.
Must not know: how the function was run.
"""

from __future__ import annotations

import os
from typing import cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Media, ResultPart, Text, ToolCall, ToolResult
from dragoman.errors import ToolError, ToolExecutionError

__all__ = ["NOTHING", "content_of", "execution_error", "failure", "success"]

NOTHING: tuple[ResultPart, ...] = (Json(Raw(b"null")),)
"""What the model reads of a function that returned None."""
_PARTS = (Text, Json, Media)


def _json_ready(value: object) -> object:
    """For values that msgspec cannot write by itself."""
    dump = getattr(value, "model_dump", None)  # pydantic's models, without importing pydantic
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    message = f"a value of type {type(value).__name__} cannot be written as JSON"
    raise TypeError(message)


_encoder = msgspec.json.Encoder(enc_hook=_json_ready)


def _readable(text: str) -> str:
    """The text as UTF-8 can carry it: half a surrogate pair, as in odd file names, makes a conversation unwritable."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def content_of(value: object) -> tuple[ResultPart, ...]:
    """What the model reads: text as it is, parts as they are, anything else as JSON."""
    if isinstance(value, str):
        return (Text(_readable(value)),)
    if value is None:
        return NOTHING
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(v, _PARTS) for v in cast("list[object]", value)):
        return tuple(cast("list[ResultPart]", value))
    return (Json(Raw(_encoder.encode(value))),)


def success(call: ToolCall, value: object, duration: float, retries: int = 0) -> ToolResult:
    """The result of a call that returned. Raises ToolExecutionError if the value cannot be written as JSON."""
    if isinstance(value, ToolResult):  # a tool that wants the last word on its result
        return msgspec.structs.replace(value, call_id=call.id, name=call.name, duration=duration, retries=retries)
    try:
        content = content_of(value)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"tool {call.name!r} returned a value that the model cannot read: {error}."
        hint = "Return text, JSON-like data, a dataclass, or a content block."
        raise ToolExecutionError(message, tool_name=call.name, call_id=call.id, hint=hint) from error
    return ToolResult(call.id, call.name, content, duration=duration, retries=retries)


def failure(call: ToolCall, error: ToolError, duration: float, retries: int = 0) -> ToolResult:
    """The result of a call that failed; the model reads what happened and what to do next."""
    return ToolResult(
        call.id,
        call.name,
        (Text(_readable(str(error))),),
        is_error=True,
        error_type=error.type,
        duration=duration,
        retries=retries,
    )


def execution_error(call: ToolCall, error: BaseException) -> ToolError:
    """What a tool raised, as an error that names the tool. A ToolError keeps its own text."""
    if isinstance(error, ToolError):
        error.tool_name = error.tool_name or call.name
        error.call_id = error.call_id or call.id
        return error
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 -- an exception whose text raises is still only a failed tool
        text = ""
    message = f"executing tool {call.name!r}: {type(error).__name__}{': ' if text else ''}{text}"
    wrapped = ToolExecutionError(message, tool_name=call.name, call_id=call.id, details=error)
    wrapped.__cause__ = error
    return wrapped
