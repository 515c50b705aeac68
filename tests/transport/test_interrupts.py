"""Ctrl-C at any moment of plain turns: the next turn on the same transport goes well, and nothing stays open."""

from __future__ import annotations

import gc
import json
from contextlib import suppress

import pytest

from dragoman import ChatClient, Engine, engine
from dragoman.transport import PoolLimits, SocketTransport
from tests.chat.interrupting import Interrupting, in_a_thread_of_its_own
from tests.rounds import PROFILE
from tests.transport.replies import DIALECTS, Say
from tests.transport.server import Exchange, Server

MODEL = DIALECTS["openai_chat"]
STEP = 1 if PROFILE == "thorough" else 5
"""Every moment, or one of so many."""
ROOMS = ("transport", "engines", "_stop", "_stepping", "_descriptors")


async def answer(exchange: Exchange) -> None:
    asked = json.loads(exchange.body)
    say = Say(f"You said {asked['messages'][-1]['content']}.", pieces=3)
    if not asked.get("stream"):
        await exchange.reply(MODEL.body(say), headers={"content-type": "application/json"})
        return
    await exchange.start(headers={"content-type": "text/event-stream"})
    for event in MODEL.stream(say):
        await exchange.chunk(event)
    await exchange.end()


def _talk(model: Engine, word: str) -> None:
    """A whole reply on a new connection, and a streamed one on the same."""
    with ChatClient(model) as client:
        assert client.chat(word).text == f"You said {word}."
        with client.stream_chat(f"{word} again") as stream:
            for _ in stream:
                pass
        assert client.history[-1].text == f"You said {word} again."


def _interrupt_at(at: int, server: Server) -> bool:
    interrupting = Interrupting(at, ROOMS)
    try:
        with SocketTransport(limits=PoolLimits(connections=1, wait=2.0), environ={}) as transport:
            model = engine(MODEL.model, key="k", base_url=server.url + MODEL.base, transport=transport)
            with suppress(KeyboardInterrupt), interrupting.at_work():
                _talk(model, f"before {at}")
            _talk(model, f"after {at}")  # with the one connection that there may be
        gc.collect()
        server.wait_for_open(0)
    except BaseException as error:
        error.add_note(f"interrupted at {interrupting.where}")
        raise
    return interrupting.moments > at


@pytest.mark.slow
# Between making a coroutine and beginning it Python does not look for signals; the trace function does not know. In a
# finaliser Python drops every exception.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_program_goes_on_after_an_interrupt() -> None:
    def every_moment() -> None:
        at = 0
        while _interrupt_at(at, server):
            at += STEP
        assert at > 500

    gc.freeze()  # what other tests have left would be looked through each time
    try:
        with Server({"*": answer}) as server:
            in_a_thread_of_its_own(every_moment)
    finally:
        gc.unfreeze()
