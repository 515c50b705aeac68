"""The ready-made workflow on a real server: turns, approvals, watchers, and errors."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.service import RPCError, RPCStatusCode

from dragoman.chat import agent_tool
from dragoman.conversation import Conversation, Message, StopReason, Text, ToolCall, Usage
from dragoman.engines import AsyncScriptedEngine
from dragoman.errors import (
    AuthenticationError,
    ConcurrentUseError,
    ConfigurationError,
    ConversationError,
    DragomanError,
    LimitReachedError,
    MissingKeyError,
    OverloadedError,
    StepLimitError,
    StoreConflictError,
    StoreUnavailableError,
    ToolAbortedError,
    ToolNotFoundError,
    UnsupportedVersionError,
)
from dragoman.loop import UNCERTAIN, Limits, Summarise
from dragoman.providers import HostedMcp, ModelOptions
from dragoman.simulator import Reply, Request, Simulator, Status
from dragoman.temporal import Agent, DragomanPlugin, TemporalConversation
from dragoman.temporal.payloads import ConversationStart
from dragoman.tools import ToolConfig, ToolErrorHandling, tool
from tests.loops import on_loop
from tests.temporal.server import TemporalServer
from tests.temporal.world import agents, tools_of, traces_in, until, working


def new_queue() -> str:
    return f"q-{uuid4().hex[:8]}"


@asynccontextmanager
async def talking(server: TemporalServer, given: dict[str, Agent], **start: Any) -> AsyncIterator[TemporalConversation]:
    """A conversation with the first agent, on a worker of its own."""
    queue = new_queue()
    async with asyncio.timeout(60), working(server.address, given, queue=queue) as client:
        yield await TemporalConversation.start(client, **{"agent": next(iter(given)), "task_queue": queue, **start})


def scripted(*said: Message | str | Exception, tools: Any = (), **options: Any) -> dict[str, Agent]:
    return {"scripted": Agent(AsyncScriptedEngine(list(said)), tools, heartbeat=1.5, **options)}


# --- turns ------------------------------------------------------------------------------------------------------------


@on_loop
async def test_turns_with_tools(server: TemporalServer, base_url: str, traces: Path) -> None:
    async with talking(server, agents(base_url, traces)) as talk:
        first = await talk.say("work w1")
        assert (first.text, first.ending, first.pending) == ("Finished w1: charged w1-b, nothing there", "done", ())
        assert (first.spent.steps, first.spent.tool_calls) == (3, 3)
        assert first.usage.output
        assert str(await talk.say("hello")) == "You said: hello"
        conversation = await talk.conversation()
        assert [each.role for each in conversation.messages] == [
            *("user", "assistant", "tool", "assistant", "tool", "assistant"),
            *("user", "assistant"),
        ]
        assert conversation.system == "Be brief."  # the agent's, which was sent
        assert await talk.close() == conversation
    assert traces_in(traces) == {"begin w1-a": 1, "end w1-a": 1, "begin w1-b": 1, "end w1-b": 1}


@on_loop
async def test_a_conversation_is_continued_with_its_own_options_and_the_instructions_of_the_agent(
    server: TemporalServer,
) -> None:
    engine = AsyncScriptedEngine(["Hello again."])
    before = Conversation("Be kind.").plus(Message.user("Hi"), Message.assistant("Hello."))

    given = {"a": Agent(engine, system="Be brief.", options=ModelOptions(temperature=0.5, max_tokens=9))}
    async with talking(server, given, conversation=before, options=ModelOptions(max_tokens=7)) as talk:
        assert (await talk.say("Hi")).text == "Hello again."
    (call,) = engine.calls
    assert call.conversation == before.plus(Message.user("Hi")).with_system("Be brief.")
    assert call.options is not None
    assert (call.options.temperature, call.options.max_tokens) == (0.5, 7)


@on_loop
async def test_a_forced_tool_choice_applies_to_the_first_step(server: TemporalServer) -> None:
    @tool
    def double(x: int) -> int:
        """Double."""
        return 2 * x

    engine = AsyncScriptedEngine([Message.assistant(ToolCall("1", "double", '{"x": 2}')), "4", "5"])

    async with talking(server, {"a": Agent(engine, [double], tool_config=ToolConfig(tool_choice="required"))}) as talk:
        assert (await talk.say("two")).text == "4"
        assert (await talk.say("more")).text == "5"
    assert [each.options and each.options.tool_choice for each in engine.calls] == ["required", "auto", "required"]
    assert [len(each.tools) for each in engine.calls] == [1, 1, 1]


@tool
def again() -> str:
    """Again."""
    return "again"


AGAIN = [Message.assistant(ToolCall(str(index), "again", "{}")) for index in range(3)]


@on_loop
async def test_limits_end_a_turn_and_the_conversation_stays_usable(server: TemporalServer) -> None:
    async with talking(server, scripted(*AGAIN, "Fine.", tools=[again]), limits=Limits(steps=3)) as talk:
        with pytest.raises(StepLimitError, match="max iterations"):
            await talk.say("go")
        assert (await talk.conversation()).problems == ()
        assert (await talk.say("and now?")).text == "Fine."


@on_loop
async def test_limits_of_a_conversation_override_those_of_the_agent(server: TemporalServer) -> None:
    agent = scripted(*AGAIN, "Fine.", tools=[again], limits=Limits(steps=2, seconds=0.001))
    async with talking(server, agent, limits=Limits(steps=inf, seconds=inf)) as talk:
        assert (await talk.say("go")).text == "Fine."


@on_loop
@pytest.mark.parametrize(
    "limits", [Limits(), Limits(model_calls=7), Limits(tokens=70)], ids=["none", "calls", "tokens"]
)
async def test_agents_count_and_share_what_is_left_of_the_limits(server: TemporalServer, limits: Limits) -> None:
    def uses(*calls: ToolCall) -> Message:
        said = Message.assistant("Done.") if not calls else Message.assistant(*calls)
        return structs.replace(said, usage=Usage(input=9, output=1))

    clerk = AsyncScriptedEngine([uses(ToolCall("l", "again", "{}"))] * 99)
    boss = AsyncScriptedEngine([uses(*[ToolCall(f"c{n}", "clerk", '{"prompt": "x"}') for n in range(2)]), uses()])
    agent = Agent(boss, [agent_tool("clerk", "Looks.", clerk, [again])], limits=limits, on_limit="return")
    async with talking(server, {"boss": agent}) as talk:
        outcome = await talk.say("Go.")
    asked = len(boss.calls) + len(clerk.calls)
    assert asked == 42 if limits == Limits() else asked <= 7
    assert (outcome.spent.model_calls, outcome.spent.tokens, outcome.usage.tokens) == (asked, 10 * asked, 10 * asked)


def test_a_custom_data_converter_is_refused(server: TemporalServer) -> None:
    class Own(DefaultPayloadConverter):
        """Another one."""

    async def connect() -> None:
        converter = DataConverter(payload_converter_class=Own)
        await Client.connect(server.address, data_converter=converter, plugins=[DragomanPlugin()])

    with pytest.raises(ConfigurationError, match="its own data converter"):
        asyncio.run(connect())


@on_loop
async def test_the_time_limit_of_a_turn(server: TemporalServer, base_url: str, traces: Path) -> None:
    async with talking(server, agents(base_url, traces), limits=Limits(seconds=1)) as talk:
        with pytest.raises(LimitReachedError, match="1 seconds"):
            await talk.say("slow s")
    assert traces_in(traces)["cancelled slow"] == 1


@on_loop
async def test_a_tool_error_aborts_the_turn_and_a_context_policy_shortens_the_history(server: TemporalServer) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    aborts = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)
    async with talking(
        server, scripted(Message.assistant(ToolCall("1", "fail", "{}")), tools=[fail], tool_config=aborts)
    ) as talk:
        with pytest.raises(ToolAbortedError, match="no"):
            await talk.say("go")

    engine = AsyncScriptedEngine(["1st", "2nd", "3rd", "in short", "4th"])
    engine.profile = type(engine.profile)(provider="other", dialect="other", context_window=800)
    async with talking(server, {"a": Agent(engine, context=[Summarise(above=0.5, keep=1)])}) as talk:
        seen: list[str] = []
        for text in ("one", "two", "three", "four"):
            await talk.say(text + " " + "x" * 400)
        async for message in talk.watch(every=0.05):
            seen.append(message.text[:9])
            if message.text == "4th":
                break
        assert seen[0].startswith("[Summary")
        assert len((await talk.conversation()).messages) == 3
    assert [len(call.tools) for call in engine.calls if "Summarise" in call.conversation.messages[-1].text] == [0]


# --- people -----------------------------------------------------------------------------------------------------------


@on_loop
async def test_a_person_approves_or_denies(server: TemporalServer, base_url: str, traces: Path) -> None:
    async with talking(server, agents(base_url, traces)) as talk:
        waits = await talk.say("pay p1")
        assert (waits.ending, [each.call.name for each in waits.pending]) == ("await_approval", ["pay"])
        assert await talk.pending() == waits.pending
        with pytest.raises(ConfigurationError, match="wait for a person"):
            await talk.say("never mind")
        await talk.add("By the way")
        with pytest.raises(ConfigurationError, match="does not wait"):
            await talk.approve(ToolCall("p1-0", "pay", '{"amount": 300}'))
        done = await talk.approve(*waits.pending)
        assert (done.text, done.ending) == ("You said: By the way", "done")
        assert done.spent.steps == 2  # of the whole turn
        denied = await talk.deny(*(await talk.say("pay p2")).pending, reason="too much")
        assert "was denied: too much" in denied.text
    assert traces_in(traces) == {"end paid": 1}


@on_loop
async def test_one_turn_at_a_time_and_adding_to_it(server: TemporalServer, base_url: str, traces: Path) -> None:
    async with talking(server, agents(base_url, traces)) as talk:
        turn = asyncio.create_task(talk.say("slow s"))
        await until(lambda: traces_in(traces))
        with pytest.raises(ConcurrentUseError, match="is running"):
            await talk.say("hello")
        assert (await talk.standing()).ending is None
        await talk.add("hurry")
        began = time.monotonic()
        await talk.cancel()
        outcome = await turn
        assert (outcome.ending, time.monotonic() - began < 5) == ("cancelled", True)
        conversation = await talk.conversation()
        assert conversation.messages[2].tool_results[0].error_type == "cancelled"
        assert conversation.messages[-1] == Message.user("hurry")
        # The worker learns it with its next heartbeat.
        await until(lambda: traces_in(traces)["cancelled slow"])
        assert (await talk.say("hello")).text == "You said: hello"


@on_loop
async def test_a_turn_is_cancelled_during_a_model_call_or_before_it_starts(
    server: TemporalServer, traces: Path
) -> None:
    async def think(request: Request) -> str:
        if request.last_user_text == "think":
            await asyncio.sleep(20)
        return "thought"

    with Simulator(think) as simulator:
        async with talking(server, agents(simulator.base_url("openai"), traces)) as talk:
            turn = asyncio.create_task(talk.say("think"))
            await until(lambda: simulator.requests)
            await talk.cancel()
            assert (await asyncio.wait_for(turn, 10)).ending == "cancelled"
            assert (await talk.conversation()).messages == ()  # nothing was done: no trace
            outcome, _none = await asyncio.gather(talk.say("hello"), talk.cancel())
            assert outcome.ending in ("cancelled", "done")  # whichever came first
            assert (await talk.say("hello")).text == "thought"


@on_loop
async def test_results_are_kept_when_a_turn_is_cancelled(server: TemporalServer, traces: Path) -> None:
    calls = [ToolCall("1", "slow", "{}"), ToolCall("2", "charge", '{"key": "k"}')]

    async with talking(server, scripted(Message.assistant(*calls), tools=tools_of(traces))) as talk:
        turn = asyncio.create_task(talk.say("go"))
        await until(lambda: traces_in(traces)["end k"] and traces_in(traces)["begin slow 2"])
        await asyncio.sleep(0.5)
        await talk.cancel()
        assert (await turn).ending == "cancelled"
        results = (await talk.conversation()).messages[2].tool_results
        assert [(each.error_type, each.text[:7]) for each in results][1] == (None, "charged")
        assert results[0].error_type == "cancelled"


@on_loop
async def test_the_time_limit_of_all_tools(server: TemporalServer, traces: Path) -> None:
    script = [Message.assistant(ToolCall("1", "slow", "{}")), "Too slow."]
    async with talking(
        server, scripted(*script, tools=tools_of(traces), tool_config=ToolConfig(run_timeout=0.5))
    ) as talk:
        assert (await talk.say("go")).text == "Too slow."
        assert (await talk.conversation()).messages[2].tool_results[0].error_type == "timeout"


@pytest.mark.parametrize("longest", [None, 1])  # 1: it continues as new after every turn
@on_loop
async def test_a_message_with_the_same_key_is_added_once(server: TemporalServer, longest: int | None) -> None:
    async with talking(server, scripted("once", "twice"), longest_history=longest) as talk:
        assert [(await talk.say("hi", key="k1")).text for _ in range(3)] == ["once"] * 3
        assert (await talk.say("hi", key="k2")).text == "twice"
        assert len((await talk.conversation()).messages) == 4


@on_loop
async def test_calls_without_results_in_a_given_conversation(server: TemporalServer) -> None:
    before = Conversation().plus(Message.user("Go."), Message.assistant(ToolCall("1", "pay", "{}")))

    async with talking(server, scripted("Fine."), conversation=before) as talk:
        with pytest.raises(ConfigurationError, match="wait for a person"):
            await talk.say("hi")
        assert (await talk.deny(*await talk.pending(), reason="it was paid")).text == "Fine."


@on_loop
async def test_a_conversation_that_grows_too_large_is_an_error(server: TemporalServer) -> None:
    @tool
    def much() -> str:
        """Much."""
        return "x" * 900_000

    calls = [Message.assistant(ToolCall(str(index), "much", "{}")) for index in range(3)]

    async with talking(server, scripted(*calls, tools=[much]), longest_history=1) as talk:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="two megabytes"):
                await talk.say("go")
        with pytest.raises(ConversationError, match="size exceeds limit"):
            await talk.conversation()
        with pytest.raises(ConfigurationError, match="two megabytes"):
            await talk.close()
        # It can still be read, a part at a time.
        assert sum([len(each.tool_results[0].text) async for each in talk.watch() if each.role == "tool"]) == 2_700_000


@on_loop
async def test_cancelling_the_workflow_ends_the_turn_and_the_conversation(
    server: TemporalServer, base_url: str, traces: Path
) -> None:
    async with talking(server, agents(base_url, traces)) as talk:
        turn = asyncio.create_task(talk.say("slow s"))
        await until(lambda: traces_in(traces))
        await talk.handle.cancel()
        assert (await turn).ending == "cancelled"
        with pytest.raises(ConversationError, match="or it has ended"):
            await talk.say("hello")


@on_loop
async def test_watching_from_the_beginning_and_later(server: TemporalServer, base_url: str, traces: Path) -> None:
    async def _until_text(talk: TemporalConversation, position: int, text: str):
        async for message in talk.watch(position, every=0.05):
            yield message
            if message.text.startswith(text):
                return

    async with talking(server, agents(base_url, traces)) as talk:
        turn = asyncio.create_task(talk.say("work w"))
        seen = [message.role async for message in _until_text(talk, 0, "Finished")]
        await turn
        assert seen == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
        await talk.close()
        assert [message.role async for message in talk.watch(4)] == ["tool", "assistant"]


# --- long conversations -----------------------------------------------------------------------------------------------


@on_loop
async def test_it_continues_as_new_between_turns_with_its_whole_state(
    server: TemporalServer, base_url: str, traces: Path
) -> None:
    async with talking(server, agents(base_url, traces), longest_history=15) as talk:
        runs: set[str] = set()
        for number in range(6):
            assert (await talk.say(f"number {number}")).text == f"You said: number {number}"
            runs.add((await talk.handle.describe()).run_id)
        waits = await talk.say("pay p1")
        while (found := (await talk.handle.describe()).run_id) in runs:  # noqa: ASYNC110 -- the server sets no events
            await asyncio.sleep(0.05)
        await talk.add("later")
        assert await talk.pending() == waits.pending
        done = await talk.approve(*waits.pending)
        assert (done.text, done.spent.steps) == ("You said: later", 2)
        assert len({*runs, found}) >= 4
        conversation = await talk.close()
        assert len([each for each in conversation.messages if each.role == "user"]) == 8
        assert conversation.problems == ()


# --- what goes wrong --------------------------------------------------------------------------------------------------


@on_loop
async def test_provider_errors_are_retried_by_temporal_or_raised(server: TemporalServer, traces: Path) -> None:
    failures = [Reply("", faults=[Status(status)]) for status in (401, 529, 529, 529, 529, 503)]
    with Simulator([*failures, "fine"]) as simulator:
        async with talking(server, agents(simulator.base_url("openai"), traces)) as talk:
            with pytest.raises(AuthenticationError) as refused:
                await talk.say("hi")
            assert refused.value.status == 401
            assert (await talk.conversation()).messages == ()  # nothing was done: no trace
            with pytest.raises(OverloadedError):
                await talk.say("hi")
            assert (await talk.say("hi")).text == "fine"
        assert len(simulator.requests) == 7


@on_loop
async def test_an_unexpected_error_is_raised_and_not_retried(server: TemporalServer) -> None:
    class Broken(AsyncScriptedEngine):
        def call(self, *given: Any, **more: Any) -> Any:
            raise KeyError("oops")

    async with talking(server, {"broken": Agent(Broken([]))}) as talk:
        with pytest.raises(ConversationError, match="KeyError on the worker: 'oops'"):
            await talk.say("hi")


@on_loop
async def test_an_unknown_agent_or_a_missing_key(server: TemporalServer) -> None:
    assert "OPENAI_API_KEY" not in os.environ
    given = {"clerk": Agent("openai:gpt-4o")}
    async with talking(server, given, agent="clerc") as talk:
        with pytest.raises(ConfigurationError, match=r"no agent 'clerc'.*Did you mean clerk"):
            await talk.say("hi")
    async with talking(server, given) as talk:
        with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
            await talk.say("hi")


@on_loop
async def test_a_tool_that_only_another_worker_has_and_an_unknown_one(server: TemporalServer) -> None:
    @tool
    def here() -> str:
        """Here."""
        return "here"

    given = scripted(Message.assistant(ToolCall("1", "gone", "{}")), "No such tool.", tools=[here])

    async with talking(server, given) as talk:
        assert (await talk.say("go")).text == "No such tool."
        assert (await talk.conversation()).messages[2].tool_results[0].error_type == "not_found"
    # The first worker has a tool that this one does not have.
    given = scripted(Message.assistant(ToolCall("1", "gone", "{}")), tools=[here])
    agent = given["scripted"]
    facts = type(agent).facts.fget(agent)  # type: ignore[attr-defined]
    told = type(facts)(tools={"gone": False})
    given["scripted"].__class__ = type("Newer", (Agent,), {"facts": property(lambda _: told)})

    async with talking(server, given) as talk:
        with pytest.raises(ToolNotFoundError, match="had when the turn began") as refused:
            await talk.say("go")
        assert refused.value.tool_name == "gone"
        assert (await talk.conversation()).problems == ()


@on_loop
async def test_a_conversation_of_a_newer_version_waits_for_a_worker_that_can_read_it(server: TemporalServer) -> None:
    queue = new_queue()
    async with working(server.address, scripted("hi"), queue=queue) as client:
        newer = ConversationStart(agent="scripted").conversation
        newer = type(newer)(bytes(newer).replace(b'"version":1', b'"version":99'))
        talk = TemporalConversation(client, uuid4().hex)
        start = ConversationStart(agent="scripted", conversation=newer)
        await client.start_workflow("dragoman.conversation", start, id=talk.id, task_queue=queue)
        with pytest.raises(UnsupportedVersionError) as refused:
            await talk.say("hi")
        assert refused.value.found == 99
        with pytest.raises(UnsupportedVersionError):
            await talk.conversation()
        assert (await talk.handle.describe()).close_time is None


@on_loop
async def test_unknown_existing_and_too_large_conversations(
    server: TemporalServer, base_url: str, traces: Path
) -> None:
    client = await Client.connect(server.address, plugins=[DragomanPlugin()])
    async with talking(server, agents(base_url, traces)) as talk:
        with pytest.raises(ConversationError, match="no conversation 'nobody'"):
            await TemporalConversation(client, "nobody").say("hi")
        with pytest.raises(StoreConflictError, match="already"):
            await TemporalConversation.start(client, agent="clerk", id=talk.id)
        turn = asyncio.create_task(talk.say("slow s"))
        await until(lambda: traces_in(traces))
        await talk.handle.terminate()
        with pytest.raises(ConversationError, match="or it has ended"):
            await turn
        large = Conversation().plus(Message.user("x" * 2_000_000))
        with pytest.raises(ConfigurationError, match="two megabytes"):
            await TemporalConversation.start(client, agent="clerk", conversation=large)


@on_loop
async def test_a_caller_can_be_cancelled_and_the_turn_continues(server: TemporalServer, traces: Path) -> None:
    over = threading.Event()

    async def think(_: Request) -> str:
        await until(over.is_set)
        return "thought"

    with Simulator(think) as simulator:
        async with talking(server, agents(simulator.base_url("openai"), traces)) as talk:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await talk.say("think", key="k")
            turn = asyncio.create_task(talk.say("think", key="k"))
            await until(lambda: simulator.requests)
            simulator.play(lambda _: "thought anew")
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            over.set()
            assert (await talk.say("think", key="k")).text == "thought"


REFUSALS: list[tuple[RPCStatusCode, type[DragomanError]]] = [
    (RPCStatusCode.CANCELLED, StoreUnavailableError),
    (RPCStatusCode.UNAVAILABLE, StoreUnavailableError),
    (RPCStatusCode.DEADLINE_EXCEEDED, StoreUnavailableError),
    (RPCStatusCode.RESOURCE_EXHAUSTED, StoreUnavailableError),
    (RPCStatusCode.PERMISSION_DENIED, ConfigurationError),
    (RPCStatusCode.NOT_FOUND, ConversationError),
]


@on_loop
async def test_errors_of_the_server(server: TemporalServer) -> None:
    class Refusing(Interceptor):
        def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
            return Refused(next)

    class Refused(OutboundInterceptor):
        async def query_workflow(self, input: QueryWorkflowInput) -> Any:
            raise RPCError("not now", status, b"")

        async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from RPCError("not now", status, b"")

    client = await Client.connect(server.address, plugins=[DragomanPlugin()], interceptors=[Refusing()])
    talk = TemporalConversation(client, "any")
    for each, expected in REFUSALS:
        status = each
        with pytest.raises(expected):
            await talk.conversation()
        with pytest.raises(StoreUnavailableError, match="not now"):
            await talk.say("hi")


def test_secrets_and_options_that_a_workflow_cannot_have_are_refused() -> None:
    client = None
    server = HostedMcp(name="wiki", url="https://mcp.example", token="secret")
    for options in (ModelOptions(extra_headers={"x": "y"}), ModelOptions(server_tools=(server,))):
        with pytest.raises(ConfigurationError, match="Headers and tokens are secrets"):
            asyncio.run(TemporalConversation.start(client, agent="a", options=options))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no setting 'hooks'"):
        Agent("openai:gpt-4o", hooks=[])
    with pytest.raises(ConfigurationError, match="heartbeat and timeout"):
        Agent("openai:gpt-4o", timeout=inf)
    with pytest.raises(ConfigurationError, match="cannot run inside a workflow"):
        Agent("openai:gpt-4o", context=[lambda conversation, _: conversation])


@on_loop
async def test_a_result_that_is_too_large_for_the_server(server: TemporalServer) -> None:
    @tool
    def much() -> str:
        """Much."""
        return "ä" * 999_000

    async with talking(
        server, scripted(Message.assistant(ToolCall("1", "much", "{}")), "too much", tools=[much])
    ) as talk:
        assert (await talk.say("go")).text == "too much"
        result = (await talk.conversation()).messages[2].tool_results[0]
        assert "too large to be passed on" in result.text


# --- workers that go away ---------------------------------------------------------------------------------------------


@on_loop
async def test_a_call_of_a_lost_worker_waits_for_a_person(server: TemporalServer, base_url: str, traces: Path) -> None:
    queue = new_queue()
    client = await Client.connect(server.address, plugins=[DragomanPlugin()])
    async with working(server.address, agents(base_url, traces), queue=queue):
        talk = await TemporalConversation.start(client, agent="clerk", task_queue=queue)
        turn = asyncio.create_task(talk.say("slow s"))
        await until(lambda: traces_in(traces))
    async with working(server.address, agents(base_url, traces), queue=queue):
        outcome = await asyncio.wait_for(turn, 60)
        assert [each.reason for each in outcome.pending] == [UNCERTAIN]
        assert "was denied: enough" in (await talk.deny(*outcome.pending, reason="enough")).text
    assert traces_in(traces)["begin slow 2"] == 1


@on_loop
async def test_a_turn_without_an_answer_says_so(server: TemporalServer) -> None:
    ran: list[str] = []

    @tool
    def purge(scope: str = "everything") -> str:
        """Purge."""
        ran.append(scope)
        return "purged"

    cut = Message(role="assistant", blocks=(ToolCall("1", "purge", ""),), stop_reason=StopReason.MAX_TOKENS)
    half = Message(role="assistant", blocks=(Text("Half"),), stop_reason=StopReason.MAX_TOKENS)
    said = ["Hello.", "", "", cut, cut, half, "", "There."]
    config = ToolConfig(tool_choice="required")
    given = scripted(*said, tools=[purge], tool_config=config)
    engine: Any = given["scripted"].engine
    async with talking(server, given) as talk:
        assert (await talk.say("Hi")).text == "Hello."
        silent = await talk.say("And now?")
        assert (silent.ending, silent.text, silent.stop_reason) == ("no_answer", "", StopReason.END)
        assert "twice in a row" in silent.note
        assert (await talk.standing()).text == "", "not the answer of an earlier turn"
        lost = await talk.say("Purge.")
        assert (lost.ending, lost.stop_reason, ran) == ("no_answer", StopReason.MAX_TOKENS, [])
        half_said = await talk.say("And?")
        assert (half_said.ending, half_said.text, half_said.stop_reason) == ("done", "Half", StopReason.MAX_TOKENS)
        assert "max_tokens" in half_said.note
        there = await talk.say("Still there?")
        assert (there.ending, there.text, there.note) == ("done", "There.", "")
        assert (await talk.conversation()).is_valid
    choices = [each.options and each.options.tool_choice for each in engine.calls]
    assert choices == ["required", "required", "required", "required", "auto", "required", "required", "required"]
