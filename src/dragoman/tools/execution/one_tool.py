"""Run one tool by its name: the two shortest ways to use the tool layer.

Owns: `execute_tool`, which raises, and `tool_result_or_error`, which does not; in both colours.
Must not know: anything that the executor does not; it is the executor that runs, times and logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from dragoman.conversation import ToolCall
from dragoman.errors import ToolError
from dragoman.tools.registry import AnyTools

from .executor import ToolExecutor
from .procedure import Outcome

__all__ = ["aexecute_tool", "atool_result_or_error", "execute_tool", "tool_result_or_error"]

ToolInput: TypeAlias = str | bytes | Mapping[str, object]
"""A call's arguments: JSON text, or a mapping."""


def execute_tool(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """Run a tool and return its result as text. Raises ToolNotFoundError, ToolValidationError, ToolExecutionError …"""
    with ToolExecutor(tools) as executor:
        return _text_or_raise(executor.outcome(_call(name, arguments)))


async def aexecute_tool(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """`execute_tool` on the caller's event loop."""
    async with ToolExecutor(tools) as executor:
        return _text_or_raise(await executor.aoutcome(_call(name, arguments)))


def tool_result_or_error(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """Run a tool and return what the model should read: the result, or the text of the error."""
    try:
        return execute_tool(tools, name, arguments)
    except ToolError as error:
        return str(error)


async def atool_result_or_error(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """`tool_result_or_error` on the caller's event loop."""
    try:
        return await aexecute_tool(tools, name, arguments)
    except ToolError as error:
        return str(error)


def _call(name: str, arguments: ToolInput) -> ToolCall:
    if isinstance(arguments, bytes):
        arguments = arguments.decode("utf-8", "replace")
    elif not isinstance(arguments, str):
        arguments = msgspec.json.encode(dict(arguments)).decode()
    return ToolCall(id="", name=name, arguments=arguments)


def _text_or_raise(outcome: Outcome) -> str:
    if outcome.error is not None:
        raise outcome.error
    return outcome.result.text
