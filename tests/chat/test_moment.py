"""Instructions and tools that depend on the moment: with every provider, in both colours, streamed and not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman import RunContext
from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Conversation, Failed, Message, ToolCall
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError
from dragoman.loop import AsyncOrchestrator, Cancelled, Orchestrator
from dragoman.mcp import McpServer
from dragoman.simulator import Reply, Simulator
from dragoman.stores import SqliteStore
from dragoman.tools import AnyTool, ToolExecutor, approve, execute_tool, tool
from tests.chat.talking import WAYS, Stage, Start
from tests.engines.talking import MODELS

LOGGING_IN = ToolCall("call_1", "log_in", '{"user": "Ada"}')
READING = ToolCall("call_2", "read_account", "{}")


@tool
def log_in(user: str) -> str:
    """Say who you are."""
    return f"hello {user}"


@tool
def read_account() -> str:
    """How much there is."""
    return "17 euros"


def results(conversation: Conversation) -> int:
    return sum(len(message.tool_results) for message in conversation.messages)


def of_the_moment(run: RunContext[Any]) -> list[AnyTool]:
    """First who you are, then the account, then who you are again."""
    return [[log_in], [read_account], [log_in]][results(run.conversation)]


# --- instructions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_functions_are_asked_before_each_call_of_the_model(model: str, way: str) -> None:
    seen: list[RunContext[str]] = []

    def done(run: RunContext[str]) -> str:
        seen.append(run)
        return f"{run.deps} has {results(run.conversation)} results."

    async def waited(run: RunContext[str]) -> str | None:
        return None if len(run.conversation.messages) < 3 else "Finish now."

    with Simulator([Reply(LOGGING_IN), "Done.", "Fine."]) as simulator:
        with Stage(simulator, model, way).client(
            [log_in], system=["Be brief.", done, "Be kind.", waited], deps="Ada"
        ) as talk:
            talk.chat("Log me in.")
            assert talk.do("ask", "How are you?") == "Fine."
            assert [request.system for request in simulator.requests] == [
                "Be brief.\n\nBe kind.\n\nAda has 0 results.",
                "Be brief.\n\nBe kind.\n\nAda has 1 results.\n\nFinish now.",
                "Be brief.\n\nBe kind.\n\nAda has 1 results.\n\nFinish now.",
            ]
            assert talk.client.conversation.system == "Be brief.\n\nBe kind."
            assert talk.client.system == ("Be brief.\n\nBe kind.", done, waited)
            assert {run.model for run in seen} == {model}
        assert simulator.wait_until_idle()


def test_what_functions_say_is_kept_nowhere(start: Start, tmp_path: Any) -> None:
    with SqliteStore(tmp_path / "talks.db") as store:
        engine = ScriptedEngine([Message.assistant(LOGGING_IN), "Hi."])
        with ChatClient(engine, [log_in], system=["Be brief.", lambda _: "SECRET"], store=store) as client:
            client.chat("Hello")
            assert [each.conversation.system for each in engine.calls] == ["Be brief.\n\nSECRET"] * 2
            assert store.latest(client.id or "").conversation.system == "Be brief."
            assert client.save().conversation.system == "Be brief."
    for path in tmp_path.iterdir():
        assert b"SECRET" not in path.read_bytes()


def test_the_system_prompt_can_be_assigned_and_read(start: Start) -> None:
    def now(_run: RunContext[Any]) -> str:
        return "It is noon."

    talk = start(["One.", "Two.", "Three.", "Four."], system=now)
    client = talk.client
    assert (client.system, client.conversation.system) == ((now,), None)
    talk.chat("a")
    client.system = "Be brief."
    assert client.system == "Be brief."
    talk.chat("b")
    client.system = ["Be kind.", now]
    assert client.system == ("Be kind.", now)
    talk.chat("c")
    client.system = None
    assert client.system is None
    talk.chat("d")
    asked = [call.conversation.system for call in client.engine.calls]
    assert asked == ["It is noon.", "Be brief.", "Be kind.\n\nIt is noon.", None]


def test_a_fork_has_the_functions_too(start: Start) -> None:
    talk = start(["One.", "Two."], system="Be brief.")
    talk.client.system = ["Be kind.", lambda _: "It is noon."]
    fork = talk.do("fork")
    (talk.runner.run(fork.chat("a")) if hasattr(talk, "runner") else fork.chat("a"))
    assert talk.client.engine.calls[0].conversation.system == "Be kind.\n\nIt is noon."


def test_a_function_that_raises_ends_the_turn_with_its_error(start: Start) -> None:
    def broken(_run: RunContext[Any]) -> str:
        raise KeyError("no clock")

    for streamed in (False, True):
        talk = start(["Hi."], system=["Be brief.", broken], streamed=streamed)
        events: list[Any] = []
        with pytest.raises(KeyError, match="no clock"):
            talk.chat("Hello", callback=events.append)
        assert talk.client.history == ()
        assert not streamed or isinstance(events[-1], Failed)


@pytest.mark.parametrize("given", [7, ["Be brief.", 7], [lambda: "x"], lambda a, b: "x"])
def test_what_cannot_be_a_system_prompt_is_refused_at_once(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"RunContext"):
        ChatClient(ScriptedEngine([]), system=given)
    client = ChatClient(ScriptedEngine(["Hi."]), system="Be brief.")
    with pytest.raises(ConfigurationError, match=r"RunContext"):
        client.system = given
    assert client.system == "Be brief."
    assert client.chat("Hello").text == "Hi."


def test_a_function_gives_a_text_or_nothing(start: Start) -> None:
    talk = start(["Hi."], system=lambda _: 7)
    with pytest.raises(ConfigurationError, match=r"returned a int\. Return a text"):
        talk.chat("Hello")


def test_a_plain_program_cannot_wait_for_an_event_loop() -> None:
    async def slow(_run: RunContext[Any]) -> str:
        await asyncio.sleep(0)
        return "x"

    with pytest.raises(ConfigurationError, match="awaits an event loop"):
        ChatClient(ScriptedEngine(["Hi."]), system=slow).chat("Hello")


def test_a_function_that_is_waited_for_is_left_when_the_turn_is_stopped() -> None:
    async def talk() -> None:
        async def never(_run: RunContext[Any]) -> str:
            client.cancel()
            await asyncio.Event().wait()
            return ""

        async with AsyncChatClient(AsyncScriptedEngine(["Hi."]), system=never) as client:
            assert isinstance((await client.chat("Hello")).ending, Cancelled)
            assert client.history == ()

    asyncio.run(talk())


def test_the_cache_is_explained_by_the_system_prompt() -> None:
    said = iter(["It is one.", "It is two."])
    with (
        Simulator(["A.", "B."]) as simulator,
        ChatClient(
            "anthropic:claude-sonnet-4-5",
            system=["Be brief.", lambda _: next(said)],
            key="any",
            base_url=simulator.base_url("anthropic"),
        ) as client,
    ):
        client.chat("a")
        (reply,) = client.chat("b").replies
        assert reply.cache is not None
        assert (reply.cache.changed, "system prompt" in reply.cache.why) == ("system", True)


def test_an_orchestrator_sends_its_own_instructions() -> None:
    engine = ScriptedEngine(["A.", "B."])
    asked = Conversation().plus(Message.user("Hello"))
    with Orchestrator(engine, of_the_moment, system=["Be brief.", lambda run: f"You are {run.model}."]) as loop:
        assert loop.run(asked).conversation.system == "Be brief."
        assert loop.run(asked.with_system("Be kind.")).conversation.system == "Be brief."
    assert [call.conversation.system for call in engine.calls] == ["Be brief.\n\nYou are scripted:model."] * 2


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_tools_appear_and_go(model: str, way: str) -> None:
    async def tools(run: RunContext[str]) -> list[AnyTool]:
        return of_the_moment(run)

    script = [Reply(LOGGING_IN), Reply(READING), "You have 17 euros."]
    with Simulator(script) as simulator:
        with Stage(simulator, model, way).client(tools) as talk:
            assert talk.chat("How much?").text == "You have 17 euros."
            assert [request.tools for request in simulator.requests] == [("log_in",), ("read_account",), ("log_in",)]
            told = [result.text for message in talk.client.history for result in message.tool_results]
            assert told == ["hello Ada", "17 euros"]
        assert simulator.wait_until_idle()


def test_calls_are_carried_out_with_the_tools_of_their_reply(start: Start) -> None:
    """Also one that is gone by the time it runs; and one of another moment is not there."""
    asked: list[int] = []

    def tools(run: RunContext[Any]) -> list[AnyTool]:
        asked.append(len(run.conversation.messages))
        return [log_in] if len(asked) == 1 else []

    talk = start([Message.assistant(LOGGING_IN, READING), "Done."], tools)
    talk.chat("Hello")
    first, second = talk.client.history[2].tool_results
    assert (first.text, second.error_type) == ("hello Ada", "not_found")
    assert asked == [1, 3]  # before each call of the model, and never for the tools


def test_calls_that_wait_are_carried_out_with_the_tools_of_then(start: Start) -> None:
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "old"

    @tool(requires_approval=True, name="pay")
    def pay_again() -> str:
        """Pay."""
        return "new"

    offered = [pay]
    talk = start([Message.assistant(ToolCall("c1", "pay", "{}")), "Done."], lambda _: list(offered))
    (waiting,) = talk.chat("Pay.").pending
    offered[:] = [pay_again]
    talk.chat(None, approve(waiting.call))
    assert talk.client.history[2].tool_results[0].text == "new"


def test_tools_of_any_shape_are_given(start: Start) -> None:
    def plain(city: str) -> str:
        """A function that becomes a tool, once."""
        return city

    shapes: list[Any] = [[plain], (each for each in [plain]), {"other": plain}, []]
    given = iter(shapes)
    talk = start(["A.", "B.", "C.", "D."], lambda _: next(given))
    for prompt in "abcd":
        talk.chat(prompt)
    calls = talk.client.engine.calls
    assert [[spec.name for spec in call.tools] for call in calls] == [["plain"], ["plain"], ["other"], []]
    assert calls[0].tools[0] is calls[1].tools[0]  # with all that was worked out for it


def test_one_turn_and_set_tools_take_functions_too(start: Start) -> None:
    talk = start(["A.", "B.", "C."], [log_in])
    talk.chat("a")
    talk.client.set_tools(lambda _: [read_account])
    talk.chat("b")
    fork = talk.do("fork")
    (talk.runner.run(fork.chat("c")) if hasattr(talk, "runner") else fork.chat("c"))
    told = [[spec.name for spec in call.tools] for call in talk.client.engine.calls]
    assert told == [["log_in"], ["read_account"], ["read_account"]]


@pytest.mark.parametrize("given", [log_in, lambda: [log_in], lambda a, b: [log_in]])
def test_a_single_tool_is_not_taken_for_a_function_of_the_moment(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"tools=\["):
        ChatClient(ScriptedEngine([]), given)


def test_a_function_that_gives_no_tools_is_told_what_to_give(start: Start) -> None:
    def weather(city: str) -> str:
        """Meant as a tool."""
        return "rain"

    with pytest.raises(ConfigurationError, match=r"returned a str.*tools=\["):
        start(["Hi."], weather).chat("Hello")


def test_without_a_run_nobody_knows_the_tools() -> None:
    with ToolExecutor(of_the_moment) as executor, pytest.raises(ConfigurationError, match="in a run"):
        executor.execute(LOGGING_IN)
    with pytest.raises(ConfigurationError, match="in a run"):
        execute_tool(of_the_moment, "log_in", {"user": "Ada"})
    with pytest.raises(ConfigurationError, match="MCP"):
        McpServer(of_the_moment)


def test_a_durable_run_asks_too() -> None:
    kept: dict[str, str] = {}

    async def step(key: str, function: Any) -> str:
        if key not in kept:
            kept[key] = await function()
        return kept[key]

    async def run() -> str:
        script = [Message.assistant(LOGGING_IN), Message.assistant(READING), "17 euros."]
        asked = Conversation().plus(Message.user("How much?"))
        async with AsyncOrchestrator(AsyncScriptedEngine(script), of_the_moment) as loop:
            first = await loop.run(asked, step=step)
            again = await loop.run(asked, step=step)  # a replay: nothing is done a second time
            assert again.conversation.messages == first.conversation.messages
        return first.text

    assert asyncio.run(run()) == "17 euros."
