"""What a turn leaves behind is freed at once: it does not wait for the garbage collector."""

from __future__ import annotations

import gc

import pytest

from bench.crossings import MODELS
from dragoman import ChatClient
from dragoman.conversation import ToolCall
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
        turn()  # with what is made once
        gc.collect()
        gc.disable()
        try:
            turn()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = {type(each) for each in gc.garbage if type(each).__module__.startswith("dragoman")}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not left
