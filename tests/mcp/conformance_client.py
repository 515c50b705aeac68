"""The client that the official conformance runner asks for, built on ours; it starts it for each of its scenarios."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from dragoman import ToolCall, ToolExecutor
from dragoman.mcp import HttpServer, McpServers, Question, ServerOptions, TokenFile, oauth

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
MODERN = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2026-07-28") >= "2026-07-28"
CALLS: Mapping[str, list[tuple[str, dict[str, Any]]]] = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "request-metadata": [("add_numbers", {"a": 5, "b": 3})],
    "http-standard-headers": [("add_numbers", {"a": 5, "b": 3})],
    "sse-retry": [("test_reconnection", {})],
    "elicitation-sep1034-client-defaults": [("test_client_elicitation_defaults", {})],
    "http-custom-headers": [(call["name"], call.get("arguments") or {}) for call in CONTEXT.get("toolCalls", [])],
    "sep-2322-client-request-state": [
        (name, {})
        for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type")
    ],
}


async def agree(page: str) -> None:
    """Agree as a user would, and go where the page sends them: back to us."""
    async with httpx2.AsyncClient() as browser:
        sent = await browser.get(page)
        await browser.get(sent.headers["location"])


async def answer(question: Question) -> dict[str, Any]:
    """Agree to everything; what is not given has its default."""
    properties: Any = question.schema.get("properties", {})
    return {"confirmed": True} if "confirmed" in properties else {}


def arguments_for(schema: Mapping[str, Any]) -> dict[str, Any]:
    values = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}
    properties = schema.get("properties", {})
    return {name: values.get(properties.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = TokenFile(Path(directory) / "tokens.json")
        auth = oauth(
            url,
            store,
            show=agree,
            port=0,
            client_metadata_url="https://conformance-test.local/client-metadata.json",
        )
        if "client_id" in CONTEXT:
            known = OAuthClientInformationFull(
                client_id=CONTEXT["client_id"],
                client_secret=CONTEXT.get("client_secret"),
                redirect_uris=[AnyUrl("http://127.0.0.1/callback")],
                token_endpoint_auth_method="client_secret_basic" if "client_secret" in CONTEXT else "none",
            )
            await store.set_client_info(known)
        # The server of this scenario knows the handshake only, whatever the revision.
        legacy = not MODERN or SCENARIO == "json-schema-ref-no-deref"
        options = ServerOptions(prefix="", max_restarts=0, protocol="legacy" if legacy else "auto")
        server = HttpServer(url, options=options, auth=auth if SCENARIO.startswith("auth/") else None)
        servers = McpServers({"it": server}, elicit=answer, sample=lambda _: "nothing")
        async with servers, ToolExecutor(servers.tools) as executor:
            if SCENARIO.startswith("auth/"):
                calls = [(tool.name, {}) for tool in servers.tools][:1]
            elif SCENARIO == "http-invalid-tool-headers":
                calls = [(tool.name, arguments_for(tool.spec.schema)) for tool in servers.tools]
            else:
                calls = CALLS.get(SCENARIO, [])
            for name, arguments in calls:
                result = await executor.aexecute(ToolCall("1", name, json.dumps(arguments)))
                sys.stderr.write(f"{name}: {result.text}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
