"""Skills for other programs: each is a resource and a prompt, loaded when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import SubscriptionBus
from mcp.shared.exceptions import MCPError

from dragoman.errors import DragomanError

from .server import Extend

if TYPE_CHECKING:
    from dragoman.toolkit import SkillStore, SkillSummary


def offer_skills(store: SkillStore) -> Extend:
    """The skills of a store as resources and prompts: `McpServer(tools, extend=offer_skills(store))`."""

    async def list_skills() -> list[SkillSummary]:
        return await anyio.to_thread.run_sync(lambda: list(store.list()))

    async def load(name: str) -> str:
        try:
            return (await anyio.to_thread.run_sync(store.load, name)).body
        except DragomanError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error

    async def list_resources(_ctx: object, _params: object) -> types.ListResourcesResult:
        found = [
            types.Resource(uri=_uri(each.name), name=each.name, description=each.description, mime_type=_MARKDOWN)
            for each in await list_skills()
        ]
        return types.ListResourcesResult(resources=found)

    async def read_resource(_ctx: object, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        for each in await list_skills():
            if _uri(each.name) == uri:
                text = types.TextResourceContents(uri=uri, mime_type=_MARKDOWN, text=await load(each.name))
                return types.ReadResourceResult(contents=[text])
        raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})

    async def list_prompts(_ctx: object, _params: object) -> types.ListPromptsResult:
        found = [types.Prompt(name=each.name, description=each.description) for each in await list_skills()]
        return types.ListPromptsResult(prompts=found)

    async def get_prompt(_ctx: object, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        content = types.TextContent(text=await load(params.name))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    def extend(wire: Server[Any], _bus: SubscriptionBus) -> None:
        wire.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
        wire.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)
        wire.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
        wire.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)

    return extend


_MARKDOWN = "text/markdown"


def _uri(name: str) -> str:
    return f"skill://{quote(name, safe='')}/SKILL.md"
