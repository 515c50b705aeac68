"""Policies that begin at a share of the context window, for models whose window nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import (
    AsyncChatClient,
    AsyncOrchestrator,
    ChatClient,
    DropToolResults,
    Orchestrator,
    Summarise,
    ToolCall,
)
from dragoman.chat import handoff
from dragoman.engines import ScriptedEngine, async_engine, engine
from dragoman.errors import ConfigurationError
from dragoman.fleet import Agent as FleetAgent
from dragoman.loop import LoopHooks
from dragoman.simulator import Reply, Simulator
from dragoman.stores import AsyncStore, MemoryStore
from dragoman.temporal import Agent as TemporalAgent

UNKNOWN: Any = "openai-compatible:mine"
KNOWN: Any = "openai:gpt-5"
PLACE: Any = {"key": "k", "base_url": "http://127.0.0.1:9/v1"}
SHARE = [DropToolResults(), Summarise(above=0.5)]
TOKENS = [DropToolResults(above_tokens=10_000), Summarise(above_tokens=10_000)]


def client(model: Any, policies: Any) -> object:
    return ChatClient(model, context=policies, **PLACE)


def async_client(model: Any, policies: Any) -> object:
    return AsyncChatClient(model, context=iter(policies), **PLACE)


def orchestrator(model: Any, policies: Any) -> object:
    return Orchestrator(engine(model, **PLACE), context=policies)


def async_orchestrator(model: Any, policies: Any) -> object:
    return AsyncOrchestrator(async_engine(model, **PLACE), context=policies)


def switched(model: Any, policies: Any) -> object:
    talk = ChatClient(KNOWN, context=policies, **PLACE)
    talk.switch(model, **PLACE)
    return talk


def switched_async(model: Any, policies: Any) -> object:
    async def main() -> object:
        talk = AsyncChatClient(KNOWN, context=policies, **PLACE)
        await talk.switch(model, **PLACE)
        return talk

    return asyncio.run(main())


def forked_and_changed(model: Any, policies: Any) -> object:
    """The same engine again is no news."""
    talk = ChatClient(model, context=policies, **PLACE)
    talk.set_tools([])
    talk.system = "Be brief."
    return talk.fork()


def in_a_fleet(model: Any, policies: Any) -> object:
    agent = FleetAgent(model, context=policies, **PLACE)
    for number in range(2):
        agent.make_client(f"018f3c5e-7a10-7cc3-98c4-dc0c0c07398{number}", AsyncStore(MemoryStore()), LoopHooks())
    return agent


def on_temporal(model: Any, policies: Any) -> object:
    agent = TemporalAgent(model, context=policies, **PLACE)
    assert agent.facts == agent.facts
    return agent


WAYS = [
    client,
    async_client,
    orchestrator,
    async_orchestrator,
    switched,
    switched_async,
    forked_and_changed,
    in_a_fleet,
    on_temporal,
]


@pytest.mark.parametrize("begin", WAYS)
def test_a_policy_that_would_never_begin_is_told_once(
    begin: Callable[[Any, Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    begin(UNKNOWN, SHARE)
    [record] = caplog.records
    assert (record.name, record.levelname) == ("dragoman.loop", "WARNING")
    assert record.message.startswith("openai-compatible:mine: DropToolResults(above=0.7) never begins")
    assert "above_tokens=" in record.message
    assert 'profile={"context_window": …}' in record.message


@pytest.mark.parametrize("begin", WAYS)
@pytest.mark.parametrize(("model", "policies"), [(UNKNOWN, TOKENS), (KNOWN, SHARE), (UNKNOWN, [])])
def test_one_that_begins_or_is_not_there_is_not_told(
    begin: Callable[[Any, Any], object], model: Any, policies: Any, caplog: pytest.LogCaptureFixture
) -> None:
    begin(model, policies)
    assert caplog.records == []


def test_a_handoff_to_such_a_model_is_told_when_it_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    with Simulator([Reply(ToolCall("1", "other", "{}")), "Here.", "Again."]) as simulator:
        place: Any = {"key": "k", "base_url": simulator.base_url("openai")}
        other = handoff("other", "Another.", UNKNOWN, context=SHARE, **place)
        with ChatClient("openai:gpt-4o", [other], **place) as talk:
            talk.chat("Go.")
            talk.chat("Go on.")
    assert [each.name for each in caplog.records if "never begins" in each.message] == ["dragoman.loop"]


@pytest.mark.parametrize("window", [None, 1_000_000, 3_000])
def test_tokens_need_no_window_and_whichever_comes_first_counts(window: int | None) -> None:
    model = ScriptedEngine(["Yes."] * 40)
    model.profile = model.profile.__class__(provider="other", dialect="other", context_window=window)
    with ChatClient(model, context=[Summarise(above=0.5, above_tokens=2_000, keep=1)]) as talk:
        lengths: list[int] = []
        for _ in range(10):
            talk.chat("x" * 2_000)  # some 500 tokens
            lengths.append(len(talk.history))
    assert max(lengths) == (5 if window == 3_000 else 7)
    assert "[Summary" in talk.history[0].text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"above": 30_000}, "above of"), ({"above_tokens": -1}, "above_tokens of"), ({"abov": 1}, "above")],
)
def test_a_share_is_no_number_of_tokens(wrong: Any, words: str) -> None:
    for policy in (DropToolResults, Summarise):
        with pytest.raises(ConfigurationError, match=words):
            policy(**wrong)
