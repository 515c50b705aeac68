"""The providers' own tools: on the wire, and their uses in replies, compared with the SDKs.

test_matrix.py checks the requests against the SDKs' types, test_recorded.py that every block is sent back unchanged.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from google.genai import types
from hypothesis import given, strategies as st
from msgspec import Raw
from openai.types.responses import Response

from dragoman.batches import Batch
from dragoman.batches.handle import batch_from_json, batch_to_json
from dragoman.conversation import (
    Conversation,
    Message,
    Opaque,
    ServerToolUse,
    ToolSpec,
    conversation_from_json,
    conversation_to_json,
)
from dragoman.errors import ConfigurationError
from dragoman.providers import (
    CodeExecution,
    ComputerUse,
    FileSearch,
    HostedMcp,
    ImageGeneration,
    Location,
    ModelOptions,
    ServerTool,
    WebFetch,
    WebSearch,
)
from dragoman.providers.anthropic import server_tools as anthropic
from dragoman.providers.gemini import server_tools as gemini
from dragoman.providers.openai_responses import server_tools as responses
from tests.providers.calls import body_of, encoded
from tests.providers.oracles import claude_message, gemini_responses
from tests.providers.recorded import Exchange, exchanges
from tests.providers.test_recorded import _output_of, decoded, recorded, there

A, R, G = "anthropic:claude-sonnet-4-6", "openai-responses:gpt-5.6", "gemini:gemini-3-flash-preview"
PLACE = Location(city="Utrecht", country="NL")
WIRE_PLACE = {"type": "approximate", "city": "Utrecht", "country": "NL"}
MCP = HostedMcp(name="wiki", url="https://mcp.example", token="secret", allowed_tools=("ask",))

# --- asking -----------------------------------------------------------------------------------------------------------

ASKED: list[tuple[str, ServerTool, dict[str, Any]]] = [
    (
        A,
        WebSearch(max_uses=2, blocked_domains=("b.example",), location=PLACE),
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 2,
            "blocked_domains": ["b.example"],
            "user_location": WIRE_PLACE,
        },
    ),
    (A, WebFetch(), {"type": "web_fetch_20250910", "name": "web_fetch"}),
    (A, CodeExecution(), {"type": "code_execution_20250825", "name": "code_execution"}),
    (
        A,
        ComputerUse(width=1024, height=768),
        {"type": "computer_20251124", "name": "computer", "display_width_px": 1024, "display_height_px": 768},
    ),
    (
        "anthropic:claude-sonnet-4-5",
        ComputerUse(width=1, height=1),
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
    ),
    (
        A,
        MCP,
        {
            "type": "mcp_toolset",
            "mcp_server_name": "wiki",
            "default_config": {"enabled": False},
            "configs": {"ask": {"enabled": True}},
        },
    ),
    (
        R,
        WebSearch(allowed_domains=("a.example",), location=PLACE),
        {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}, "user_location": WIRE_PLACE},
    ),
    (R, CodeExecution(), {"type": "code_interpreter", "container": {"type": "auto"}}),
    (
        R,
        FileSearch(stores=("vs_1",), max_results=3),
        {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3},
    ),
    (R, ComputerUse(), {"type": "computer"}),
    (R, ImageGeneration(size="1024x1024"), {"type": "image_generation", "size": "1024x1024"}),
    (
        R,
        HostedMcp(name="wiki", url="https://mcp.example", approval="always"),
        {"type": "mcp", "server_label": "wiki", "server_url": "https://mcp.example", "require_approval": "always"},
    ),
    (G, WebSearch(), {"googleSearch": {}}),
    (G, WebFetch(), {"urlContext": {}}),
    (G, CodeExecution(), {"codeExecution": {}}),
    (G, FileSearch(stores=("s",), max_results=2), {"fileSearch": {"fileSearchStoreNames": ["s"], "topK": 2}}),
    (
        G,
        HostedMcp(name="wiki", url="https://mcp.example", token="t", approval="never"),
        {
            "mcpServers": [
                {
                    "name": "wiki",
                    "streamableHttpTransport": {
                        "url": "https://mcp.example",
                        "headers": {"Authorization": "Bearer t"},
                    },
                }
            ]
        },
    ),
    (
        "vertex:gemini-3-flash-preview",
        WebSearch(blocked_domains=("b.example",)),
        {"googleSearch": {"excludeDomains": ["b.example"]}},
    ),
    (
        "openrouter:openai/gpt-5-mini",
        WebSearch(max_uses=1, blocked_domains=("b.example",)),
        {"type": "openrouter:web_search", "parameters": {"max_uses": 1, "excluded_domains": ["b.example"]}},
    ),
    ("bedrock:us.amazon.nova-2-lite-v1:0", WebSearch(), {"systemTool": {"name": "nova_grounding"}}),
]


@pytest.mark.parametrize(("target", "tool", "wire"), ASKED)
def test_tools_of_each_provider_on_the_wire(target: str, tool: ServerTool, wire: dict[str, Any]) -> None:
    body = body_of(target, server_tools=(tool, Raw(b'{"own":1}')), tools=(ToolSpec("f"),))
    tools = body["toolConfig"]["tools"] if "bedrock" in target else body["tools"]
    assert tools[1:] == [wire, {"own": 1}]


def test_search_models_take_a_member_of_the_request() -> None:
    body = body_of("openai:gpt-4o-search-preview", server_tools=(WebSearch(location=PLACE),))
    place = {"type": "approximate", "approximate": {"city": "Utrecht", "country": "NL"}}
    assert (body["web_search_options"], body.get("tools")) == ({"user_location": place}, None)
    assert body_of("openai:gpt-4o-search-preview", server_tools=(WebSearch(),))["web_search_options"] == {}


def test_anthropic_gets_servers_and_headers_too() -> None:
    done = encoded(A, server_tools=(MCP, ComputerUse(width=1, height=1)))
    servers = [{"type": "url", "name": "wiki", "url": "https://mcp.example", "authorization_token": "secret"}]
    assert json.loads(done.request.body)["mcp_servers"] == servers
    assert done.request.headers["anthropic-beta"] == "mcp-client-2025-11-20,computer-use-2025-11-24"


@pytest.mark.parametrize(
    ("target", "tool", "what"),
    [
        ("openai:gpt-5", WebSearch(), "WebSearch"),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", CodeExecution(), "CodeExecution"),
        (A, FileSearch(stores=("s",)), "FileSearch"),
        (G, ImageGeneration(), "ImageGeneration"),
        ("vertex:gemini-3-flash-preview", FileSearch(stores=("s",)), "FileSearch"),
        (R, WebSearch(max_uses=1), "max_uses of WebSearch"),
        (G, WebSearch(blocked_domains=("b.example",)), "blocked_domains of WebSearch"),
        (A, HostedMcp(name="n", url="https://u.example", approval="always"), "approval of HostedMcp"),
    ],
)
def test_missing_tools_and_settings_are_refused_or_reported(target: str, tool: ServerTool, what: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot take {what}"):
        encoded(target, server_tools=(tool,))
    done = encoded(target, server_tools=(tool,), adapt=True)
    assert [each.what for each in done.adaptations if "of tool" not in each.what] == [what]
    left_out = type(tool).__name__ == what
    assert bool(json.loads(done.request.body).get("tools")) is not left_out


@pytest.mark.parametrize(
    ("target", "own"),
    [
        (R, b'{"type":"shell"}'),
        (R, b'{"type":"custom","name":"shell"}'),
        (A, b'{"type":"bash_20250124","name":"shell"}'),
    ],
)
def test_a_tool_with_the_name_of_a_server_tool_is_not_sent_twice(target: str, own: bytes) -> None:
    body = body_of(target, server_tools=(Raw(own),), tools=(ToolSpec("shell"), ToolSpec("f")))
    assert [tool.get("name") or tool["type"] for tool in body["tools"]] == ["f", "shell"]


def test_options_accept_values_and_json_only() -> None:
    plain = msgspec.json.decode(
        msgspec.json.encode(ModelOptions(server_tools=(WebSearch(max_uses=1), Raw(b'{"a":1}'))))
    )
    assert plain == {"server_tools": [{"server_tool": "WebSearch", "max_uses": 1}, {"a": 1}]}
    again = ModelOptions(**plain)
    assert again.server_tools == (WebSearch(max_uses=1), Raw(b'{"a":1}'))
    for wrong in ("web_search", {"server_tool": "telepathy"}, {"server_tool": "WebSearch", "max_uses": 0}):
        with pytest.raises(ConfigurationError):
            ModelOptions(server_tools=(wrong,))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="Did you mean"):
        WebSearch(max_use=1)  # type: ignore[call-arg]


def test_the_token_of_a_server_is_neither_shown_nor_stored() -> None:
    options = ModelOptions(server_tools=(MCP,))
    assert "secret" not in repr(options)
    sent = encoded(R, server_tools=(MCP,))
    assert b"secret" in sent.request.body
    assert "secret" not in repr(sent)
    kept = batch_to_json(Batch(id="b", model=R, base_url="https://u.example", conversations=(), options=options))
    assert b"secret" not in kept
    assert batch_from_json(kept).options.server_tools == (msgspec.structs.replace(MCP, token=None),)


# --- reading ----------------------------------------------------------------------------------------------------------


def _uses(file: str, exchange: Exchange) -> list[ServerToolUse]:
    return list(decoded(file, exchange).server_tool_uses)


def _having(file: str, *marks: str) -> list[Exchange]:
    return [row for row in exchanges(file) if row.status == 200 and any(f'"{mark}"' in row.body for mark in marks)]


@recorded
@there
def test_uses_of_claude_agree_with_the_sdk() -> None:
    found: set[str] = set()
    for exchange in _having("anthropic", "server_tool_use", "mcp_tool_use", "mcp_tool_result"):
        uses = iter(_uses("anthropic", exchange))
        for block in claude_message(exchange)["content"]:
            kind, content = block["type"], block.get("content")
            if kind == "server_tool_use":
                used, given = next(uses), block["input"]
                assert (used.id, used.name, used.phase) == (block["id"], block["name"], "call")
                only = next(iter(given.values()), "")
                assert json.loads(used.input) == given if len(given) > 1 else used.input == only
            elif kind == "mcp_tool_use":
                used = next(uses)
                assert (used.id, used.name) == (block["id"], f"{block['server_name']}.{block['name']}")
                assert json.loads(used.input) == block["input"]
            elif kind.endswith("_tool_result"):
                used = next(uses)
                assert (used.id, used.phase) == (block["tool_use_id"], "result")
                if kind == "web_search_tool_result":
                    assert used.sources == tuple(each["url"] for each in content)
                    assert used.output.splitlines() == [each["title"] for each in content]
                elif kind == "mcp_tool_result":
                    assert (used.kind, used.output) == ("mcp", "\n".join(each["text"] for each in content))
                elif kind == "web_fetch_tool_result":
                    assert used.sources == (content["url"],)
                elif "stdout" in content:
                    printed = [text for text in (content["stdout"], content["stderr"]) if text]
                    assert (used.kind, used.output) == ("code_execution", "\n".join(printed))
                failed = bool(block.get("is_error")) or "error" in str(isinstance(content, dict) and content["type"])
                assert used.is_error == (failed or bool(isinstance(content, dict) and content.get("return_code")))
            else:
                continue
            found.add(kind)
        assert next(uses, None) is None, exchange.id
    assert len(found) >= 8


_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools")


@recorded
@there
def test_uses_of_openai_agree_with_the_sdk() -> None:
    found: set[str] = set()
    for exchange in _having("responses", *_HOSTED):
        output = {"id": "r", "output": _output_of(exchange)}
        items = [item for item in Response.construct(**output).output if item.type in _HOSTED]
        uses = [use for use in _uses("responses", exchange) if use.kind != "tool_search"]
        assert len(uses) == len(items), exchange.id
        for used, item in zip(uses, items, strict=True):
            said: Any = item
            assert (used.id, used.phase) == (said.id, "both")
            failed = getattr(said, "error", None) is not None or getattr(said, "status", "") == "failed"
            assert used.is_error == failed
            if said.type == "web_search_call":
                action = said.action
                queries = getattr(action, "queries", None) or [
                    getattr(action, "query", None) or getattr(action, "url", "")
                ]
                assert used.input.splitlines() == [line for query in queries for line in query.splitlines()]
                assert used.sources == tuple(each.url for each in getattr(action, "sources", None) or [] if each.url)
            elif said.type == "code_interpreter_call":
                logs = [each.logs for each in said.outputs or [] if each.type == "logs"]
                assert (used.kind, used.input, used.output) == ("code_execution", said.code, "\n".join(logs))
            elif said.type == "file_search_call":
                assert used.input.splitlines() == said.queries
                assert used.sources == tuple(each.filename for each in said.results or [])
            elif said.type == "mcp_call":
                assert used.name == f"{said.server_label}.{said.name}"
                assert (used.input, used.output) == (said.arguments, said.error.message if said.error else said.output)
            else:
                assert used.output.splitlines() == [each.name for each in said.tools]
            found.add(said.type)
    assert found == set(_HOSTED)


@recorded
@there
def test_uses_of_gemini_agree_with_the_sdk() -> None:
    found: set[str] = set()
    for exchange in _having("gemini", "executableCode", "codeExecutionResult", "toolCall"):
        replies = gemini_responses(exchange)
        uses = iter(_uses("gemini", exchange))
        for part in [part for reply in replies for part in reply.parts or []]:
            if (code := part.executable_code) is not None:
                assert next(uses) == ServerToolUse("code_execution", "call", code.id or "", input=code.code or "")
            elif (result := part.code_execution_result) is not None:
                used, outcome = next(uses), result.outcome
                assert (used.output, used.id) == (result.output or "", result.id or "")
                assert used.is_error == (outcome is not types.Outcome.OUTCOME_OK)
            elif (call := part.tool_call) is not None:
                used, queries = next(uses), (call.args or {}).get("queries", [])
                assert (used.id, used.name, used.phase) == (call.id, call.tool_type, "call")
                assert used.input.splitlines() == queries
            elif (response := part.tool_response) is not None:
                used = next(uses)
                assert (used.id, used.name, used.phase) == (response.id, response.tool_type, "result")
            else:
                continue
            found.add(used.kind if part.executable_code is None else "code")
        assert next(uses, None) is None, exchange.id
    assert found >= {"code", "code_execution", "web_search", "file_search"}


USE = ServerToolUse("web_search", "both", "ws_1", input="q", sources=("https://a.example",))


def test_uses_are_stored_and_older_documents_are_read() -> None:
    block = Opaque("openai_responses", Raw(b'{"type":"web_search_call"}'), USE)
    told = Conversation(messages=(Message.user("Hi"), Message.assistant(block, "a")))
    written = conversation_to_json(told)
    assert conversation_from_json(written) == told
    older = json.loads(written)
    blocks = older["conversation"]["messages"][1]["blocks"]
    blocks[0]["used"]["later"] = {"x": 1}
    newer = conversation_from_json(json.dumps(older))
    (used,) = newer.messages[1].server_tool_uses
    assert msgspec.structs.replace(used, extra=None) == USE
    assert json.loads(conversation_to_json(newer)) == older
    del blocks[0]["used"]
    (before, _) = conversation_from_json(json.dumps(older)).messages[1].blocks
    assert isinstance(before, Opaque)
    assert (before.used, before.value) == (None, block.value)
    assert "web_search: q" in told.to_html()


_MEMBERS = ["action", "queries", "query", "url", "sources", "outputs", "output", "error", "input", "content", "type"]
_MEMBERS += ["results", "tools", "arguments", "title", "text", "stdout", "outcome", "pending_safety_checks", "name"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_MEMBERS), inner, max_size=4),
    max_leaves=8,
)
_TYPES = ["web_search_call", "mcp_call", "shell_call_output", "tool_search_output", "program_output", "server_tool_use"]
_TYPES += ["mcp_tool_use", "web_search_tool_result", "mcp_tool_result", "code_execution_tool_result"]


@given(st.sampled_from(_TYPES), st.dictionaries(st.sampled_from(_MEMBERS), _JSON, max_size=6))
def test_malformed_server_tool_items_can_be_read(kind: str, members: dict[str, Any]) -> None:
    raw = {name: Raw(json.dumps(value).encode()) for name, value in {**members, "type": kind}.items()}
    for used in (
        responses.read_use(raw),
        anthropic.read_use(kind, raw),
        gemini.read_use({"toolCall": raw["type"], **raw}),
    ):
        assert used is None or str(used)
