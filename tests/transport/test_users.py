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
def test_nobody_gets_anybody_elses_answer(kind: Kind) -> None:
    account = run(kind, SEED, turns=rounds(64))
    assert not account.problems, "\n".join(
        [f"{len(account.problems)} problems with seed {SEED}", *account.problems[:5]]
    )
    expected = {*DIALECTS, *get_args(ServiceAct), *get_args(UserAct), "streamed", "whole", "answered"}
    assert expected <= set(account.seen), "the script leaves something out"


class TestTheJudge:
    """It can find fault with what a user got."""

    @staticmethod
    def a_turn(**fields: object) -> Turn:
        usual = {"act": "waits", "service": "answers", "streamed": False, "calls_tool": False}
        return replace(turn(SEED, 0, 0), **{**usual, **fields})

    @staticmethod
    def right(turn: Turn) -> Received:
        text = turn.replies[-1].text
        return Received(answer=text, history=[Message.user(turn.prompt), Message.assistant(text)])

    @pytest.mark.parametrize(
        "wrong",
        [
            {"answer": f"{STRANGER} "},
            {"answer": None},
            {"streamed": "u1t1-00000000.0.0.0 "},
            {"streamed": "rest of somebody's words"},
            {"error": DragomanError(f"Not for {STRANGER}.")},
            {"error": RuntimeError()},
            {"history": [Message.user(STRANGER)]},
            {"history": [Message.assistant("words")]},
        ],
        ids=str,
    )
    def test_anything_else_is_wrong(self, wrong: dict[str, object]) -> None:
        turn = self.a_turn()
        assert not problems(turn, self.right(turn), ByUser([turn]))
        refused = self.a_turn(service="redirects")
        assert problems(refused, self.right(refused), ByUser([refused]))
        assert problems(turn, replace(self.right(turn), **wrong), ByUser([turn]))

    def test_only_the_beginning_of_ones_own_words_is_right_in_a_turn_that_was_left(self) -> None:
        turn = self.a_turn(act="leaves", streamed=True)
        beginning = turn.replies[0].text[:20]
        assert not problems(turn, Received(streamed=beginning), ByUser([turn]))
        assert problems(turn, Received(streamed=beginning[1:]), ByUser([turn]))

    @pytest.mark.parametrize("noted", [[STRANGER], ["own", "own"], []], ids=str)
    def test_a_tool_runs_once_with_ones_own_word(self, noted: list[str]) -> None:
        turn = self.a_turn(calls_tool=True)
        noted = [turn.marker if word == "own" else word for word in noted]
        assert problems(turn, self.right(turn), ByUser([turn], noted))
        assert not problems(turn, self.right(turn), ByUser([turn], [turn.marker]))
