"""What agents of agents use is counted once, for everybody who waits for it: limits hold, and sums are the server's.

A tree of agents is drawn: what each of them calls in each round, what a reply costs, and who has which limit. The
server's own count of its requests is the truth.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dragoman.chat import agent_tool, handoff
from dragoman.conversation import ToolCall, Usage
from dragoman.errors import UnknownUsageError
from dragoman.loop import Limits, RunResult
from dragoman.simulator import Cut, Fault, NoResponse, Reply, Request, Simulator, Status
from dragoman.stores import AsyncStore, MemoryStore
from dragoman.tools import Approval, ToolConfig, approve, deny, tool
from tests.chat.talking import WAYS, Stage
from tests.engines.talking import MODELS
from tests.rounds import rounds

MODEL = "openai:gpt-4o"
MOST = 400
"""Tokens of the largest reply."""
PRICE = (2.5e-6, 10e-6)
DEAREST = MOST * PRICE[1]
LITTLE = Limits(tokens=1000)


class Node(NamedTuple):
    """An agent: in each round it calls some of its agents (by number), or tools (by name)."""

    rounds: tuple[tuple[int | str, ...], ...]
    agents: tuple[Node, ...]
    limits: Limits

    @property
    def lanes(self) -> int:
        """How many model calls can be in flight at once."""
        called = [[self.agents[each] for each in one if isinstance(each, int)] for one in self.rounds]
        return max([1, *[sum([each.lanes for each in agents]) for agents in called]])


def limits() -> st.SearchStrategy[Limits]:
    return st.one_of(
        st.just(Limits()),
        st.builds(lambda most: Limits(model_calls=most), st.integers(1, 8)),
        st.builds(lambda most: Limits(tool_calls=most), st.integers(1, 8)),
        st.builds(lambda most: Limits(tokens=most), st.integers(1, 4 * MOST)),
        st.builds(lambda most: Limits(cost=most * DEAREST), st.floats(0.02, 1)),
    )


@st.composite
def nodes(draw: st.DrawFn, depth: int = 4) -> Node:
    """A tree that is at most so deep, and four agents wide."""
    width = draw(st.integers(0, 0 if depth == 1 else 4 if depth == 4 else 2))
    agents = tuple([draw(nodes(depth - 1)) for _ in range(width)])
    called = st.one_of(st.sampled_from(range(width)), st.sampled_from(range(width))) if width else st.nothing()
    one = st.lists(called | st.sampled_from(["look", "ask"]), min_size=1, max_size=4)
    return Node(tuple(map(tuple, draw(st.lists(one, max_size=2)))), agents, draw(limits()))


class Paid(NamedTuple):
    """A reply that the server has sent."""

    path: str
    """The calls that led to it."""
    usage: Usage


class Server:
    """Plays all agents of a tree, and counts."""

    def __init__(self, root: Node, *, hands_over: bool) -> None:
        self.root, self.hands_over = root, hands_over
        self.paid: list[Paid] = []
        self.looked: list[str] = []
        self._lock = threading.Lock()

    def node_of(self, path: str) -> Node:
        node = self.root
        for step in path.split("/")[1:]:
            node = node.agents[int(step.rpartition(":")[2])]
        return node

    def answer(self, request: Request) -> Reply:
        path, turn = request.user_texts[0], request.turns
        with self._lock:
            size = sum(map(ord, path)) * 31 + turn * 97
            usage = Usage(input=size % (MOST // 2) + 1, output=size % 7 + 1)
            self.paid.append(Paid(path, usage))
        if path == "root" and self.hands_over:
            if turn == 0:
                return Reply(ToolCall("over", "other", "{}"), usage=usage)
            turn -= 1
        plan = self.node_of(path).rounds
        if turn >= len(plan) or len(request.user_texts) > 1:
            return Reply("Done.", usage=usage)
        calls = [self._call(path, turn, place, each) for place, each in enumerate(plan[turn])]
        return Reply(*calls, usage=usage)

    @staticmethod
    def _call(path: str, turn: int, place: int, what: int | str) -> ToolCall:
        id = f"c{turn}-{place}"
        if isinstance(what, str):
            return ToolCall(id, what, f'{{"where": "{path}"}}')
        return ToolCall(id, f"agent{what}", f'{{"prompt": "{path}/{turn}.{place}:{what}"}}')

    def tools(self, node: Node) -> list[Any]:
        @tool
        def look(where: str) -> str:
            """Look."""
            self.looked.append(where)
            return "Seen."

        @tool(requires_approval=True)
        def ask(where: str) -> str:
            """Ask."""
            self.looked.append(where)
            return "Asked."

        agents = [
            agent_tool(f"agent{number}", "Helps.", tools=self.tools(each), limits=each.limits)
            for number, each in enumerate(node.agents)
        ]
        return [look, ask, *agents]


def check_limits(server: Server, paid: Sequence[Paid]) -> None:
    """Every agent has kept to its limits in this run, but for what was in flight."""
    for path in {each.path[:end] for each in paid for end in [*_ends(each.path)]}:
        node = server.node_of(path)
        inside = [each.usage for each in paid if each.path == path or each.path.startswith(f"{path}/")]
        asked, tokens, cost = len(inside), sum(map(tokens_of, inside)), sum(map(cost_of, inside))
        most = node.limits
        assert most.model_calls is None or asked <= most.model_calls, path
        assert most.tokens is None or tokens < most.tokens + node.lanes * MOST, path
        assert most.cost is None or cost < most.cost + node.lanes * DEAREST, path


def _ends(path: str) -> Iterator[int]:
    parts = path.split("/")
    for number in range(1, len(parts) + 1):
        yield len("/".join(parts[:number]))


def tokens_of(usage: Usage) -> int:
    return (usage.input or 0) + (usage.output or 0)


def cost_of(usage: Usage) -> float:
    return (usage.input or 0) * PRICE[0] + (usage.output or 0) * PRICE[1]


def check_sums(of: RunResult | Any, paid: Sequence[Paid]) -> None:
    """A run, or a client, knows what the server was paid for."""
    true = Usage.total_of([each.usage for each in paid])
    assert (of.usage.input, of.usage.output, of.usage.partial) == (true.input, true.output, False)
    assert of.cost == pytest.approx(sum([cost_of(each.usage) for each in paid]))


ANSWERS = st.sampled_from(["approve", "approve", "deny", "say"])


@settings(max_examples=rounds(240), suppress_health_check=[HealthCheck.too_slow])
@given(
    root=nodes(),
    way=st.sampled_from(sorted(WAYS)),
    store=st.sampled_from(["none", "kept", "other process"]),
    parallel=st.sampled_from([1, 4]),
    hands_over=st.booleans(),
    answers=st.lists(ANSWERS, min_size=6, max_size=6),
)
def test_limits_hold_and_sums_are_the_servers_own(
    root: Node, way: str, store: str, parallel: int, *, hands_over: bool, answers: list[str]
) -> None:
    server = Server(root, hands_over=hands_over)
    with Simulator(server.answer) as simulator:
        stage, kept = Stage(simulator, MODEL, way), None if store == "none" else MemoryStore()
        tools = server.tools(root)
        if hands_over:
            tools = [*tools, handoff("other", "Takes over.", tools=tools)]
        options: dict[str, Any] = {
            "store": AsyncStore(kept) if kept is not None and "async" in way else kept,
            "limits": root.limits,
            "on_limit": "return",
            "tool_config": ToolConfig(max_parallel_tools=parallel),
        }
        talk = stage.kind(MODEL, tools, streamed=stage.streamed, **stage.engine_options(MODEL), **options)
        try:
            prompt, given = "root", list[Approval]()
            for answer in answers:
                before, looked = len(server.paid), len(server.looked)
                result = talk.chat(prompt, *given)
                paid = server.paid[before:]
                assert result.spent.model_calls == len(paid)
                assert result.spent.tokens == sum([tokens_of(each.usage) for each in paid])
                assert root.limits.tool_calls is None or len(server.looked) - looked <= root.limits.tool_calls
                assert not result.spent.at_least
                check_limits(server, paid)
                check_sums(result, paid)
                check_sums(talk.client, server.paid)
                if not result.pending:
                    break
                if store == "other process":
                    id = talk.client.id
                    talk.close()
                    if kept is not None and "async" in way:
                        options["store"] = AsyncStore(kept)
                    talk = stage.kind(MODEL, tools, streamed=stage.streamed, **stage.engine_options(MODEL), **options)
                    talk.do("restore", id)
                    check_sums(talk.client, server.paid)
                calls = [each.call for each in talk.client.pending]
                prompt = "Never mind." if answer == "say" else None  # type: ignore[assignment]
                given = [] if answer == "say" else [(approve if answer == "approve" else deny)(each) for each in calls]
        finally:
            talk.close()


# --- what servers report ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_usage_below_zero_is_not_believed(model: str, way: str) -> None:
    replies = [Reply("One.", usage=Usage(input=-5_000, output=-7)), Reply("Two.", usage=Usage(input=10, output=-7))]
    with Simulator(replies) as simulator, Stage(simulator, model, way).client() as talk:
        for _ in replies:
            result = talk.chat("Hi")
            counts = (result.spent.tokens, result.usage.input, result.usage.output, result.cost)
            assert min([each or 0 for each in counts]) >= 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_limit_of_tokens_needs_a_server_that_reports_them(model: str, way: str) -> None:
    asked = Reply(ToolCall("call_1", "look", '{"where": "here"}'), usage=Usage())
    server = Server(Node((), (), Limits()), hands_over=False)
    tools = server.tools(server.root)
    with Simulator([asked] * 9) as simulator, Stage(simulator, model, way).client(tools, limits=LITTLE) as talk:
        with pytest.raises(UnknownUsageError, match=talk.client.model):
            talk.chat("Look.")
        assert len(simulator.requests) == 1


# --- calls that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("fault", "known"), [(Status(400), True), (NoResponse(), False), (Cut(after=-40), False)])
def test_a_call_that_breaks_off_is_counted_with_unknown_usage(way: str, fault: Fault, *, known: bool) -> None:
    used = Usage(input=90, output=10)
    script = [
        Reply(ToolCall("c1", "clerk", '{"prompt": "Help."}'), usage=used),
        Reply("Of no use.", usage=used, faults=[fault]),
        Reply("Done.", usage=used),
    ]
    with Simulator(script) as simulator:
        clerk = agent_tool("clerk", "Helps.")
        with Stage(simulator, MODEL, way).client([clerk], limits=Limits(cost=5, tokens=5_000)) as talk:
            result = talk.chat("Go.")
            assert (result.text, len(simulator.requests)) == ("Done.", 3)
            assert (result.spent.model_calls, result.spent.tokens) == (3, 200)  # limits count what is known
            assert result.spent.cost == pytest.approx(2 * cost_of(used))
            for of in (result, talk.client):
                assert (of.usage.input, of.usage.partial) == (180, not known)
                assert of.cost == (pytest.approx(2 * cost_of(used)) if known else None)
            assert result.spent.at_least is not known
