"""Limits, and what counts against them."""

from __future__ import annotations

import pytest

from dragoman.conversation import Message, ReplyStarted, Usage, UsageReported, unfold
from dragoman.engines import Engine, ReplyCall
from dragoman.errors import (
    LimitReachedError,
    OverloadedError,
    ProviderError,
    StepLimitError,
    UnknownCostError,
    UnknownUsageError,
)
from dragoman.loop import Done, LimitReached, Limits, Orchestrator
from tests.loop.running import ASKED, Way, calls, every_way


def _spending(message: Message, tokens: int) -> Message:
    return Message(role="assistant", blocks=message.blocks, usage=Usage(input=tokens, output=tokens, charged=tokens))


SPENDING = [_spending(calls(number), 30) for number in range(30)]


@every_way
@pytest.mark.parametrize(
    ("limits", "limit", "asked"),
    [
        (Limits(), "steps", 20),
        (Limits(steps=0), "steps", 0),
        (Limits(model_calls=3), "model_calls", 3),
        (Limits(tokens=100), "tokens", 2),
        (Limits(cost=50.0), "cost", 2),
        (Limits(seconds=0.0), "seconds", 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_limit_ends_the_run_with_a_valid_history(way: Way, limits: Limits, limit: str, asked: int) -> None:
    ran = way(SPENDING, limits=limits, name="openai:gpt-5")
    assert isinstance(ran.error, LimitReachedError)
    assert (ran.error.limit, len(ran.calls)) == (limit, asked)
    assert ran.error.conversation.is_valid
    if asked == 20:
        assert isinstance(ran.error, StepLimitError)
        assert ran.error.message == "max iterations (20) reached"


@every_way
@pytest.mark.parametrize(("name", "usage", "asked"), [("openai:nobody", Usage(), 0), ("openai:gpt-5", Usage(), 1)])
def test_a_cost_limit_without_a_known_price_is_an_error(way: Way, name: str, usage: Usage, asked: int) -> None:
    script = [Message(role="assistant", blocks=calls(number).blocks, usage=usage) for number in range(3)]
    ran = way(script, name=name, limits=Limits(cost=1.0))
    assert isinstance(ran.error, UnknownCostError)
    assert (ran.error.limit, len(ran.calls)) == ("cost", asked)
    assert ran.error.conversation.is_valid
    assert len(ran.error.conversation.messages) == 1 + 2 * asked  # nothing is lost
    assert way(["Five."], name=name).result.cost is None


@every_way
def test_a_run_can_be_continued_after_a_limit(way: Way) -> None:
    ran = way([calls(1), calls(2), "Five."], limits=Limits(steps=2))
    assert isinstance(ran.error, StepLimitError)
    ran = way(["Five."], conversation=ran.error.conversation)
    assert ran.result.text == "Five."
    assert len(ran.result.conversation.messages) == 6
    # By choice it is a result and no error.
    ran = way([calls(1), calls(2)], limits=Limits(steps=1), on_limit="return")
    assert ran.result.ending == LimitReached("steps", 1)
    assert ran.result.conversation.is_valid


@every_way
def test_calls_beyond_the_limit_of_tool_calls_are_answered_and_not_run(way: Way) -> None:
    ran = way([calls(1), calls(2, 3)], limits=Limits(tool_calls=2))
    assert isinstance(ran.error, LimitReachedError)
    assert ran.error.limit == "tool_calls"
    assert ran.error.conversation.is_valid
    results = ran.error.conversation.messages[-1].tool_results
    assert [(result.is_error, result.error_type) for result in results] == [(True, "budget")] * 2
    assert "limit of 2 tool calls" in results[0].text


@every_way
def test_tokens_of_the_history_are_not_counted(way: Way) -> None:
    spent = way(SPENDING, limits=Limits(tokens=100)).error
    assert isinstance(spent, LimitReachedError)
    again = way([_spending(Message.assistant("Ok"), 10)], conversation=spent.conversation, limits=Limits(tokens=100))
    assert again.result.spent.tokens == 20


@every_way
def test_a_limit_of_tokens_without_reported_usage_is_an_error(way: Way) -> None:
    script = [Message(role="assistant", blocks=calls(number).blocks) for number in range(9)]
    ran = way(script, limits=Limits(tokens=1000))
    assert isinstance(ran.error, UnknownUsageError)
    assert (ran.error.limit, len(ran.calls)) == ("tokens", 1)
    assert "scripted:model does not report" in ran.error.message
    assert ran.error.conversation.is_valid
    assert len(ran.error.conversation.messages) == 3  # nothing is lost
    only = way(["Five."], limits=Limits(tokens=1000)).result  # nobody asks again
    assert only.spent.at_least


@every_way
@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        (Limits(tokens=59), ("tokens",)),
        (Limits(cost=29.0), ("cost",)),
        (Limits(cost=29.0, tokens=59), ("tokens", "cost")),
        (Limits(cost=30.0, tokens=60, model_calls=1), ()),
    ],
)
def test_a_last_reply_that_passes_a_limit_is_kept_and_told(
    way: Way, limits: Limits, passed: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    result = way([_spending(Message.assistant("Five."), 30)], limits=limits, name="openai:gpt-5").result
    assert (type(result.ending), result.text, result.spent.passed) == (Done, "Five.", passed)
    for name in passed:
        assert f"past its limit of {name}" in repr(result)
        assert f"{getattr(limits, name):g}" in caplog.text
    assert bool(caplog.records) == bool(passed)


class _Twice(ReplyCall):
    """Fails after it has reported what it used, and is repeated."""

    failed = False

    async def advance(self) -> None:
        if not self.failed:
            self.failed = True
            self.take([ReplyStarted("openai", model="gpt-4o"), UsageReported(Usage(input=1_000_000, output=0))])
            raise OverloadedError("Busy.")
        self.take(list(unfold(_spending(Message.assistant("Five."), 10))))
        self.over = True

    async def try_again(self, error: ProviderError) -> bool:
        return True


class _Repeating(Engine):
    name = "openai:gpt-4o"

    def call(self, *_request: object, stream: bool) -> ReplyCall:
        return _Twice()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_retry_is_no_model_call_and_what_the_failed_attempt_cost_counts(streamed: bool) -> None:
    with Orchestrator(_Repeating(), limits=Limits(cost=12.0)) as loop:
        if streamed:
            with loop.stream(ASKED) as stream:
                assert list(stream)
            result = stream.result
        else:
            result = loop.run(ASKED)
    assert result.text == "Five."
    assert (result.spent.model_calls, result.spent.tokens, result.usage.tokens) == (1, 1_000_020, 1_000_020)
    assert result.spent.cost == result.cost == pytest.approx(12.5)  # 2.50 for a million tokens, and 10
    assert result.spent.passed == ("cost",)
