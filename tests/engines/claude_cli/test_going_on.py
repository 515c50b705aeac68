"""Which program answers the next call: one that waits, or one that is told everything."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import Conversation, Message, Text, Thinking, ToolCall, ToolResult, ToolSpec
from dragoman.engines import AsyncClaudeEngine, ClaudeEngine
from dragoman.errors import InvalidConversationError, LossyConversionError, ProviderError
from dragoman.simulator import Reply, Request, Simulator
from dragoman.tools import tool
from tests.engines.claude_cli.programs import CALM, Programs, programs
from tests.engines.claude_cli.stages import as_the_program_names_them
from tests.engines.talking import ONCE
from tests.processes import children

__all__ = ["programs"]


@tool
def weather(city: str) -> str:
    """What the weather is like."""
    return f"rain in {city}"


def answering(request: Request) -> Any:
    """Looks at the weather if asked about it, and else counts."""
    if request.tool_results:
        return "It rains."
    if "eather" in request.last_user_text.rpartition("</conversation>")[2]:
        return Reply("I look.", ToolCall(f"c{request.number}", "weather", '{"city": "Lyon"}'))
    return f"Answer {request.number}."


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(as_the_program_names_them(answering)) as running:
        yield running


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def engine(programs: Programs, simulator: Simulator, *, strict: bool = False, **settings: Any) -> ClaudeEngine:
    return ClaudeEngine(
        "m",
        settings=programs.acting(**settings),
        key="test-key",
        base_url=simulator.base_url("anthropic"),
        retry=ONCE,
        timeouts=CALM,
        strict=strict,
    )


def turns(simulator: Simulator) -> list[int]:
    """How many messages each request had: a program that knows the conversation sends all of it."""
    return [len(request.body["messages"]) for request in simulator.requests]  # type: ignore[arg-type]


def test_one_program_for_all_turns(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, ChatClient(made, [weather], system="Be brief.") as client:
        before = children()
        client.chat("Weather in Lyon?")
        (pid,) = children() - before
        client.chat("And now?")
        assert children() - before == {pid}
        assert turns(simulator) == [1, 3, 5]
        assert simulator.requests[-1].system == "Be brief."


def test_other_tools_need_another_program(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, ChatClient(made, [weather]) as client:
        client.chat("Hello")
        client.set_tools([])
        client.chat("Hello again")
        assert simulator.requests[-1].tools == ()
        assert "<conversation>" in simulator.requests[-1].last_user_text
        assert '"Hello"' in simulator.requests[-1].last_user_text


def test_what_is_said_while_tools_run_is_heard(programs: Programs, simulator: Simulator) -> None:
    asked = Conversation().plus(Message.user("Weather in Lyon?"))
    spec = ToolSpec("weather")
    with engine(programs, simulator) as made:
        first = asked.plus(made.reply(asked, tools=[spec]).message)
        (call,) = first.pending_tool_calls
        results = Message.tool([ToolResult(call.id, call.name, (Text("rain"),))])
        made.reply(first.plus(results, Message.user("In French, please.")), tools=[spec])
        assert turns(simulator) == [1, 3]
        assert "In French, please." in simulator.requests[-1].raw.decode()


def test_what_would_not_be_heard_in_time_is_told_to_another_program(programs: Programs) -> None:
    """The program disposes itself of a tool that is not there, and is speaking already when we are asked again."""
    replies = [Reply(ToolCall("c1", "magic", "{}")), "I cannot.", "Oui."]
    spec = ToolSpec("weather")
    with Simulator(replies) as simulator, engine(programs, simulator) as made:
        conversation = made.run_inference(Conversation().plus(Message.user("Do magic.")), tools=[spec])
        refused = Message.tool([ToolResult("c1", "magic", (Text("no such tool"),), is_error=True)])
        said = conversation.plus(refused, Message.user("In French, please."))
        made.reply(said, tools=[spec])
        assert simulator.requests[-1].last_user_text.endswith("In French, please.")


def test_an_empty_conversation_is_refused(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, pytest.raises(InvalidConversationError):
        made.reply(Conversation())


def test_keys_are_not_shown(programs: Programs) -> None:
    settings = programs.playing([{"stderr": "bad key sk-very-secret-key\n"}, {"exit": 1}])
    with ClaudeEngine("m", settings=settings, key="sk-very-secret-key") as made:
        with pytest.raises(ProviderError) as caught:
            made.reply(Conversation().plus(Message.user("Hello")))
        assert "sk-very-secret-key" not in str(caught.value)
        prepared = made.call(Conversation().plus(Message.user("Hello")), (), None, stream=False)._prepared
        assert "sk-very-secret-key" not in repr(prepared)


def test_a_branch_gets_a_program_of_its_own(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, ChatClient(made) as client:
        client.chat("Hello")
        with client.fork() as twin:
            client.chat("One")
            assert twin.chat("Two").text
            assert "One" not in simulator.requests[-1].raw.decode()
            assert '"Hello"' in simulator.requests[-1].last_user_text


def test_only_so_many_wait(programs: Programs, simulator: Simulator) -> None:
    before = children()
    with engine(programs, simulator, idle_programs=2) as made:
        for number in range(4):
            made.reply(Conversation().plus(Message.user(f"Hello {number}")))
        assert len(children() - before) == 2


@pytest.mark.parametrize("when", ["idle", "waiting"])
def test_a_program_that_died_meanwhile_is_replaced(when: str, programs: Programs, simulator: Simulator) -> None:
    spec = ToolSpec("weather")
    before = children()
    conversation = Conversation().plus(Message.user("Weather?" if when == "waiting" else "Hello"))
    with engine(programs, simulator) as made:
        conversation = made.run_inference(conversation, tools=[spec])
        (pid,) = children() - before
        os.killpg(pid, signal.SIGKILL)
        if when == "waiting":
            (call,) = conversation.pending_tool_calls
            conversation = conversation.plus(Message.tool([ToolResult(call.id, call.name, (Text("rain"),))]))
        else:
            conversation = conversation.plus(Message.user("Still there?"))
        reply = made.reply(conversation, tools=[spec])
        assert reply.message.text.startswith("Answer")
        told = simulator.requests[-1].last_user_text
        assert "<conversation>" in told
        if when == "waiting":
            assert [loss.what for loss in reply.losses] == ["tool_call", "tool_result"]
            assert '"result_of"' in told


def test_a_program_that_dies_as_it_is_spoken_to_is_replaced(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made:
        conversation = made.run_inference(Conversation().plus(Message.user("Hello")))
        (live,) = made._pool._idle
        os.killpg(live.program.pid, signal.SIGKILL)
        os.waitid(os.P_PID, live.program.pid, os.WEXITED | os.WNOWAIT)
        live.program = _SeemsAlive(live.program)  # type: ignore[assignment]
        assert made.reply(conversation.plus(Message.user("Still there?"))).message.text.startswith("Answer")


class _SeemsAlive:
    """A program of which nobody knows yet that it is gone."""

    usable = True

    def __init__(self, program: Any) -> None:
        self._program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


# --- losses -----------------------------------------------------------------------------------------------------------

ELSEWHERE = Conversation().plus(
    Message.user("Weather?"),
    Message.assistant(Thinking("hm", "openai"), ToolCall("c", "weather", "{}")),
    Message.tool([ToolResult("c", "weather", (Text("rain"),))]),
    Message.assistant("It rains."),
    Message.user("And tomorrow?"),
)


def test_losses_are_told_before_and_after(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made:
        losses = made.losses(ELSEWHERE)
        assert [(loss.message, loss.block, loss.what) for loss in losses] == [
            (1, 0, "thinking"),
            (1, 1, "tool_call"),
            (2, 0, "tool_result"),
        ]
        assert made.reply(ELSEWHERE).losses == losses


def test_strict_refuses_them(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator, strict=True) as made:
        with pytest.raises(LossyConversionError):
            made.reply(ELSEWHERE)
        assert not simulator.requests
        # What the program itself was there to hear is no loss.
        with ChatClient(made, [weather]) as client:
            client.chat("Weather in Lyon?")
            client.chat("Thanks.")


# --- failures lose nothing --------------------------------------------------------------------------------------------


def test_speaking_instead_of_approving(programs: Programs, simulator: Simulator) -> None:
    @tool(name="weather", requires_approval=True)
    def guarded(city: str) -> str:
        """The weather."""
        return city

    with engine(programs, simulator) as made, ChatClient(made, [guarded]) as client:
        client.chat("Weather in Lyon?")
        assert client.pending
        client.chat("Never mind.")
        assert client.conversation.is_valid
        (result,) = simulator.requests[-1].tool_results
        assert result.is_error
        assert "Never mind." in simulator.requests[-1].raw.decode()


def test_an_engine_outlives_an_event_loop(programs: Programs, simulator: Simulator) -> None:
    made = AsyncClaudeEngine(
        "m", settings=programs.acting(), key="k", base_url=simulator.base_url("anthropic"), timeouts=CALM
    )
    asked = Conversation().plus(Message.user("Hello"))

    async def first() -> Conversation:
        return await made.run_inference(asked)

    async def second(conversation: Conversation) -> str:
        async with made:
            return (await made.reply(conversation.plus(Message.user("And?")))).message.text

    conversation = asyncio.run(first())
    assert asyncio.run(second(conversation)).startswith("Answer")
    assert turns(simulator) == [1, 3]  # the same program


def test_conversations_side_by_side(programs: Programs, simulator: Simulator) -> None:
    async def main() -> list[str]:
        async with AsyncClaudeEngine(
            "m", settings=programs.acting(), key="k", base_url=simulator.base_url("anthropic"), timeouts=CALM
        ) as made:
            asked = [Conversation().plus(Message.user(f"Hello {number}")) for number in range(4)]
            replies = await asyncio.gather(*[made.reply(each) for each in asked])
            return [reply.message.text for reply in replies]

    assert len(set(asyncio.run(main()))) == 4


def test_a_closed_engine_keeps_nothing(programs: Programs, simulator: Simulator) -> None:
    made = engine(programs, simulator)
    made.close()
    assert made.reply(Conversation().plus(Message.user("Hello"))).message.text  # it works, and ends its program at once


def test_cost_is_that_of_the_turn(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, ChatClient(made) as client:
        for _ in range(3):
            client.chat("Hello")
        costs = [message.native.fields["cost_usd"] for message in client.history if message.native is not None]
        assert [round(msgspec.json.decode(cost), 6) for cost in costs] == [0.001, 0.001, 0.001]
