"""OpenAI's own tools: how they are declared, and what a reply reports of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from msgspec import Raw

from dragoman.conversation import ServerToolUse
from dragoman.providers.server_tools import (
    CodeExecution,
    ComputerUse,
    FileSearch,
    HostedMcp,
    ImageGeneration,
    ToolRow,
    ToolRows,
    WebSearch,
)
from dragoman.providers.wire import as_object, as_objects, plain_text, string, texts_in, value_of

# --- asking -----------------------------------------------------------------------------------------------------------

ROWS: Final[ToolRows] = {
    WebSearch: ToolRow(
        {"type": "web_search"}, {"allowed_domains": "filters.allowed_domains", "location": "user_location"}
    ),
    CodeExecution: ToolRow({"type": "code_interpreter", "container": {"type": "auto"}}),
    FileSearch: ToolRow({"type": "file_search"}, {"stores": "vector_store_ids", "max_results": "max_num_results"}),
    ComputerUse: ToolRow({"type": "computer"}),
    HostedMcp: ToolRow(
        {"type": "mcp"},
        {
            "name": "server_label",
            "url": "server_url",
            "token": "authorization",
            "allowed_tools": "allowed_tools",
            "approval": "require_approval",
        },
    ),
    ImageGeneration: ToolRow(
        {"type": "image_generation"}, {"size": "size", "quality": "quality", "format": "output_format"}
    ),
}

# --- reading ----------------------------------------------------------------------------------------------------------

_KINDS: Final = {
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_execution",
    "shell_call": "code_execution",
    "shell_call_output": "code_execution",
    "program": "code_execution",
    "program_output": "code_execution",
    "image_generation_call": "image_generation",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcp",
    "tool_search_call": "tool_search",
    "tool_search_output": "tool_search",
}
_CALLS: Final = ("shell_call", "program", "tool_search_call")
_RESULTS: Final = ("shell_call_output", "program_output", "tool_search_output")
_FAILED: Final = ("failed", "incomplete")


def read_use(members: Mapping[str, Raw]) -> ServerToolUse | None:
    """What an item reports of one of the service's own tools; None for other items."""
    type = string(members.get("type"))
    kind = _KINDS.get(type)
    if kind is None:
        return None
    item = {name: value_of(raw) for name, raw in members.items()}
    named = [item.get(name) for name in ("server_label", "name")]
    error, outputs = item.get("error"), item.get("output") if type == "shell_call_output" else item.get("outputs")
    action, found = as_object(item.get("action")), item.get("results")
    return ServerToolUse(
        kind,
        "call" if type in _CALLS else "result" if type in _RESULTS else "both",
        str(item.get("call_id") or item.get("id") or ""),
        ".".join([each for each in named if isinstance(each, str)]),
        _input_of(item, action),
        _output_of(item, error, outputs),
        texts_in(action.get("sources"), "url") or texts_in(outputs, "url") or texts_in(found, "filename"),
        is_error=bool(error) or item.get("status") in _FAILED or any(map(_has_failed, as_objects(outputs))),
    )


def _has_failed(output: Mapping[str, object]) -> bool:
    """Whether a command in the service's own shell failed."""
    outcome = as_object(output.get("outcome"))
    return outcome.get("type") == "timeout" or outcome.get("exit_code") not in (None, 0)


def _input_of(item: Mapping[str, object], action: Mapping[str, object]) -> str:
    """The input, wherever this kind of item has it."""
    if action:
        asked = [action.get(name) for name in ("queries", "query", "commands")]
        where = [action.get(name) for name in ("url", "pattern")]
        return next((plain_text(each) for each in asked if each), plain_text([each for each in where if each]))
    if isinstance(arguments := item.get("arguments"), dict):
        return plain_text(cast("object", arguments))
    given = [arguments, item.get("code"), item.get("queries"), item.get("revised_prompt")]
    return next((plain_text(each) for each in given if each), "")


def _output_of(item: Mapping[str, object], error: object, outputs: object) -> str:
    """The output, wherever this kind of item has it."""
    if error:
        told = as_object(error)
        return error if isinstance(error, str) else str(told.get("message") or plain_text(told.get("content")))
    output = item.get("result") if item.get("type") == "program_output" else item.get("output")
    if isinstance(output, str):
        return output
    printed = [text for name in ("logs", "stdout", "stderr") for text in texts_in(outputs, name)]
    return "\n".join(printed or texts_in(item.get("tools"), "name") or texts_in(item.get("results"), "text"))
