"""Tools, prompts and approvals that ask: the official SDK's client answers, in both eras and through both doors."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from dragoman import Ask, ToolConfig, tool
from dragoman.mcp import McpServer, Offer, ask_client, ask_user
from dragoman.tools import ToolErrorHandling
from tests.mcp.server.doors import Door, in_process, over_http, talk, text_of

NAME: dict[str, object] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ROUNDS: list[str] = []


@tool(budget=3)
def greet() -> str:
    """Greet the user, in a thread of its own."""
    ROUNDS.append("begun")
    said = ask_user("Who are you?", NAME)
    town = None if said is None else ask_user("Where are you?", NAME)
    return f"{said} {town}"


@tool
async def roots() -> str:
    """Ask for what nobody can answer, and for what somebody can."""
    asked = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Sure?", requested_schema=NAME))
    found = ask_client(sure=asked, roots=types.ListRootsRequest())
    return f"{found['sure'] is not None} {found['roots'] is not None}"


class Person:
    """Answers as it was told, and remembers what it was asked."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, _context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        await asyncio.sleep(0)
        self.asked.append(params.message)
        answer = self.answers.pop(0)
        return types.ElicitResult(action="decline" if answer is None else "accept", content=answer)


def test_a_tool_asks_questions_and_continues_with_the_answers(door: Door, era: str) -> None:
    person = Person({"name": "Ada"}, {"name": 5}, {"name": "Ulm"})  # what does not fit is asked for again
    ROUNDS.clear()

    async def body(client: mcp.Client) -> None:
        assert text_of(await client.call_tool("greet")) == "{'name': 'Ada'} {'name': 'Ulm'}"
        person.answers.append(None)
        assert text_of(await client.call_tool("greet")) == "None None"

    # Rounds are neither failures to be tried again nor calls to be counted.
    config = ToolConfig(tool_error_handling=ToolErrorHandling.RETRY)
    talk(McpServer([greet], config=config), door, era, body, elicitation_callback=person)
    assert person.asked == ["Who are you?", "Where are you?", "Where are you?", "Who are you?"]
    assert len(ROUNDS) == 6


def test_a_client_is_asked_only_what_it_can_answer(door: Door, era: str) -> None:
    async def body(client: mcp.Client) -> None:
        assert text_of(await client.call_tool("greet")) == "None None"
        assert text_of(await client.call_tool("roots")) == "False False"

    talk(McpServer([greet, roots]), door, era, body)
    assert "None" in greet()  # and where nobody has called it over MCP


def test_a_person_approves_or_refuses_a_call(door: Door, era: str) -> None:
    ran: list[int] = []

    @tool
    def wipe(disk: int) -> str:
        """Wipe a disk."""
        ran.append(disk)
        return f"wiped {ask_user('Sure?', NAME)}"

    person = Person({"allow": True}, {"name": "yes"}, {"allow": False}, None)

    async def body(client: mcp.Client) -> None:
        assert text_of(await client.call_tool("wipe", {"disk": 1})) == "wiped {'name': 'yes'}"
        for disk in (2, 3):
            refused = await client.call_tool("wipe", {"disk": disk})
            assert refused.is_error
            assert "the user refused" in text_of(refused)

    server = McpServer([wipe], permission=lambda *_: Ask("it cannot be undone"))
    talk(server, door, era, body, elicitation_callback=person)
    assert ran == [1, 1]
    assert person.asked[0] == "May the tool 'wipe' run (it cannot be undone)? Its arguments: {\"disk\":1}"
    assert len(person.asked) == 4


@pytest.mark.parametrize("door", [in_process, over_http])
def test_an_unsolicited_approval_is_ignored(door: Door) -> None:
    ran: list[int] = []

    @tool
    def wipe(disk: int) -> str:
        ran.append(disk)
        return "wiped"

    async def body(client: mcp.Client) -> None:
        yes: types.InputResponses = {"approval": types.ElicitResult(action="accept", content={"allow": True})}
        call = client.session.call_tool
        first = await call("wipe", {"disk": 1}, input_responses=yes, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)  # it was asked now
        state = first.request_state
        assert state is not None
        for arguments, given in (({"disk": 2}, state), ({"disk": 1}, state[:-2] + "xx"), ({"disk": 1}, "{}")):
            with pytest.raises(MCPError, match="requestState"):  # it is bound to the call, and sealed
                await call("wipe", arguments, input_responses=yes, request_state=given, allow_input_required=True)
        assert ran == []
        done = await call("wipe", {"disk": 1}, input_responses=yes, request_state=state, allow_input_required=True)
        assert isinstance(done, types.CallToolResult)
        assert ran == [1]

    permission = lambda *_: Ask("it cannot be undone")  # noqa: E731
    talk(McpServer([wipe], permission=permission), door, "auto", body, elicitation_callback=Person())


def test_prompts_and_resources_have_arguments_suggestions_and_questions(door: Door, era: str) -> None:
    def letter(to: str, tone: str = "kind") -> str:
        return f"Write to {to}, {tone}, signed {ask_user('Who are you?', NAME)}"

    async def days(argument: str, typed: str) -> list[str]:
        return [f"{argument}:{typed}{n}" for n in range(150)]

    prompts = [Offer("letter", "A letter.", letter, complete=days)]
    resources = [Offer("note", "Of a day.", lambda day: f"on {day}", "notes://{day}", complete=days)]
    server = McpServer(prompts=prompts, resources=resources)

    async def body(client: mcp.Client) -> None:
        (prompt,) = (await client.list_prompts()).prompts
        assert [(each.name, each.required) for each in prompt.arguments or []] == [("to", True), ("tone", False)]
        (message,) = (await client.get_prompt("letter", {"to": "Bo"})).messages
        assert message.content.text == "Write to Bo, kind, signed {'name': 'Ada'}"  # type: ignore[union-attr]
        for wrong in ({}, {"to": "Bo", "font": "x"}):
            with pytest.raises(MCPError, match="letter") as caught:
                await client.get_prompt("letter", wrong)
            assert caught.value.code == types.INVALID_PARAMS
        assert (await client.list_resources()).resources == []
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "notes://{day}"
        assert (await client.read_resource("notes://monday")).contents[0].text == "on monday"  # type: ignore[union-attr]
        for uri in ("notes://a/b", "notes://..", "other://monday"):
            with pytest.raises(MCPError, match="not found"):
                await client.read_resource(uri)
        reference = types.PromptReference(name="letter")
        found = (await client.complete(reference, {"name": "to", "value": "B"})).completion
        assert (found.values[0], len(found.values), found.total, found.has_more) == ("to:B0", 100, 150, True)
        reference = types.ResourceTemplateReference(uri="notes://{day}")
        found = (await client.complete(reference, {"name": "day", "value": "m"})).completion
        assert found.values[0] == "day:m0"
        unknown = types.PromptReference(name="none")
        assert (await client.complete(unknown, {"name": "x", "value": ""})).completion.values == []

    talk(server, door, era, body, elicitation_callback=Person({"name": "Ada"}, {"name": "Ada"}))
