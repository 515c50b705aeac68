"""A run whose steps a workflow engine keeps: killed at every moment and replayed, in any order of ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from random import Random

import msgspec
import pytest

from dragoman.chat import agent_tool
from dragoman.conversation import Conversation, Message, StopReason, Text, ToolCall, ToolResult, Usage
from dragoman.engines import AsyncEngine, AsyncScriptedEngine, ReplyCall, async_engine
from dragoman.errors import (
    DragomanError,
    OverloadedError,
    StepLimitError,
    ToolAbortedError,
    describe_error,
    recreate_error,
)
from dragoman.loop import (
    UNCERTAIN,
    AsyncOrchestrator,
    AwaitApproval,
    Cancelled,
    Done,
    LimitReached,
    Limits,
    LoopHooks,
    LoopRun,
    NoAnswer,
    RunResult,
    Spent,
)
from dragoman.providers import ModelOptions, Profile
from dragoman.simulator import Reply as SimulatedReply, Simulator
from dragoman.tools import ToolConfig, ToolErrorHandling, ToolExecutor, ToolRun, approve, deny, tool

ASKED = Conversation("Be brief.").plus(Message.user("Charge and look."))
SCRIPT = [
    Message.assistant(ToolCall("c1", "charge", '{"who": "Ada"}'), ToolCall("c2", "look", '{"where": "there"}')),
    Message.assistant(ToolCall("c1", "charge", '{"who": "Bo"}')),  # ids are used again by some providers
    "Both are charged.",
]


class Killed(BaseException):
    """The process died here."""


class Keeper:
    """A workflow engine in memory: what was kept outlives the process, which dies at a chosen moment."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.begun: list[str] = []
        """The keys in the order in which their steps began, in this life."""
        self.moments: int = 0
        self.dies_at: int | None = None

    def moment(self) -> None:
        self.moments += 1
        # What comes later does not happen, even where an exception is caught on its way.
        if self.dies_at is not None and self.moments >= self.dies_at:
            raise Killed

    async def step(self, key: str, function: Callable[[], Awaitable[str]]) -> str:
        self.begun.append(key)
        if key not in self.kept:
            self.moment()
            result = await function()
            self.moment()
            self.kept[key] = result
        return self.kept[key]

    def restart(self, dies_at: int | None = None) -> None:
        self.begun, self.moments, self.dies_at = [], 0, dies_at


class World:
    """What tools do to the world, which no replay takes back."""

    def __init__(self, keeper: Keeper) -> None:
        self.charged: Counter[str] = Counter()
        self.looks: int = 0

        @tool
        async def charge(who: str) -> str:
            """Take somebody's money."""
            keeper.moment()
            self.charged[who] += 1
            keeper.moment()
            return f"{who} paid"

        @tool(idempotent=True)
        async def look(where: str) -> str:
            """Look somewhere."""
            self.looks += 1
            await asyncio.sleep(0)
            return f"nothing {where}"

        self.tools = [charge, look]


def run(
    keeper: Keeper, world: World, script: list[Message | str | Exception] | None = None, **given: object
) -> RunResult:
    asked = given.pop("conversation", ASKED)

    async def turn() -> RunResult:
        said = SCRIPT if script is None else script
        # In a new life the script goes on behind what is kept already.
        said = said[len([key for key in keeper.kept if key.startswith("model/")]) :]
        async with AsyncOrchestrator(AsyncScriptedEngine(said), world.tools) as loop:
            return await loop.run(asked, step=keeper.step, **given)  # type: ignore[arg-type]

    return asyncio.run(turn())


def test_keys_come_from_ids_and_steps_begin_in_the_order_of_calls() -> None:
    keeper = Keeper()
    result = run(keeper, world := World(keeper))
    assert isinstance(result.ending, Done)
    assert (str(result), dict(world.charged)) == ("Both are charged.", {"Ada": 1, "Bo": 1})
    assert keeper.begun == [
        "model/1",
        "begin/c1",
        "tool/c1",
        "tool/c2",
        "model/2",
        "begin/c1#2",
        "tool/c1#2",
        "model/3",
    ]


def test_a_replay_calls_nobody_and_gives_the_same_result() -> None:
    keeper = Keeper()
    first = run(keeper, World(keeper))
    keeper.restart()
    again = run(keeper, world := World(keeper))
    assert again.conversation == first.conversation
    assert (world.charged.total(), world.looks) == (0, 0)


@pytest.mark.parametrize("ends", [False, True])
def test_replies_that_are_no_answer_are_judged_alike_in_every_life(ends: bool) -> None:
    """The model is asked again once, wherever the process dies, and no call of a cut reply runs."""
    call = ToolCall("c1", "charge", '{"who": "Ada"}')
    cut = Message(role="assistant", blocks=(call,), stop_reason=StopReason.MAX_TOKENS)
    script: list[Message | str | Exception] = [cut, "" if ends else "Sorry.", "never"]
    for dies_at in range(1, 6):
        keeper = Keeper()
        keeper.dies_at = dies_at
        world = World(keeper)
        with suppress(Killed):
            run(keeper, world, script)
        keeper.restart()
        result = run(keeper, world, script)
        assert isinstance(result.ending, NoAnswer if ends else Done)
        assert result.conversation.is_valid
        assert (keeper.begun, world.charged.total()) == (["model/1", "model/2"], 0)


def _moments() -> int:
    keeper = Keeper()
    run(keeper, World(keeper))
    return keeper.moments


@pytest.mark.parametrize("dies_at", range(1, _moments() + 1))
def test_killed_at_any_moment_nothing_is_done_twice(dies_at: int) -> None:
    keeper = Keeper()
    world = World(keeper)
    keeper.restart(dies_at)
    with pytest.raises(Killed):
        run(keeper, world)
    before = world.charged.copy()
    keeper.restart()
    result = run(keeper, world)
    while isinstance(result.ending, AwaitApproval):
        (waits,) = result.pending
        assert waits.reason == UNCERTAIN
        who = "Ada" if "Ada" in waits.call.arguments else "Bo"
        assert world.charged[who] == before[who]  # a person can look, and says what is right
        answer = deny(waits.call, reason="It was paid.") if world.charged[who] else approve(waits.call)
        # What was kept belongs to the run that ended; the next run of a workflow has keys of its own.
        left = SCRIPT[1:] if who == "Ada" else SCRIPT[2:]
        keeper.kept.clear()
        result = run(keeper, world, left, conversation=result.conversation, approvals=[answer])
    assert isinstance(result.ending, Done)
    assert str(result) == "Both are charged."
    assert world.charged == {"Ada": 1, "Bo": 1}


def test_an_unanswered_uncertain_call_stays_pending() -> None:
    keeper = Keeper()
    world = World(keeper)
    keeper.restart(8)
    with pytest.raises(Killed):
        run(keeper, world)
    keeper.restart()
    first = run(keeper, world)
    assert [each.reason for each in first.pending] == [UNCERTAIN]
    keeper.kept.clear()
    again = run(keeper, world, ["?"], conversation=first.conversation, waiting=first.pending)
    assert (again.pending, again.conversation, keeper.kept) == (first.pending, first.conversation, {})
    assert world.charged == {"Ada": 1}


def test_parallel_calls_keep_their_results_in_any_order() -> None:
    class Uneven(Keeper):
        async def step(self, key: str, function: Callable[[], Awaitable[str]]) -> str:
            result = await super().step(key, function)
            for _ in range({"tool/a": 9, "tool/b": 5}.get(key, 0)):  # the first call is the last to end
                await asyncio.sleep(0)
            return result

    keeper = Uneven()
    looks = [ToolCall(name, "look", f'{{"where": "{name}"}}') for name in "abc"]
    results = []
    for _ in range(2):
        result = run(keeper, World(keeper), [Message.assistant(*looks), "Seen."])
        results.append([each.text for each in result.conversation.messages[2].tool_results])
        assert [key for key in keeper.begun if key.startswith("tool/")] == ["tool/a", "tool/b", "tool/c"]
        keeper.restart()
    assert results == [["nothing a", "nothing b", "nothing c"]] * 2


@pytest.mark.parametrize("dies_at", [*range(3, 20, 3), None])
def test_an_engine_that_numbers_steps_sees_the_same_numbers_on_replay(dies_at: int | None) -> None:
    class Numbering(Keeper):
        async def step(self, key: str, function: Callable[[], Awaitable[str]]) -> str:
            number = len(self.begun)
            self.begun.append(key)
            if str(number) not in self.kept:
                self.moment()
                result = f"{key} {await function()}"
                await asyncio.sleep(chance.random() / 200)
                self.moment()
                self.kept[str(number)] = result
            name, _, result = self.kept[str(number)].partition(" ")
            assert name == key
            return result

    async def turn(keeper: Numbering) -> RunResult:
        script = [Message.assistant(*calls), "Seen."]
        engine = AsyncScriptedEngine(script[sum(kept.startswith("model/") for kept in keeper.kept.values()) :])
        async with AsyncOrchestrator(engine, World(keeper).tools, ToolConfig(max_parallel_tools=3)) as loop:
            return await loop.run(ASKED, step=keeper.step)

    chance = Random(dies_at)
    calls = [ToolCall(name, "look", f'{{"where": "{name}"}}') for name in "abcdefgh"]
    keeper = Numbering()
    keeper.restart(dies_at)
    if dies_at is not None:
        with pytest.raises(Killed):
            asyncio.run(turn(keeper))
    keeper.restart()
    result = asyncio.run(turn(keeper))
    assert [each.text for each in result.conversation.messages[2].tool_results] == [f"nothing {c}" for c in "abcdefgh"]
    keeper.restart()
    assert asyncio.run(turn(keeper)).conversation == result.conversation


def test_calls_of_one_message_share_one_begin_step() -> None:
    keeper = Keeper()
    charges = [ToolCall(f"c{number}", "charge", f'{{"who": "{number}"}}') for number in range(8)]  # more than the cap
    result = run(keeper, world := World(keeper), [Message.assistant(*charges), "Charged."])
    assert keeper.begun == ["model/1", "begin/c0", *[f"tool/c{number}" for number in range(8)], "model/2"]
    assert world.charged == {str(number): 1 for number in range(8)}
    assert [each.text for each in result.conversation.messages[2].tool_results] == [f"{n} paid" for n in range(8)]


def test_ids_that_look_like_numbered_ones_have_keys_of_their_own() -> None:
    keeper = Keeper()
    ids = ["a", "a", "a#2"]
    script = [*[Message.assistant(ToolCall(each, "charge", f'{{"who": "{n}"}}')) for n, each in enumerate(ids)], "!"]
    run(keeper, world := World(keeper), script)
    assert world.charged == {"0": 1, "1": 1, "2": 1}
    assert len(set(keeper.begun)) == len(keeper.begun)


def test_a_call_that_middleware_gives_to_another_tool_is_not_repeated() -> None:
    keeper = Keeper()
    world = World(keeper)

    def renames(call: ToolCall, _run: ToolRun) -> Generator[ToolCall | None, ToolResult, None]:
        yield msgspec.structs.replace(call, name="charge")

    async def turn() -> RunResult:
        script = [Message.assistant(ToolCall("c1", "pay", '{"who": "Ada"}')), "Paid."]
        script = script[len([key for key in keeper.kept if key.startswith("model/")]) :]
        with ToolExecutor(world.tools, middleware=[renames]) as executor:
            async with AsyncOrchestrator(AsyncScriptedEngine(script), executor) as loop:
                return await loop.run(ASKED, step=keeper.step)

    keeper.restart(7)  # the model and the beginning are kept, and the money is taken
    with pytest.raises(Killed):
        asyncio.run(turn())
    assert world.charged == {"Ada": 1}
    keeper.restart()
    result = asyncio.run(turn())
    assert [each.reason for each in result.pending] == [UNCERTAIN]
    assert world.charged == {"Ada": 1}


def test_a_step_function_called_again_does_not_repeat_the_call() -> None:
    class Again(Keeper):
        async def step(self, key: str, function: Callable[[], Awaitable[str]]) -> str:
            if key == "tool/c1":
                await function()  # and then the connection to the engine's own database broke
            return await super().step(key, function)

    keeper = Again()
    result = run(keeper, world := World(keeper))
    assert [(each.call.id, each.reason) for each in result.pending] == [("c1", UNCERTAIN)]
    assert (world.charged, world.looks) == ({"Ada": 1}, 1)


def test_an_idempotent_call_that_is_repeated_costs_its_budget_once() -> None:
    class Again(Keeper):
        async def step(self, key: str, function: Callable[[], Awaitable[str]]) -> str:
            if key == "tool/c1":
                await function()
            return await super().step(key, function)

    async def turn() -> RunResult:
        keeper = Again()
        engine = AsyncScriptedEngine([Message.assistant(ToolCall("c1", "look", '{"where": "here"}')), "Seen."])
        async with AsyncOrchestrator(engine, World(keeper).tools, ToolConfig(budgets={"look": 1})) as loop:
            return await loop.run(ASKED, step=keeper.step)

    assert [each.text for each in asyncio.run(turn()).conversation.messages[2].tool_results] == ["nothing here"]


def test_functions_may_be_called_in_another_thread_with_a_loop_of_its_own() -> None:
    class Elsewhere(Keeper):
        async def step(self, key: str, function: Callable[[], Awaitable[str]]) -> str:
            async def call() -> str:
                return await function()

            return await asyncio.to_thread(asyncio.run, call())

    @tool(idempotent=True)
    async def look(where: str) -> str:
        """Look somewhere."""
        await asyncio.sleep(0.05)
        return f"nothing {where}"

    async def turn(base_url: str) -> RunResult:
        keeper = Elsewhere()
        async with (
            async_engine("openai-compatible:any", base_url=base_url, key="k") as engine,
            AsyncOrchestrator(engine, [look], ToolConfig(max_parallel_tools=1)) as loop,
        ):
            result = await loop.run(ASKED, step=keeper.step)
            return await loop.run(result.conversation.plus(Message.user("Again.")), step=keeper.step)

    calls = [ToolCall(name, "look", f'{{"where": "{name}"}}') for name in "abc"]
    with Simulator([SimulatedReply(*calls), "Seen.", SimulatedReply(*calls), "Seen again."]) as simulator:
        result = asyncio.run(turn(simulator.base_url("openai")))
    assert str(result) == "Seen again."
    assert [each.text for each in result.conversation.messages[2].tool_results] == [f"nothing {name}" for name in "abc"]


def test_results_are_reported_once() -> None:
    told: list[str] = []

    async def turn(keeper: Keeper) -> None:
        script = SCRIPT[len([key for key in keeper.kept if key.startswith("model/")]) :]
        with ToolExecutor(World(keeper).tools, on_result=lambda call, _result: told.append(call.id)) as executor:
            async with AsyncOrchestrator(AsyncScriptedEngine(script), executor) as loop:
                await loop.run(ASKED, step=keeper.step)

    keeper = Keeper()
    asyncio.run(turn(keeper))
    assert sorted(told) == ["c1", "c1", "c2"]
    asyncio.run(turn(keeper))
    assert len(told) == 3  # a replay runs no tool


# --- stopped in the middle --------------------------------------------------------------------------------------------


class NeverAnswers(AsyncEngine):
    """Hangs when it is asked."""

    def __init__(self) -> None:
        self.name, self.profile, self.options = (
            "never",
            Profile(provider="never", dialect="openai_chat"),
            ModelOptions(),
        )
        self.asked: int = 0

    def call(self, *_given: object, stream: bool) -> ReplyCall:
        del stream
        engine = self

        class Hanging(ReplyCall):
            async def advance(self) -> None:
                engine.asked += 1
                await asyncio.sleep(3600)

        return Hanging()


@pytest.mark.parametrize("how", ["limit", "cancel"])
def test_a_model_that_hangs_is_stopped_and_a_replay_ends_the_same(how: str) -> None:
    keeper, engine = Keeper(), NeverAnswers()

    class CancelsSoon(LoopHooks):
        def before_model(self, run: LoopRun) -> None:
            if not keeper.kept:
                asyncio.get_running_loop().call_later(0.05, run.cancel)

    async def turn() -> RunResult:
        limits = Limits(seconds=0.1) if how == "limit" else Limits()
        hooks = [] if how == "limit" else [CancelsSoon()]
        async with AsyncOrchestrator(engine, (), limits=limits, on_limit="return", hooks=hooks) as loop:
            return await asyncio.wait_for(loop.run(ASKED, step=keeper.step), 30)

    for _ in range(2):
        ending = asyncio.run(turn()).ending
        assert ending == (LimitReached("seconds", 0.1) if how == "limit" else Cancelled())
    assert (engine.asked, list(keeper.kept)) == (1, ["model/1"])


def test_foreign_errors_are_left_to_the_workflow_engine() -> None:
    class Broken(NeverAnswers):
        def call(self, *_given: object, stream: bool) -> ReplyCall:
            raise ZeroDivisionError

    async def turn() -> None:
        async with AsyncOrchestrator(Broken(), ()) as loop:
            await loop.run(ASKED, step=keeper.step)

    keeper = Keeper()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(turn())
    assert not keeper.kept


def test_a_run_left_during_parallel_calls_can_be_continued() -> None:
    ada_paid = asyncio.Event()

    class Watched(Keeper):
        async def step(self, key: str, function: Callable[[], Awaitable[str]]) -> str:
            result = await super().step(key, function)
            if key == "tool/Ada":
                ada_paid.set()
            return result

    keeper = Watched()
    done: list[str] = []

    @tool
    async def charge(who: str) -> str:
        """Take somebody's money."""
        done.append(who)
        await asyncio.sleep(0 if who == "Ada" else 3600)
        return f"{who} paid"

    calls = [ToolCall(who, "charge", f'{{"who": "{who}"}}') for who in ("Bo", "Ada", "Cy")]

    async def turn(*, leaves: bool) -> RunResult:
        script = [Message.assistant(*calls), "Paid."][len([key for key in keeper.kept if key.startswith("model/")]) :]
        async with AsyncOrchestrator(AsyncScriptedEngine(script), [charge]) as loop:
            task = asyncio.ensure_future(loop.run(ASKED, step=keeper.step))
            if leaves:
                await asyncio.wait_for(ada_paid.wait(), 30)
                task.cancel()
            return await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(turn(leaves=True))
    assert sorted(done) == ["Ada", "Bo", "Cy"]
    assert [key for key in keeper.kept if key.startswith("tool/")] == ["tool/Ada"]
    result = asyncio.run(turn(leaves=False))
    assert [(each.call.id, each.reason) for each in result.pending] == [("Bo", UNCERTAIN), ("Cy", UNCERTAIN)]
    assert [each.text for each in result.conversation.messages[2].tool_results] == ["Ada paid"]
    assert len(done) == 3


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_stored_model_error_is_raised_with_its_type() -> None:
    keeper = Keeper()
    for script in ([OverloadedError("busy", retry_after=2.0, status=529)], []):
        with pytest.raises(OverloadedError, match="busy") as caught:
            run(keeper, World(keeper), script)
        assert (caught.value.retry_after, caught.value.status) == (2.0, 529)
        assert caught.value.conversation == ASKED


def test_the_abort_policy_applies() -> None:
    @tool(idempotent=True)
    def fails() -> str:
        """Never works."""
        message = "no"
        raise RuntimeError(message)

    async def turn() -> None:
        engine = AsyncScriptedEngine([Message.assistant(ToolCall("c1", "fails", "{}")), "?"])
        config = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)
        async with AsyncOrchestrator(engine, [fails], config) as loop:
            await loop.run(ASKED, step=Keeper().step)

    with pytest.raises(ToolAbortedError, match="no"):
        asyncio.run(turn())


def test_the_abort_policy_applies_to_error_results() -> None:
    @tool(idempotent=True)
    def fails() -> ToolResult:
        """Never works, and says so itself."""
        return ToolResult("", "", (Text("no"),), is_error=True)

    async def turn() -> None:
        engine = AsyncScriptedEngine([Message.assistant(ToolCall("c1", "fails", "{}")), "?"])
        config = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)
        async with AsyncOrchestrator(engine, [fails], config) as loop:
            await loop.run(ASKED, step=Keeper().step)

    with pytest.raises(ToolAbortedError, match="no"):
        asyncio.run(turn())


def test_usage_is_carried_into_the_next_run() -> None:
    keeper = Keeper()
    first = run(keeper, World(keeper))
    assert (first.spent.steps, first.spent.model_calls, first.spent.tool_calls) == (3, 3, 3)

    async def turn(spent: Spent) -> RunResult:
        async with AsyncOrchestrator(AsyncScriptedEngine(["And?"]), (), limits=Limits(model_calls=4)) as loop:
            return await loop.run(first.conversation.plus(Message.user("Go on.")), spent=spent)

    second = asyncio.run(turn(first.spent))
    assert second.spent.model_calls == 4
    with pytest.raises(DragomanError, match="4 model calls") as caught:
        asyncio.run(turn(second.spent))
    assert not isinstance(caught.value, StepLimitError)


def test_an_error_survives_a_process_boundary() -> None:
    error = OverloadedError("busy", hint="Wait.", status=529, retry_after=1.5, provider="x", model="y")
    told = describe_error(error)
    again = recreate_error(told)
    assert (type(again), str(again), vars(again)) == (OverloadedError, str(error), vars(again) | vars(error))
    newer = recreate_error({**told, "error": "InventedError", "field": 1})
    assert (type(newer), newer.message) == (DragomanError, "busy")


# --- what agents use --------------------------------------------------------------------------------------------------


def _uses(message: Message) -> Message:
    return msgspec.structs.replace(message, usage=Usage(input=9, output=1, charged=0.5))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(), 2 + 3 * 20),
        (Limits(model_calls=9), 9),
        (Limits(tool_calls=9), 2 + 3 * 3),
        (Limits(tokens=90), 9 + 3),
        (Limits(cost=4.5), 9 + 3),
    ],
    ids=["none", "model_calls", "tool_calls", "tokens", "cost"],
)
def test_agents_share_what_is_left_of_the_limits_and_are_counted(limits: Limits, most: int) -> None:
    class Priced(AsyncScriptedEngine):
        priced = True

    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    def lives() -> tuple[RunResult, list[Priced]]:
        calling = Message.assistant(*[ToolCall(f"c{number}", "clerk", '{"prompt": "x"}') for number in range(3)])
        boss = Priced(map(_uses, [calling, Message.assistant("Done.")]))
        clerk = Priced([_uses(Message.assistant(ToolCall("l", "look", "{}")))] * 99)
        agent = agent_tool("clerk", "Looks.", clerk, [look])

        async def turn() -> RunResult:
            async with AsyncOrchestrator(boss, [agent], limits=limits, on_limit="return") as loop:
                return await loop.run(ASKED, step=keeper.step)

        return asyncio.run(turn()), [boss, clerk]

    keeper = Keeper()
    result, engines = lives()
    asked = sum([len(each.calls) for each in engines])
    assert asked <= most
    assert result.spent.model_calls == asked
    assert (result.spent.tokens, result.usage.tokens, result.cost) == (10 * asked, 10 * asked, 0.5 * asked)
    assert result.spent.tool_calls <= (limits.tool_calls or 999)
    keeper.restart()
    again, _ = lives()  # from what is kept
    assert (again.usage, again.cost) == (result.usage, result.cost)
    assert msgspec.structs.replace(again.spent, seconds=0) == msgspec.structs.replace(result.spent, seconds=0)
