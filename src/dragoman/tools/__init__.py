"""Tools: defined from functions, kept in registries, carried out by one executor.

See docs/ARCHITECTURE.md for the rooms around this one, and execution/ for how a call is carried out.
"""

from .config import RetryConfig, ToolConfig, ToolErrorHandling
from .context import ToolContext
from .definition import AnyTool, Tool, ToolOptions, ToolSettings, tool, tools_of
from .execution.batch import Batch
from .execution.executor import Executed, OnResult, ToolExecutor
from .execution.one_tool import aexecute_tool, atool_result_or_error, execute_tool, tool_result_or_error
from .execution.procedure import Middleware, Outcome
from .execution.run import ToolRun
from .permission import Allow, Approval, Ask, Decision, Deny, PendingApproval, PermissionCheck, approve, deny
from .registry import AnyTools, ToolRegistry, ToolSet, ToolView

__all__ = [
    "Allow",
    "AnyTool",
    "AnyTools",
    "Approval",
    "Ask",
    "Batch",
    "Decision",
    "Deny",
    "Executed",
    "Middleware",
    "OnResult",
    "Outcome",
    "PendingApproval",
    "PermissionCheck",
    "RetryConfig",
    "Tool",
    "ToolConfig",
    "ToolContext",
    "ToolErrorHandling",
    "ToolExecutor",
    "ToolOptions",
    "ToolRegistry",
    "ToolRun",
    "ToolSet",
    "ToolSettings",
    "ToolView",
    "aexecute_tool",
    "approve",
    "atool_result_or_error",
    "deny",
    "execute_tool",
    "tool",
    "tool_result_or_error",
    "tools_of",
]
