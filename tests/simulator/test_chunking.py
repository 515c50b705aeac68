"""However a reply is cut, it is the same reply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from dragoman.conversation import Text, Thinking, ToolCall
from dragoman.simulator import Chunking, Crlf, Cut, Drip, Gzip, KeepAlive, Reply, Simulator
from tests.simulator.raw_client import DIALECTS, ask
from tests.simulator.reading import said

BLOCKS = (Thinking("Hm, let me see… 🤔", provider=""), Text("Grüße! " * 5), ToolCall("c1", "f", '{"a":"ß","b":[1]}'))


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
@given(delta=st.none() | st.integers(1, 40), drip=st.none() | st.integers(1, 3) | st.integers(1, 5000))
@settings(max_examples=15)
def test_pieces_make_no_difference(
    simulator: Simulator, dialect: str, stream: bool, delta: int | None, drip: int | None
) -> None:
    faults = [] if drip is None else [Drip(drip, 0)]
    simulator.play([Reply(*BLOCKS, chunking=Chunking(delta=delta), faults=faults)])
    answer = ask(simulator, dialect, stream=stream)
    assert answer.complete
    found = said(dialect, answer, stream=stream)
    assert (found.text, found.thinking) == ("Grüße! " * 5, "Hm, let me see… 🤔")
    assert found.calls == [("c1", "f", {"a": "ß", "b": [1]})]
    if stream and drip is None:
        assert len(answer.chunks) == len(answer.events)
    elif stream and drip is not None:
        assert max(map(len, answer.chunks)) <= drip
        assert {len(chunk) for chunk in answer.chunks[:-1]} <= {drip}


@pytest.mark.parametrize("dialect", DIALECTS)
@given(
    faults=st.lists(st.sampled_from([Crlf(), KeepAlive(), Gzip(), Drip(7, 0)]), max_size=4), share=st.floats(0.0, 1.0)
)
@settings(max_examples=15)
def test_a_cut_leaves_a_beginning(simulator: Simulator, dialect: str, faults: list[Crlf], share: float) -> None:
    """Whatever else is going on, what arrives is a beginning of what would have arrived."""
    simulator.play(lambda request: Reply(*BLOCKS, faults=faults))
    whole = ask(simulator, dialect, stream=True)
    simulator.play(lambda request: Reply(*BLOCKS, faults=[*faults, Cut("end", share=share)]))
    cut = ask(simulator, dialect, stream=True)
    if Gzip() in faults:  # half a stream of compressed bytes gives half a stream of plain ones
        assert len(cut.body) <= len(whole.body)
        return
    sent = sum(map(len, whole.chunks))
    assert sum(map(len, cut.chunks)) == int(sent * share)
