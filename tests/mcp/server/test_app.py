"""A set of tools served: the official SDK's client is the judge."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypedDict

import mcp
import mcp_types as types
import msgspec
import pydantic
import pytest
from mcp.shared.exceptions import MCPError

from dragoman import (
    Allow,
    Ask,
    Deny,
    Text,
    Tool,
    ToolCall,
    ToolConfig,
    ToolContext,
    ToolExecutor,
    ToolRegistry,
    ToolResult,
    errors,
    tool,
)
from dragoman.mcp import McpServer, Offer, ToolAbout, current_request, offers_of, report_progress
from dragoman.toolkit import MemorySkillStore, Skill
from dragoman.tools import ToolRun
from tests.mcp.server.doors import Door, in_process, over_http, talk, text_of


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(idempotent=True)
async def shout(text: str) -> str:
    """Say it aloud."""
    await asyncio.sleep(0)
    return text.upper()


@tool
def boom() -> None:
    """Fail."""
    raise ValueError("no luck")


def test_tools_are_listed_and_called_and_errors_are_results(door: Door, era: str) -> None:
    async def body(client: mcp.Client) -> None:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        assert list(listed) == ["add", "shout", "boom"]
        assert listed["add"].description == "Add two numbers."
        assert listed["add"].input_schema["required"] == ["a", "b"]
        for name, expected in (("add", (True, True, False)), ("shout", (False, True, None))):
            hints = listed[name].annotations
            assert hints is not None
            assert (hints.read_only_hint, hints.idempotent_hint, hints.destructive_hint) == expected
        assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert text_of(await client.call_tool("shout", {"text": "hé"})) == "HÉ"
        for failed, words in (
            (await client.call_tool("boom"), "no luck"),
            (await client.call_tool("add", {"a": "x"}), "a: expected integer"),
        ):
            assert failed.is_error
            assert words in text_of(failed)
        with pytest.raises(MCPError, match="Unknown tool: nothing") as caught:
            await client.call_tool("nothing")
        assert caught.value.code == types.INVALID_PARAMS

    talk(McpServer([add, shout, boom]), door, era, body)


@dataclass
class Weather:
    city: str
    degrees: float


class Point(TypedDict):
    x: int
    y: int


class Node(msgspec.Struct):
    name: str
    children: list[Node] = []


class Model(pydantic.BaseModel):
    size: int


def weather() -> Weather:
    return Weather("Ulm", 21.5)


def point() -> Point:
    return {"x": 1, "y": 2}


def tree() -> Node:
    return Node("root", [Node("leaf")])


def model() -> Model:
    return Model(size=3)


def loose() -> dict[str, object]:
    return {"any": "thing"}


def lying() -> Weather:
    return {"city": 5}  # type: ignore[return-value]


STRUCTURED: dict[Callable[[], object], object] = {
    weather: {"city": "Ulm", "degrees": 21.5},
    point: {"x": 1, "y": 2},
    tree: {"name": "root", "children": [{"name": "leaf", "children": []}]},
    model: {"size": 3},
    loose: {"any": "thing"},
}


def test_return_types_with_fields_have_an_output_schema(door: Door, era: str) -> None:
    async def body(client: mcp.Client) -> None:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        promised = {name for name, each in listed.items() if each.output_schema is not None}
        assert promised == {"weather", "point", "tree", "model", "lying"}
        # The SDK's client checks every result against the schema.
        for function, value in STRUCTURED.items():
            assert (await client.call_tool(function.__name__)).structured_content == value
        broken = await client.call_tool("lying")
        assert broken.is_error
        assert "output schema" in text_of(broken)

    talk(McpServer([*map(tool, STRUCTURED), tool(lying), add]), door, era, body)


def test_titles_hints_and_output_schemas_can_be_given(era: str) -> None:
    about = ToolAbout(
        title="Addition",
        destructive=False,
        open_world=False,
        output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
    )
    plus = Tool.from_function(lambda: {"sum": 3}, name="plus")

    async def body(client: mcp.Client) -> None:
        (listed,) = (await client.list_tools()).tools
        assert listed.title == "Addition"
        assert listed.annotations is not None
        assert (listed.annotations.destructive_hint, listed.annotations.open_world_hint) == (False, False)
        assert listed.output_schema == about.output_schema
        assert (await client.call_tool("plus")).structured_content == {"sum": 3}

    talk(McpServer([plus], about={"plus": about}), in_process, era, body)


# --- the executor's limits hold ---


def test_permissions_apply_and_their_reason_is_returned(door: Door, era: str) -> None:
    def check(call: ToolCall, _tool: object, _context: object) -> Allow | Ask | Deny:
        return {"add": Allow(), "shout": Deny("too loud"), "boom": Ask("dangerous")}[call.name]

    async def body(client: mcp.Client) -> None:
        assert not (await client.call_tool("add", {"a": 1, "b": 1})).is_error
        denied = await client.call_tool("shout", {"text": "x"})
        assert denied.is_error
        assert "too loud" in text_of(denied)
        asked = await client.call_tool("boom")
        assert asked.is_error
        assert "dangerous" in text_of(asked)
        assert "approve" in text_of(asked)

    talk(McpServer([add, shout, boom], permission=check), door, era, body)


def test_timeouts_budgets_and_allowed_tools_apply(era: str) -> None:
    @tool(timeout=0.1)
    def slow() -> None:
        time.sleep(5)

    config = ToolConfig(budgets={"add": 2}, allowed_tools=frozenset({"add", "slow"}))

    async def body(client: mcp.Client) -> None:
        assert [each.name for each in (await client.list_tools()).tools] == ["add", "slow"]
        assert "0.1 seconds" in text_of(await client.call_tool("slow"))
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("shout", {"text": "x"})
        said = [(await client.call_tool("add", {"a": 1, "b": 1})).is_error for _ in range(3)]
        assert said == [False, False, True]

    talk(McpServer([add, shout, slow], config=config), in_process, era, body)


def test_no_more_calls_run_at_once_than_allowed(door: Door, era: str) -> None:
    running, most = 0, 0
    lock = threading.Lock()
    together = threading.Barrier(2)

    @tool
    def busy() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(60)  # so two do run at once
        with lock:
            running -= 1

    async def body(client: mcp.Client) -> None:
        results = await asyncio.gather(*[client.call_tool("busy") for _ in range(12)])
        assert not any(result.is_error for result in results)

    talk(McpServer([busy], config=ToolConfig(max_parallel_tools=2)), door, era, body)
    assert most == 2


def test_an_executor_can_be_shared(era: str) -> None:
    def loud(call: ToolCall, _run: ToolRun) -> Generator[None, ToolResult, ToolResult]:
        result = yield
        return msgspec.structs.replace(result, content=(Text(result.text + "!"),))

    with ToolExecutor([add], middleware=[loud]) as executor:

        async def body(client: mcp.Client) -> None:
            assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2!"

        talk(McpServer(executor=executor), in_process, era, body)
        assert executor.execute(ToolCall("1", "add", '{"a":1,"b":1}')).text == "2!"  # still open
    with pytest.raises(errors.ConfigurationError, match="executor"):
        McpServer([add], executor=executor)


# --- while a call runs ---


def test_progress_is_sent_in_order(door: Door, era: str) -> None:
    @tool
    def plain() -> str:
        for done in (1, 2, 2, 1, float("nan"), 3):  # only what grows is told
            report_progress(done, 3, f"step {done}")
        return "done"

    @tool
    async def on_loop() -> str:
        for done in range(1, 4):
            report_progress(done)
            await asyncio.sleep(0)
        return "done"

    async def body(client: mcp.Client) -> None:
        for name in ("plain", "on_loop"):
            heard: list[tuple[float, float | None, str | None]] = []

            async def hear(progress: float, total: float | None, message: str | None, heard: list[Any] = heard) -> None:
                heard.append((progress, total, message))

            assert text_of(await client.call_tool(name, progress_callback=hear)) == "done"
            await asyncio.sleep(0.05)
            assert [done for done, _, _ in heard] == [1, 2, 3]
        assert text_of(await client.call_tool("plain")) == "done"  # nobody listens

    talk(McpServer([plain, on_loop]), door, era, body)


def test_a_cancelled_request_cancels_the_tool(door: Door, era: str) -> None:
    begun, ended, told = threading.Event(), threading.Event(), threading.Event()

    @tool
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    @tool
    def wait_in_a_thread(context: ToolContext[None]) -> None:
        begun.set()
        for _ in range(3_000):
            if context.cancelled:
                told.set()
                return
            time.sleep(0.01)

    async def body(client: mcp.Client) -> None:
        for name, seen in (("wait", ended), ("wait_in_a_thread", told)):
            begun.clear()
            call = asyncio.ensure_future(client.call_tool(name))
            assert await asyncio.to_thread(begun.wait, 30)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(seen.wait, 30)
        assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"  # the connection goes on

    talk(McpServer([wait, wait_in_a_thread, add]), door, era, body)


def test_a_tool_can_read_the_request_and_raise_a_protocol_error(
    door: Door, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def version() -> str:
        request = current_request()
        assert request is not None
        return request.protocol_version

    @tool
    def refuse() -> str:
        raise MCPError(-32042, "not like this")

    async def body(client: mcp.Client) -> None:
        assert text_of(await client.call_tool("version")) == client.protocol_version
        with pytest.raises(MCPError, match="not like this"):
            await client.call_tool("refuse")

    talk(McpServer([version, refuse]), door, era, body)
    assert [each for each in caplog.records if each.exc_info] == []  # it was meant


# --- lists ---


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # gone since 2026-07-28
def test_clients_are_notified_of_changes(era: str) -> None:
    registry = ToolRegistry([add])
    offers = [Offer("a", "", lambda: "b", "notes://a")]
    server = McpServer(registry, prompts=offers, resources=offers, watch_seconds=0.02)

    async def body(client: mcp.Client) -> None:
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed
        await _changed(client, lambda: registry.register(shout))
        names = [each.name for each in (await client.list_tools(cache_mode="bypass")).tools]
        assert names == ["add", "shout"]
        await _changed(client, lambda: server.changed("prompts"))
        if era == "legacy":
            await client.session.subscribe_resource("notes://a")
        # Only those who subscribed to a resource are told of it.
        told = await _changed(client, lambda: [server.changed("resources", f"notes://{name}") for name in "ba"])
        assert "notes://a" in str(told)
        if era == "legacy":
            await client.session.unsubscribe_resource("notes://a")
            server.changed("resources", "notes://a")
            await asyncio.sleep(0.2)
            assert [told] == HEARD

    talk(server, over_http, era, body, message_handler=_hear)


HEARD: list[object] = []


async def _hear(message: object) -> None:
    HEARD.append(message)


async def _changed(client: mcp.Client, change: Callable[[], object]) -> object:
    """Make the change and wait for the notice."""
    HEARD.clear()
    if client.protocol_version == "2026-07-28":
        wanted = {"tools_list_changed": True, "prompts_list_changed": True, "resource_subscriptions": ["notes://a"]}
        async with client.listen(**wanted) as changes, asyncio.timeout(30):  # type: ignore[arg-type]
            change()
            return await anext(aiter(changes))
    await asyncio.sleep(0.2)  # the stream of notices is opened in the background
    change()
    for _ in range(3_000):
        if HEARD:
            return HEARD[0]
        await asyncio.sleep(0.01)
    pytest.fail("no notice came")


def test_two_tools_of_one_name_are_an_error_but_do_not_end_the_server(era: str) -> None:
    registry = ToolRegistry([add, shout])
    view = registry.renamed({"shout": "add"})

    async def body(client: mcp.Client) -> None:
        with pytest.raises(MCPError, match="two different tools"):
            await client.list_tools()
        registry.unregister("shout")
        assert len((await client.list_tools()).tools) == 1

    talk(McpServer(view), in_process, era, body)


# --- resources and prompts ---


def broken() -> str:
    raise OSError("the disk is gone")


async def contents(client: mcp.Client, uri: str) -> str:
    (found,) = (await client.read_resource(uri)).contents
    return found.text if isinstance(found, types.TextResourceContents) else found.blob


async def prompt(client: mcp.Client, name: str) -> str:
    (message,) = (await client.get_prompt(name)).messages
    assert isinstance(message.content, types.TextContent)
    return message.content.text


def test_offers_are_resources_and_prompts(door: Door, era: str, caplog: pytest.LogCaptureFixture) -> None:
    offers = [Offer("make coffee", "How to.", lambda: "# Grind"), Offer("image", "A picture.", lambda: b"\x89PNG")]

    async def body(client: mcp.Client) -> None:
        listed = (await client.list_resources()).resources
        assert [(each.name, each.description) for each in listed] == [(each.name, each.description) for each in offers]
        assert [await contents(client, each.uri) for each in listed] == ["# Grind", "iVBORw=="]
        offers.append(Offer("new", "", broken))
        newest = (await client.list_resources(cache_mode="bypass")).resources[-1]
        with pytest.raises(MCPError, match="the disk is gone"):
            await client.read_resource(newest.uri)
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource("dragoman://resources/none")
        assert [each.name for each in (await client.list_prompts()).prompts] == ["make coffee"]
        assert await prompt(client, "make coffee") == "# Grind"
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("none")

    talk(McpServer([add], resources=lambda: offers, prompts=offers[:1]), door, era, body)
    crashed = [(each.name, each.message) for each in caplog.records if each.exc_info]
    assert crashed == [("dragoman.mcp", "the function of 'new' crashed")]


def test_skills_are_offered_as_resources_and_prompts(era: str) -> None:
    store = MemorySkillStore([Skill(name="make-coffee", description="How to.", body="# Grind")])
    server = McpServer(resources=offers_of(store), prompts=offers_of(store))

    async def body(client: mcp.Client) -> None:
        (listed,) = (await client.list_resources()).resources
        assert (listed.uri, listed.mime_type) == ("skill://make-coffee/SKILL.md", "text/markdown")
        assert await contents(client, listed.uri) == await prompt(client, "make-coffee") == "# Grind"

    talk(server, in_process, era, body)
