"""Nobody gets anybody else's answer; see users.py for a long run."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from dragoman import DragomanError, Message
from tests.rounds import rounds
from tests.transport.colours import Kind
from tests.transport.replies import DIALECTS
from tests.transport.turns import STRANGER, ByUser, Received, ServiceAct, Turn, UserAct, problems, turn
from tests.transport.users import run

SEED = 0


@pytest.mark.slow
def test_replies_never_cross_between_callers(kind: Kind) -> None:
    account = run(kind, SEED, turns=rounds(64 if kind.reuses else 16))
    assert not account.problems, "\n".join(
        [f"{len(account.problems)} problems with seed {SEED}", *account.problems[:5]]
    )
    expected = {*DIALECTS, *get_args(ServiceAct), *get_args(UserAct), "streamed", "whole", "answered"}
    assert expected <= set(account.seen), "the script leaves something out"


def a_turn(**fields: object) -> Turn:
    usual = {"act": "waits", "service": "answers", "streamed": False, "calls_tool": False}
    return replace(turn(SEED, 0, 0), **{**usual, **fields})


def right(turn: Turn) -> Received:
    text = turn.replies[-1].text
    return Received(answer=text, history=[Message.user(turn.prompt), Message.assistant(text)])


def test_the_fault_checker_rejects_wrong_outcomes() -> None:
    turn, refused = a_turn(), a_turn(service="redirects")
    assert not problems(turn, right(turn), ByUser([turn]))
    assert problems(refused, right(refused), ByUser([refused]))
    for wrong in (
        {"answer": f"{STRANGER} "},
        {"answer": None},
        {"streamed": "u1t1-00000000.0.0 "},
        {"streamed": "rest of somebody's words"},
        {"error": DragomanError(f"Not for {STRANGER}.")},
        {"error": RuntimeError()},
        {"history": [Message.user(STRANGER)]},
        {"history": [Message.assistant("words")]},
    ):
        assert problems(turn, replace(right(turn), **wrong), ByUser([turn])), wrong
    left = a_turn(act="leaves", streamed=True)  # only the beginning of one's own words is right
    assert not problems(left, Received(streamed=left.replies[0].text[:20]), ByUser([left]))
    assert problems(left, Received(streamed=left.replies[0].text[1:20]), ByUser([left]))
    calling = a_turn(calls_tool=True)  # a tool runs once, with one's own word
    assert not problems(calling, right(calling), ByUser([calling], [calling.marker]))
    for noted in ([STRANGER], [calling.marker] * 2, []):
        assert problems(calling, right(calling), ByUser([calling], noted))
