"""Anthropic's own tools: how they are declared, and what a reply reports of them.

The version of each tool is the oldest one that all current models know; newer ones can be declared as raw JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from msgspec import Raw

from dragoman.conversation import ServerToolUse
from dragoman.providers.server_tools import (
    AnyServerTool,
    CodeExecution,
    ComputerUse,
    HostedMcp,
    ToolRow,
    ToolRows,
    WebFetch,
    WebSearch,
)
from dragoman.providers.wire import as_object, plain_text, texts_in, value_of

# --- asking -----------------------------------------------------------------------------------------------------------

_LIMITS: Final = {name: name for name in ("max_uses", "allowed_domains", "blocked_domains")}
_SCREEN: Final = {"width": "display_width_px", "height": "display_height_px"}


def _choose_tools(server: HostedMcp) -> dict[str, object]:
    if not server.allowed_tools:
        return {}
    chosen = {name: {"enabled": True} for name in server.allowed_tools}
    return {"default_config": {"enabled": False}, "configs": chosen}


ROWS: Final[ToolRows] = {
    WebSearch: ToolRow({"type": "web_search_20250305", "name": "web_search"}, {**_LIMITS, "location": "user_location"}),
    WebFetch: ToolRow({"type": "web_fetch_20250910", "name": "web_fetch"}, _LIMITS),
    CodeExecution: ToolRow({"type": "code_execution_20250825", "name": "code_execution"}),
    ComputerUse: ToolRow({"type": "computer_20251124", "name": "computer"}, _SCREEN),
    HostedMcp: ToolRow(
        {"type": "mcp_toolset"},
        {"name": "mcp_server_name"},
        rest=_choose_tools,
        taken=("url", "token", "allowed_tools", "approval=never"),  # in a member of their own
    ),
}
OLD_ROWS: Final[ToolRows] = {
    **ROWS,
    ComputerUse: ToolRow({"type": "computer_20250124", "name": "computer"}, _SCREEN),
}
"""For models with the quirk OLD_COMPUTER."""


def list_servers(tools: Iterable[AnyServerTool]) -> list[dict[str, object]]:
    """The MCP servers among the tools, as the request names them."""
    return [
        {
            "type": "url",
            "name": tool.name,
            "url": tool.url,
            **({"authorization_token": tool.token} if tool.token else {}),
        }
        for tool in tools
        if isinstance(tool, HostedMcp)
    ]


# --- reading ----------------------------------------------------------------------------------------------------------

_KINDS: Final = {
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "tool_search_tool_bm25": "tool_search",
    "tool_search_tool_regex": "tool_search",
}


def read_use(kind: str, fields: Mapping[str, Raw]) -> ServerToolUse | None:
    """What a block of this type reports of one of the provider's own tools; None for other blocks."""
    if kind in {"server_tool_use", "mcp_tool_use"}:
        block = {name: value_of(raw) for name, raw in fields.items()}
        name, id = str(block.get("name") or ""), str(block.get("id") or "")
        if kind == "mcp_tool_use":
            asked = bytes(fields.get("input", b"")).decode()
            return ServerToolUse("mcp", "call", id, f"{block.get('server_name')}.{name}", asked)
        return ServerToolUse(_KINDS.get(name, name or "tool"), "call", id, name, plain_text(block.get("input")))
    if not kind.endswith("_tool_result"):
        return None
    name, content = kind.removesuffix("_tool_result"), value_of(fields.get("content"))
    result = as_object(content)
    return ServerToolUse(
        _KINDS.get(name, name),
        "result",
        str(value_of(fields.get("tool_use_id")) or ""),
        name,
        output=_output_of(content, result),
        sources=texts_in(content, "url") or texts_in([result], "url"),
        is_error=bytes(fields.get("is_error", b"")) == b"true"
        or str(result.get("type")).endswith("_error")
        or result.get("return_code") not in (None, 0),
    )


def _output_of(content: object, result: Mapping[str, object]) -> str:
    """The readable part of a result, whichever of its many forms it has."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # search results, or the content of an MCP tool's result
        several = cast("list[object]", content)
        return "\n".join(texts_in(several, "title") or texts_in(several, "text"))
    page = as_object(result.get("content"))  # of a fetched page only the title: the text may be very long
    parts = [result.get(name) for name in ("stdout", "stderr", "text", "error_code", "error_message", "content")]
    said = [part for part in (*parts, page.get("title")) if isinstance(part, str) and part]
    return "\n".join([*said, *texts_in(result.get("tool_references"), "tool_name")])
