"""The loop in pieces, and the whole of it in one call.

Owns: the functions that a hand-written loop is made of beside those of calls.py, and the loop as a function.
Must not know: anything that the pieces below do not. Each function is a few lines over them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.conversation import Conversation, ToolCall, ToolResult
from dragoman.engines.engine import AsyncEngine, Engine
from dragoman.tools.executor import ToolExecutor
from dragoman.tools.registry import AnyTools
from dragoman.tools.run import ToolConfig

from .orchestrator import AsyncOrchestrator, Orchestrator, configured


def execute_tool_calls(
    calls: Iterable[ToolCall], tools: AnyTools | ToolExecutor, config: ToolConfig | None = None
) -> tuple[ToolResult, ...]:
    """The results of these calls, in order. A tool that fails gives a result that says so.

    A call that needs a person's approval has no result; to ask for approvals, use an executor or the whole loop.
    """
    if isinstance(tools, ToolExecutor):
        return configured(tools, config).execute_all(calls).results
    with ToolExecutor(tools, config) as executor:
        return executor.execute_all(calls).results


async def aexecute_tool_calls(
    calls: Iterable[ToolCall], tools: AnyTools | ToolExecutor, config: ToolConfig | None = None
) -> tuple[ToolResult, ...]:
    """`execute_tool_calls` on the caller's event loop."""
    if isinstance(tools, ToolExecutor):
        return (await configured(tools, config).aexecute_all(calls)).results
    async with ToolExecutor(tools, config) as executor:
        return (await executor.aexecute_all(calls)).results


def run_tool_calling_loop(
    engine: Engine, conversation: Conversation, tools: AnyTools | ToolExecutor, config: ToolConfig | None = None
) -> Conversation:
    """Ask the model, run the tools it calls, and ask again, until it answers without calling one.

    After `config.max_iterations` answers StepLimitError is raised, with the conversation, which can be continued. Calls
    that need a person's approval end the loop too: the conversation then has `pending_tool_calls`.
    """
    with Orchestrator(engine, tools, config) as orchestrator:
        return orchestrator.run(conversation).conversation


async def arun_tool_calling_loop(
    engine: AsyncEngine, conversation: Conversation, tools: AnyTools | ToolExecutor, config: ToolConfig | None = None
) -> Conversation:
    """`run_tool_calling_loop` on the caller's event loop."""
    async with AsyncOrchestrator(engine, tools, config) as orchestrator:
        return (await orchestrator.run(conversation)).conversation
