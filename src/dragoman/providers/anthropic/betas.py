"""Features in beta: which header value each one needs.

Owns: the table, and gathering the values of a request.
Must not know: what the features do. They are asked for in the provider's own words (server tools, extra members).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from .wire import members, text

__all__ = ["beta_header"]

_BY_TOOL: Final[dict[str, str]] = {
    "advisor_20260301": "advisor-tool-2026-03-01",
    "bash_20241022": "computer-use-2024-10-22",
    "code_execution_20250522": "code-execution-2025-05-22",
    "computer_20241022": "computer-use-2024-10-22",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
    "text_editor_20241022": "computer-use-2024-10-22",
}
"""Types of tools that the provider runs or defines, and that are not generally available."""

_BY_MEMBER: Final[dict[str, str]] = {
    "compaction": "compact-2026-09-04",
    "context_management": "context-management-2025-06-27",
    "fallback_credit_token": "fallback-credit-2026-07-01",
    "fallbacks": "server-side-fallback-2026-07-01",
    "thread": "message-threads-2026-08-12",
}
"""Members of the request's body."""

# MCP servers are described in two ways: with a toolset among the tools, and before that without one.
_MCP: Final = {True: "mcp-client-2025-11-20", False: "mcp-client-2025-04-04"}

_BY_EDIT: Final[dict[str, str]] = {"compact_20260112": "compact-2026-01-12"}
"""Types of edits inside `context_management`."""


class _Edit(Struct):
    type: str = ""


class _ContextManagement(Struct):
    edits: list[_Edit] = []


def beta_header(
    needed: Iterable[str], server_tools: Iterable[Raw], extra_body: Mapping[str, object], given: str | None
) -> str | None:
    """All values that this request needs, each once: ours, those of what it holds, and the caller's own."""
    found = dict.fromkeys(needed)
    kinds = [_type_of(raw) for raw in server_tools]
    found.update(dict.fromkeys([_BY_TOOL[kind] for kind in kinds if kind in _BY_TOOL]))
    found.update(dict.fromkeys([_BY_MEMBER[name] for name in extra_body if name in _BY_MEMBER]))
    if "mcp_servers" in extra_body:
        found[_MCP["mcp_toolset" in kinds]] = None
    found.update(dict.fromkeys(_betas_of_edits(extra_body.get("context_management"))))
    if given:
        found.update(dict.fromkeys([part.strip() for part in given.split(",") if part.strip()]))
    return ",".join(found) or None


def _type_of(tool: Raw) -> str | None:
    try:
        return text(members(tool).get("type"))
    except msgspec.MsgspecError:
        return None  # the provider will say what is wrong with it


def _betas_of_edits(context_management: object) -> list[str]:
    try:
        edits = msgspec.convert(context_management, _ContextManagement).edits
    except msgspec.ValidationError:
        return []
    return [_BY_EDIT[edit.type] for edit in edits if edit.type in _BY_EDIT]
