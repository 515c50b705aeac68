"""Google's own tools: how they are declared, and what a reply reports of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from dragoman.conversation import ServerToolUse
from dragoman.providers.server_tools import (
    CodeExecution,
    ComputerUse,
    FileSearch,
    HostedMcp,
    ToolRow,
    ToolRows,
    WebFetch,
    WebSearch,
)
from dragoman.providers.wire import as_object, plain_text, value_of

# --- asking -----------------------------------------------------------------------------------------------------------


def _describe_server(server: HostedMcp) -> dict[str, object]:
    headers = {"headers": {"Authorization": f"Bearer {server.token}"}} if server.token else {}
    return {"mcpServers": [{"name": server.name, "streamableHttpTransport": {"url": server.url, **headers}}]}


_EVERYWHERE: Final[ToolRows] = {
    WebSearch: ToolRow({"googleSearch": {}}),
    WebFetch: ToolRow({"urlContext": {}}),
    CodeExecution: ToolRow({"codeExecution": {}}),
    ComputerUse: ToolRow({"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
}
ROWS: Final[ToolRows] = {
    **_EVERYWHERE,
    FileSearch: ToolRow(
        {"fileSearch": {}}, {"stores": "fileSearch.fileSearchStoreNames", "max_results": "fileSearch.topK"}
    ),
    HostedMcp: ToolRow({}, rest=_describe_server, taken=("name", "url", "token", "approval=never")),
}
ROWS_OF_VERTEX: Final[ToolRows] = {
    **_EVERYWHERE,
    WebSearch: ToolRow({"googleSearch": {}}, {"blocked_domains": "googleSearch.excludeDomains"}),
}

# --- reading ----------------------------------------------------------------------------------------------------------

_KINDS: Final = {
    "GOOGLE_SEARCH_WEB": "web_search",
    "GOOGLE_SEARCH_IMAGE": "web_search",
    "URL_CONTEXT": "web_fetch",
    "FILE_SEARCH": "file_search",
}


def read_use(members: Mapping[str, Raw]) -> ServerToolUse | None:
    """What a part reports of one of the provider's own tools; None for other parts."""
    for name in ("executableCode", "codeExecutionResult", "toolCall", "toolResponse"):
        if name in members:
            return _read(name, as_object(value_of(members[name])))
    return None


def _read(name: str, data: Mapping[str, object]) -> ServerToolUse:
    id, tool = str(data.get("id") or ""), str(data.get("toolType") or "")
    kind = _KINDS.get(tool, tool.lower() or "tool")
    if name == "executableCode":
        return ServerToolUse("code_execution", "call", id, input=str(data.get("code") or ""))
    if name == "codeExecutionResult":
        output, failed = str(data.get("output") or ""), data.get("outcome") != "OUTCOME_OK"
        return ServerToolUse("code_execution", "result", id, output=output, is_error=failed)
    if name == "toolCall":
        return ServerToolUse(kind, "call", id, tool, plain_text(data.get("args")))
    # The suggestions of a search are HTML to be shown, no result.
    response = {key: value for key, value in as_object(data.get("response")).items() if key != "search_suggestions"}
    return ServerToolUse(kind, "result", id, tool, output=plain_text(response))
