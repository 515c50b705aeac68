"""What a turn leaves behind is freed at once: it does not wait for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from bench.crossings import MODELS
from dragoman import ChatClient, ScriptedEngine, agent_tool
from dragoman.conversation import Message, ToolCall
from dragoman.simulator import Reply, Simulator


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", MODELS)
def test_a_turn_with_tools_leaves_nothing_for_the_collector(dialect: str, streamed: bool) -> None:
    def turn() -> None:
        if streamed:
            client.stream_chat("Double it.", lambda _event: None)
        else:
            client.chat("Double it.")

    script = [Reply(ToolCall("call_1", "double", '{"number":21}')), "42"] * 2
    with (
        Simulator(script) as simulator,
        ChatClient(MODELS[dialect], [double], key="k", base_url=simulator.base_url(dialect), stateless=True) as client,
    ):
        assert not left_by(turn)


def test_an_agents_turn_leaves_nothing_for_the_collector() -> None:
    inner = ScriptedEngine([Message.assistant(ToolCall("c1", "double", '{"number":21}')), "42"] * 2)
    outer = ScriptedEngine([Message.assistant(ToolCall("c1", "clerk", '{"prompt":"Double 21."}')), "42."] * 2)
    with ChatClient(outer, [agent_tool("clerk", "Computes.", inner, [double])]) as client:
        assert not left_by(lambda: client.chat("Double it."))


def left_by(turn: Callable[[], object]) -> set[type]:
    """What of ours only the collector would free after a turn, but for what is made once."""
    turn()
    gc.collect()
    gc.disable()
    try:
        turn()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return {type(each) for each in gc.garbage if type(each).__module__.startswith("dragoman")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
