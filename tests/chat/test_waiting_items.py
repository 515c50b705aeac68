"""Items of the responses dialect that wait for the client: tools of ours answer them, or a person does.

Each request is judged by the types of the official SDK, so that an answer has exactly the shape that the API wants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from openai.types.responses import ResponseCreateParams

from dragoman.conversation import Json, Media, Message, Native, Opaque, StopReason, Text, ToolCall, ToolResult
from dragoman.loop import AwaitApproval
from dragoman.providers import ComputerUse, HostedMcp, ModelOptions, ServerTool
from dragoman.providers.openai_responses.waiting import _answer_shell
from dragoman.simulator import Reply, Request, Simulator
from dragoman.stores import AsyncStore, FileStore
from dragoman.tools import Allow, Ask, Deny, approve, deny, tool
from tests.chat.talking import Stage, Talk
from tests.providers.calls import HI, body_of, call_of, decoder_of, lost
from tests.providers.feeding import message_of
from tests.providers.strict_types import problems

MODEL = "openai-responses:gpt-5.6"
PNG = Media.from_bytes(b"\x89PNG", "image/png")


def item(kind: str, **members: Any) -> Opaque:
    whole = {"type": kind, "id": f"{kind}_1", "status": "completed", **members}
    if kind == "custom_tool_call":
        del whole["status"]
    return Opaque("openai_responses", Raw(json.dumps(whole).encode()))


@pytest.fixture(params=["plain-stream", "async-whole"])  # both colours, and both forms of a reply
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@contextmanager
def talking(way: str, script: list[Any], tools: Any = (), *own: Raw | ServerTool, **options: Any) -> Iterator[Talk]:
    with Simulator(script) as simulator:
        stage = Stage(simulator, MODEL, way)
        with stage.client(tools, options=ModelOptions(server_tools=own), **options) as talk:
            yield talk
        judge(simulator)


def judge(simulator: Simulator) -> None:
    assert not simulator.errors
    for asked in simulator.requests:
        body = json.loads(asked.raw)
        for each in body["input"]:
            if each.get("type") == "local_shell_call_output":  # the guide and the vendor's agents say `call_id`
                each["id"] = each.pop("call_id")
        assert problems(body, ResponseCreateParams) == []


# --- tools of ours ----------------------------------------------------------------------------------------------------


@tool
def shell(commands: list[str], timeout_ms: int | None = None, max_output_length: int | None = None) -> object:
    """Runs commands."""
    if commands == ["boom"]:
        raise RuntimeError("no such command")
    if commands == ["each"]:
        return [{"stdout": "1"}, {"stderr": "bad", "exit_code": 2}]
    return f"ran {' '.join(commands)}"


@tool
def local_shell(command: list[str], env: dict[str, str], type: str) -> str:
    """Runs one command."""
    return " ".join(command)


@tool
def apply_patch(type: str, path: str, diff: str = "") -> str:
    """Changes a file."""
    if type == "delete_file":
        raise PermissionError("not allowed")
    return f"patched {path}"


@tool
def computer(actions: list[dict[str, Any]]) -> Media | str:
    """Uses the computer."""
    return "the screen is off" if actions[0]["type"] == "wait" else PNG


@tool
def tool_search(queries: list[str]) -> list[dict[str, Any]]:
    """Finds tools."""
    found = {"type": "function", "name": queries[0], "parameters": {"type": "object"}, "strict": False}
    return [found] if queries[0] != "none" else []


@tool
def sql(input: str) -> str:
    """Asks the database."""
    return f"rows of {input}"


TOOLS = [shell, local_shell, apply_patch, computer, tool_search, sql]
OK = {"type": "exit", "exit_code": 0}
CASES: dict[str, tuple[Opaque, str, dict[str, Any], dict[str, Any]]] = {
    "shell": (
        item(
            "shell_call", call_id="c1", action={"commands": ["ls", "pwd"], "timeout_ms": None, "max_output_length": 99}
        ),
        "shell",
        {"commands": ["ls", "pwd"], "timeout_ms": None, "max_output_length": 99},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "max_output_length": 99,
            "output": [{"stdout": "ran ls pwd", "stderr": "", "outcome": OK}],
        },
    ),
    "shell, command by command": (
        item("shell_call", call_id="c1", action={"commands": ["each"]}, environment={"type": "local"}),
        "shell",
        {"commands": ["each"]},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [
                {"stdout": "1", "stderr": "", "outcome": OK},
                {"stdout": "", "stderr": "bad", "outcome": {"type": "exit", "exit_code": 2}},
            ],
        },
    ),
    "shell that fails": (
        item("shell_call", call_id="c1", action={"commands": ["boom"]}, caller={"type": "direct"}),
        "shell",
        {"commands": ["boom"]},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "caller": {"type": "direct"},
            "output": [
                {
                    "stdout": "",
                    "stderr": "executing tool 'shell': RuntimeError: no such command",
                    "outcome": {"type": "exit", "exit_code": 1},
                }
            ],
        },
    ),
    "local shell": (
        item("local_shell_call", call_id="c1", action={"type": "exec", "command": ["ls", "-l"], "env": {}}),
        "local_shell",
        {"type": "exec", "command": ["ls", "-l"], "env": {}},
        {"type": "local_shell_call_output", "call_id": "c1", "output": "ls -l"},
    ),
    "patch": (
        item("apply_patch_call", call_id="c1", operation={"type": "update_file", "path": "a.py", "diff": "@@"}),
        "apply_patch",
        {"type": "update_file", "path": "a.py", "diff": "@@"},
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "patched a.py"},
    ),
    "patch that fails": (
        item("apply_patch_call", call_id="c1", operation={"type": "delete_file", "path": "a.py"}),
        "apply_patch",
        {"type": "delete_file", "path": "a.py"},
        {
            "type": "apply_patch_call_output",
            "call_id": "c1",
            "status": "failed",
            "output": "executing tool 'apply_patch': PermissionError: not allowed",
        },
    ),
    "computer": (
        item("computer_call", call_id="c1", pending_safety_checks=[], actions=[{"type": "screenshot"}]),
        "computer",
        {"actions": [{"type": "screenshot"}]},
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw=="},
        },
    ),
    "computer, one action": (
        item("computer_call", call_id="c1", pending_safety_checks=[], action={"type": "screenshot"}),
        "computer",
        {"actions": [{"type": "screenshot"}]},
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw=="},
        },
    ),
    "search": (
        item("tool_search_call", call_id="c1", execution="client", arguments={"queries": ["rates"]}),
        "tool_search",
        {"queries": ["rates"]},
        {
            "type": "tool_search_output",
            "call_id": "c1",
            "execution": "client",
            "status": "completed",
            "tools": [{"type": "function", "name": "rates", "parameters": {"type": "object"}, "strict": False}],
        },
    ),
    "search that finds nothing": (
        item("tool_search_call", call_id="c1", execution="client", arguments={"queries": ["none"]}),
        "tool_search",
        {"queries": ["none"]},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": []},
    ),
    "free text": (
        item("custom_tool_call", call_id="c1", name="sql", input='SELECT "a"\n'),
        "sql",
        {"input": 'SELECT "a"\n'},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": 'rows of SELECT "a"\n'},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_tool_of_that_name_answers(way: str, case: str) -> None:
    asked, name, arguments, answer = CASES[case]
    sent = json.loads(bytes(asked.raw))
    with talking(way, [Reply(asked), "Done."], TOOLS) as talk:
        result = talk.chat("Go.")
        _, said, results, _ = talk.client.history
        assert (result.text, said.stop_reason) == ("Done.", StopReason.TOOL_CALLS)
        (call,) = said.tool_calls
        assert (call.name, call.parsed, call.hosted, call.asks) == (name, arguments, False, "")
        assert results.tool_results[0].call_id == call.id
        told = talk.client.conversation
    assert body_of(MODEL, *told.messages)["input"][1:3] == [sent, answer]
    other = body_of("anthropic:claude-sonnet-4-6", *told.messages)["messages"][1]["content"][0]
    assert (other["type"], other["name"], other["input"]) == ("tool_use", name, arguments)


def test_a_computer_without_a_picture_is_explained(way: str) -> None:
    asked = item("computer_call", call_id="c1", pending_safety_checks=[], actions=[{"type": "wait"}])
    with talking(way, [Reply(asked), "Done."], TOOLS, ComputerUse()) as talk:
        assert talk.chat("Go.").text == "Done."
        told = talk.client.conversation
    picture, words = body_of(MODEL, *told.messages)["input"][2:4]
    assert picture["output"]["image_url"].startswith("data:image/png;base64,")
    assert words == {"role": "user", "content": [{"type": "input_text", "text": "computer: the screen is off"}]}
    assert lost(MODEL, *told.messages) == [(2, 0, "tool_result")]


def test_what_the_service_answers_itself_is_no_call(way: str) -> None:
    ran = [
        item("tool_search_call", call_id=None, execution="server", arguments={"paths": ["a"]}),
        item("tool_search_output", id="o", call_id=None, execution="server", tools=[]),
        item("shell_call", call_id="c", action={"commands": ["ls"]}, environment={"type": "container_reference"}),
        item("shell_call_output", call_id="c", output=[{"stdout": "a", "stderr": "", "outcome": OK}]),
    ]
    with talking(way, [Reply(*ran, "Done."), "Again."]) as talk:
        said = talk.chat("Go.").conversation.messages[-1]
    assert (said.text, said.tool_calls, said.stop_reason) == ("Done.", (), StopReason.END)
    kinds = [(used.kind, used.phase, used.input or used.output) for used in said.server_tool_uses]
    assert kinds[2:] == [("code_execution", "call", "ls"), ("code_execution", "result", "a")]
    assert [kind for kind, *_ in kinds[:2]] == ["tool_search", "tool_search"]


def test_safety_checks_wait_for_a_person_and_are_acknowledged(way: str) -> None:
    check = {"id": "s1", "code": "malicious", "message": "This page may be dangerous."}
    asked = item("computer_call", call_id="c1", pending_safety_checks=[check], actions=[{"type": "screenshot"}])
    with talking(way, [Reply(asked), "Done."], TOOLS, ComputerUse()) as talk:
        assert isinstance(talk.chat("Go.").ending, AwaitApproval)
        (waiting,) = talk.client.pending
        assert (waiting.call.name, waiting.reason) == ("computer", "This page may be dangerous.")
        assert talk.chat(None, approve(waiting.call)).text == "Done."
        told = talk.client.conversation
    assert body_of(MODEL, *told.messages)["input"][2]["acknowledged_safety_checks"] == [check]
    with talking(way, [Reply(asked), "Pity."], TOOLS) as talk:
        talk.chat("Go.")
        assert talk.chat(None, deny(talk.client.pending[0].call, reason="no")).text == "Pity."
        assert "acknowledged_safety_checks" not in body_of(MODEL, *talk.client.history)["input"][2]


def test_items_without_ids_are_answered_all_the_same() -> None:
    """By the ids that their calls have got, also where the reasoning before them is left out."""
    kinds = ["custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"]
    for members in [*[{"type": kind} for kind in kinds], {"type": "mcp_approval_request", "id": None}]:
        thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
        body = {"id": "resp_1", "status": "completed", "output": [thought, members]}
        reply = message_of(decoder_of(call_of(MODEL)), [json.dumps(body).encode()])
        (call,) = reply.tool_calls
        result = ToolResult(call.id, call.name, (Text("Done."),))
        _, back, answer, *_ = body_of(MODEL, HI, reply, Message.tool([result]))["input"]
        assert back["type"] == members["type"]
        assert [answer[name] for name in ("call_id", "approval_request_id") if name in answer] == [call.id]


def test_an_item_of_a_newer_version_goes_back_as_a_call() -> None:
    native = Native("openai_responses", {"item": Raw(b'{"type":"telepathy_call","id":"t1"}')})
    call = ToolCall("t1", "think", "{}", native=native)
    reply = Message(role="assistant", blocks=(call,), provider="openai-responses")
    sent = body_of(MODEL, HI, reply, Message.tool([ToolResult("t1", "think", (Text("Done."),))]))["input"]
    assert [each.get("type") for each in sent[1:]] == ["function_call", "function_call_output"]


# --- approvals of hosted MCP ------------------------------------------------------------------------------------------

MCP = HostedMcp(name="wiki", url="https://mcp.example", approval="always")


def request(number: int = 1) -> Opaque:
    whole = {"type": "mcp_approval_request", "id": f"mcpr_{number}", "server_label": "wiki", "name": "ask"}
    return Opaque("openai_responses", Raw(json.dumps({**whole, "arguments": '{"q": "why"}'}).encode()))


RAN = item("mcp_call", id="mcp_1", server_label="wiki", name="ask", arguments='{"q": "why"}', output="Because.")


def script(asked: Request) -> Reply | str:
    """Asks for approval; then runs what was approved."""
    items = [each for each in json.loads(asked.raw)["input"] if each.get("type") == "mcp_approval_response"]
    if not items:
        return Reply(request(1), request(2))
    return Reply(RAN, "It is so.") if any(each["approve"] for each in items) else "Refused."


@contextmanager
def hosted(way: str, **options: Any) -> Iterator[tuple[Talk, Simulator]]:
    with Simulator(script) as simulator:
        with Stage(simulator, MODEL, way).client((), options=ModelOptions(server_tools=(MCP,)), **options) as talk:
            yield talk, simulator
        judge(simulator)


def sent(simulator: Simulator) -> list[dict[str, Any]]:
    items = json.loads(simulator.requests[-1].raw)["input"]
    return [each for each in items if each.get("type") == "mcp_approval_response"]


def test_a_person_approves_one_and_denies_the_other(way: str) -> None:
    with hosted(way) as (talk, simulator):
        assert isinstance(talk.chat("Ask.").ending, AwaitApproval)
        first, second = talk.client.pending
        assert (first.call.name, first.call.parsed, first.call.hosted) == ("wiki.ask", {"q": "why"}, True)
        assert first.reason == "wiki is to run ask at the provider"
        assert talk.chat(None, approve(first.call)).pending == (second,)
        result = talk.chat(None, deny(second.call, reason="Once is enough."))
        assert sent(simulator) == [
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
            {
                "type": "mcp_approval_response",
                "approval_request_id": "mcpr_2",
                "approve": False,
                "reason": "Once is enough.",
            },
        ]
        asked = json.loads(simulator.requests[-1].raw)["input"][1]
        assert asked == json.loads(bytes(request(1).raw))
        (used,) = result.conversation.messages[-1].server_tool_uses
        assert (result.text, used.name, used.output) == ("It is so.", "wiki.ask", "Because.")


@pytest.mark.parametrize(
    ("says", "approved"), [(Allow(), True), (Allow(approved=True), True), (Deny("It is forbidden."), False)]
)
def test_a_permission_check_decides_without_a_person(way: str, says: Any, approved: bool) -> None:
    checked: list[tuple[str, str]] = []

    def check(call: ToolCall, known: Any, _context: Any) -> Any:
        checked.append((call.name, known.name))
        return says

    with hosted(way, permission=check) as (talk, simulator):
        assert talk.chat("Ask.").text == ("It is so." if approved else "Refused.")
        assert [each["approve"] for each in sent(simulator)] == [approved] * 2
        assert [each.get("reason") for each in sent(simulator)] == [None if approved else "It is forbidden."] * 2
    assert checked == [("wiki.ask", "wiki.ask")] * 2


def test_a_permission_check_may_ask_and_say_why(way: str) -> None:
    with hosted(way, permission=lambda *_: Ask("It costs money.")) as (talk, _):
        talk.chat("Ask.")
        assert [each.reason for each in talk.client.pending] == ["It costs money."] * 2


def store_of(way: str, path: Path) -> Any:
    return AsyncStore(FileStore(path)) if way.startswith("async") else FileStore(path)


def test_an_approval_is_given_after_a_restart(way: str, tmp_path: Path) -> None:
    with hosted(way, store=store_of(way, tmp_path)) as (talk, _):
        talk.chat("Ask.")
        id = talk.client.id
    with hosted(way, store=store_of(way, tmp_path)) as (talk, simulator):
        talk.do("restore", id)
        calls = [each.call for each in talk.client.pending]
        assert [(call.name, call.hosted) for call in calls] == [("wiki.ask", True)] * 2
        assert isinstance(talk.chat().ending, AwaitApproval)  # nobody has answered yet
        assert not simulator.requests
        assert talk.chat(None, *map(approve, calls)).text == "It is so."
        assert [each["approve"] for each in sent(simulator)] == [True, True]


def test_who_speaks_instead_of_answering_has_not_approved(way: str) -> None:
    with hosted(way) as (talk, simulator):
        talk.chat("Ask.")
        assert talk.chat("Never mind.").text == "Refused."
        assert [each["approve"] for each in sent(simulator)] == [False, False]


def test_each_command_of_a_shell_call_has_its_output_though_it_says_nothing() -> None:
    result = ToolResult("1", "shell", (Json(Raw(b'[{"stdout": "a"}, {}]')),))
    outputs: Any = _answer_shell({}, result)["output"]
    assert [each["stdout"] for each in outputs] == ["a", ""]
