"""Which program answers the next call, an idle one or a new one; and replies that are not read to their end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import msgspec
import pytest

from dragoman._stop import Stop, stopping
from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import (
    Conversation,
    Event,
    Message,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.engines import AsyncClaudeEngine, ClaudeEngine
from dragoman.errors import InvalidConversationError, LossyConversionError, ProviderError, StoppedError
from dragoman.simulator import Reply, Simulator
from dragoman.tools import tool
from tests.engines.claude_cli.programs import CALM, HANGS, REPLY, Programs, behind, weather
from tests.processes import children
from tests.rounds import PROFILE

HELLO = Conversation().plus(Message.user("Hello"))
SPEC = ToolSpec("weather")


def engine(programs: Programs, simulator: Simulator, **more: Any) -> ClaudeEngine:
    return ClaudeEngine("m", **behind(simulator, programs, **more))


def turns(simulator: Simulator) -> list[int]:
    """How many messages each request had: a program that knows the conversation sends all of it."""
    return [len(request.body["messages"]) for request in simulator.requests]  # type: ignore[arg-type]


def result_of(conversation: Conversation, text: str) -> Message:
    (call,) = conversation.pending_tool_calls
    return Message.tool([ToolResult(call.id, call.name, (Text(text),))])


def test_one_program_for_all_turns(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, ChatClient(made, [weather], system="Be brief.") as client:
        before = children()
        client.chat("Weather in Lyon?")
        (pid,) = children() - before
        client.chat("And now?")
        assert children() - before == {pid}
        assert turns(simulator) == [1, 3, 5]
        assert simulator.requests[-1].system == "Be brief."
        client.set_tools([])  # other tools need another program
        client.chat("Hello again")
        assert simulator.requests[-1].tools == ()
        assert "<conversation>" in simulator.requests[-1].last_user_text
        assert '"And now?"' in simulator.requests[-1].last_user_text
        costs = [msgspec.json.decode(message.native.fields.get("cost_usd", b"0")) for message in client.history
                 if message.native is not None]  # fmt: skip
        assert [round(cost, 6) for cost in costs] == [0, 0.001, 0.001, 0.001]  # of the turn, at its end
        charged = [message.usage.charged for message in client.history if message.usage is not None]
        assert [each and round(each, 6) for each in charged] == [None, 0.001, 0.001, 0.001]  # no price is known
        assert client.cost is None


def test_a_message_added_while_tools_run_reaches_the_model(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made:
        first = made.run_inference(Conversation().plus(Message.user("Weather in Lyon?")), tools=[SPEC])
        made.reply(first.plus(result_of(first, "rain"), Message.user("In French, please.")), tools=[SPEC])
        assert turns(simulator) == [1, 3]
        assert "In French, please." in simulator.requests[-1].raw.decode()


def test_a_message_that_would_arrive_too_late_goes_to_another_program(programs: Programs) -> None:
    """The program answers the call of an unknown tool itself, so its model is answering already."""
    replies = [Reply(ToolCall("c1", "magic", "{}")), "I cannot.", "Oui."]
    with Simulator(replies) as simulator, engine(programs, simulator) as made:
        conversation = made.run_inference(Conversation().plus(Message.user("Do magic.")), tools=[SPEC])
        refused = Message.tool([ToolResult("c1", "magic", (Text("no such tool"),), is_error=True)])
        made.reply(conversation.plus(refused, Message.user("In French, please.")), tools=[SPEC])
        assert simulator.requests[-1].last_user_text.endswith("In French, please.")


def test_a_new_message_instead_of_an_approval(programs: Programs, simulator: Simulator) -> None:
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


def test_a_fork_gets_its_own_program(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, ChatClient(made) as client:
        client.chat("Hello")
        with client.fork() as twin:
            client.chat("One")
            assert twin.chat("Two").text
            assert "One" not in simulator.requests[-1].raw.decode()
            assert '"Hello"' in simulator.requests[-1].last_user_text


def test_the_number_of_idle_programs_is_limited(programs: Programs, simulator: Simulator) -> None:
    before = children()
    with engine(programs, simulator, idle_programs=2) as made:
        for number in range(4):
            made.reply(Conversation().plus(Message.user(f"Hello {number}")))
        assert len(children() - before) == 2
        with pytest.raises(InvalidConversationError):
            made.reply(Conversation())
    assert made.reply(HELLO).message.text  # closed, it works, and ends its program at once


def test_keys_are_not_shown(programs: Programs) -> None:
    settings = programs.playing([{"stderr": "bad key sk-very-secret-key\n"}, {"exit": 1}])
    with ClaudeEngine("m", settings=settings, key="sk-very-secret-key") as made:
        with pytest.raises(ProviderError) as caught:
            made.reply(HELLO)
        assert "sk-very-secret-key" not in str(caught.value)
        assert "sk-very-secret-key" not in repr(made.call(HELLO, (), None, stream=False)._launch)


@pytest.mark.parametrize("when", ["idle", "waiting"])
def test_an_idle_program_that_has_exited_is_replaced(when: str, programs: Programs, simulator: Simulator) -> None:
    before = children()
    with engine(programs, simulator) as made:
        asked = Conversation().plus(Message.user("Weather?" if when == "waiting" else "Hello"))
        conversation = made.run_inference(asked, tools=[SPEC])
        (pid,) = children() - before
        os.killpg(pid, signal.SIGKILL)
        more = result_of(conversation, "rain") if when == "waiting" else Message.user("Still there?")
        reply = made.reply(conversation.plus(more), tools=[SPEC])
        assert reply.message.text.startswith("Answer")
        told = simulator.requests[-1].last_user_text
        assert "<conversation>" in told
        if when == "waiting":
            assert [loss.what for loss in reply.losses] == ["tool_call", "tool_result"]
            assert '"result_of"' in told


def test_a_program_that_exits_before_it_answers_is_replaced(programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made:
        conversation = made.run_inference(HELLO)
        (live,) = made.pool._idle
        os.killpg(live.program.pid, signal.SIGKILL)
        os.waitid(os.P_PID, live.program.pid, os.WEXITED | os.WNOWAIT)
        live.program = _SeemsAlive(live.program)  # type: ignore[assignment]
        assert made.reply(conversation.plus(Message.user("Still there?"))).message.text.startswith("Answer")


class _SeemsAlive:
    """A program that has exited, which nobody knows yet."""

    is_usable = True

    def __init__(self, program: Any) -> None:
        self._program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


def test_losses_are_reported_or_refused(programs: Programs, simulator: Simulator) -> None:
    elsewhere = Conversation().plus(
        Message.user("Weather?"),
        Message.assistant(Thinking("hm", "openai"), ToolCall("c", "weather", "{}")),
        Message.tool([ToolResult("c", "weather", (Text("rain"),))]),
        Message.assistant("It rains."),
        Message.user("And tomorrow?"),
    )
    with engine(programs, simulator, strict=True) as made:
        with pytest.raises(LossyConversionError):
            made.reply(elsewhere)
        assert not simulator.requests
        with ChatClient(made, [weather]) as client:  # turns that the program knows are no loss
            client.chat("Weather in Lyon?")
            client.chat("Thanks.")
    with engine(programs, simulator) as made:
        losses = made.losses(elsewhere)
        told = [(loss.message, loss.block, loss.what) for loss in losses]
        assert told == [(1, 0, "thinking"), (1, 1, "tool_call"), (2, 0, "tool_result")]
        assert made.reply(elsewhere).losses == losses


def test_an_engine_outlives_an_event_loop_and_takes_concurrent_calls(programs: Programs, simulator: Simulator) -> None:
    made = AsyncClaudeEngine("m", **behind(simulator, programs))

    async def second(conversation: Conversation) -> list[str]:
        async with made:
            conversations = [conversation, *[Conversation().plus(Message.user(f"Hello {i}")) for i in range(3)]]
            replies = await asyncio.gather(*[made.reply(each) for each in conversations])
            return [reply.message.text for reply in replies]

    conversation = asyncio.run(made.run_inference(HELLO))
    assert len(set(asyncio.run(second(conversation.plus(Message.user("And?")))))) == 4
    assert sorted(turns(simulator)) == [1, 1, 1, 1, 3]  # for the first one the same program


# --- replies that are not read to their end ---------------------------------------------------------------------------

EVENTS = 26
"""More than the turn has."""


class StopAfter:
    """A callback that cancels after this many events."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self, _event: Event) -> bool:
        self._left -= 1
        return self._left >= 0


@pytest.mark.parametrize("count", range(0, EVENTS, 1 if PROFILE == "thorough" else 2))
def test_cancelled_after_any_event(count: int, programs: Programs, simulator: Simulator) -> None:
    with engine(programs, simulator) as made, ChatClient(made, [weather]) as client:
        client.stream_chat("Weather in Lyon?", StopAfter(count))
        assert client.conversation.is_valid
        assert client.chat("And you?").text == "Fine."
        assert client.conversation.is_valid


@pytest.mark.parametrize("count", range(1, EVENTS, 4))
def test_cancelled_after_any_event_on_a_loop(count: int, programs: Programs, simulator: Simulator) -> None:
    async def main() -> None:
        async with AsyncClaudeEngine("m", **behind(simulator, programs)) as made:
            client = AsyncChatClient(made, [weather])
            await client.stream_chat("Weather in Lyon?", StopAfter(count))
            assert client.conversation.is_valid
            assert (await client.chat("And you?")).text == "Fine."
            await client.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_an_interrupted_reply_is_sent_to_the_next_program(programs: Programs, simulator: Simulator) -> None:
    before = children()
    with engine(programs, simulator) as made, ChatClient(made, [weather]) as client:
        client.stream_chat("Weather in Lyon?", lambda event: not isinstance(event, TextDelta))
        assert children() == before  # it was killed, with all that it had started
        client.chat("And you?")
        assert "interrupted" in simulator.requests[-1].raw.decode()
        with made.stream(HELLO):  # which nobody reads
            pass
        assert len(simulator.requests) == 2


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2])
def test_a_cancelled_task_leaves_nothing_behind(seconds: float, programs: Programs) -> None:
    async def main() -> None:
        settings = programs.playing(HANGS["in a text"])
        async with AsyncClaudeEngine("m", settings=settings, timeouts=CALM) as made:
            asking = asyncio.create_task(made.reply(HELLO))
            await asyncio.sleep(seconds)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def read_all(made: ClaudeEngine, *, streamed: bool) -> str:
    if not streamed:
        return made.reply(HELLO).message.text
    with made.stream(HELLO) as stream:
        list(stream)
    return stream.message.text


@pytest.mark.parametrize(("how", "streamed"), [("cancelled", True), ("deadline", False)])
@pytest.mark.parametrize("steps", HANGS.values(), ids=HANGS.keys())
def test_stopped_from_another_thread(how: str, *, streamed: bool, steps: list[Any], programs: Programs) -> None:
    with ClaudeEngine("m", settings=programs.playing(steps), timeouts=CALM) as made:
        stop = Stop(None if how == "cancelled" else time.monotonic() + 0.3)
        canceller = threading.Timer(0.3 if how == "cancelled" else 30, stop.cancel)
        canceller.start()
        with stopping(stop), pytest.raises(StoppedError) as caught:
            read_all(made, streamed=streamed)
        canceller.cancel()
        canceller.join()
        assert caught.value.reason == how
        made.settings = programs.playing(REPLY)
        assert read_all(made, streamed=streamed) == "Hi."
