"""How thinking is asked for, model by model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.conversation import Message, OneTool, Thinking, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import Reasoning
from tests.providers.anthropic.calls import body_of, encoded

HI = Message.user("Hi")
EARLIER = (HI, Message.assistant(Thinking("Hm", "anthropic", signature="s"), "a"), Message.user("And?"))

ADAPTIVE = {"type": "adaptive"}
SUMMARIZED = {**ADAPTIVE, "display": "summarized"}
BOUND = {"prefix_mismatch_behavior": "drop_block"}


def enabled(budget: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget}


def asked(model: str, *messages: Message, **reasoning: Any) -> tuple[Any, Any, int]:
    """What the request says of thinking, of effort, and of max_tokens."""
    body = body_of(*(messages or (HI,)), model=model, reasoning=Reasoning(**reasoning), adapt=True)
    return body.get("thinking"), body.get("output_config", {}).get("effort"), body["max_tokens"]


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort"),
    [
        # by budget
        ("claude-3-7-sonnet-latest", {"budget": 2000}, enabled(2000), None),
        ("claude-sonnet-4-5", {"effort": "low"}, enabled(2048), None),
        ("claude-haiku-4-5-20251001", {}, enabled(8192), None),
        ("claude-sonnet-4-5", {"effort": "none"}, {"type": "disabled"}, None),
        ("claude-sonnet-4-5", {"budget": 2000, "summary": False}, {**enabled(2000), "display": "omitted"}, None),
        # by budget and effort
        ("claude-opus-4-5", {"effort": "high"}, enabled(16384), "high"),
        # adaptive, or by budget
        ("claude-opus-4-6", {"effort": "max"}, ADAPTIVE, "max"),
        ("claude-opus-4-6", {"effort": "xhigh"}, ADAPTIVE, "high"),
        ("claude-sonnet-4-6", {"budget": 4000}, enabled(4000), None),
        ("claude-sonnet-4-6", {"effort": "minimal"}, ADAPTIVE, "low"),
        # adaptive only, and silent unless asked
        ("claude-opus-4-8", {"effort": "xhigh"}, SUMMARIZED, "xhigh"),
        ("claude-opus-4-7", {"effort": "low", "summary": False}, ADAPTIVE, "low"),
        ("claude-opus-4-7", {"effort": "none"}, {"type": "disabled"}, None),
        ("claude-sonnet-5", {}, SUMMARIZED, None),
        ("claude-sonnet-5", {"budget": 10_000}, SUMMARIZED, "high"),
        ("claude-sonnet-5", {"budget": 900_000}, SUMMARIZED, "max"),
        ("claude-opus-5", {"effort": "none"}, {"type": "disabled"}, None),
        # the newest
        ("claude-sonnet-5-5", {"effort": "none"}, {"type": "between_tools"}, None),
        ("claude-haiku-5-5", {"effort": "none"}, {"type": "disabled"}, None),
        ("claude-opus-5-5", {"effort": "none"}, None, "low"),
        ("claude-fable-5", {"effort": "none"}, None, "low"),
        ("claude-fable-5-2", {"effort": "max"}, SUMMARIZED, "max"),
        ("claude-something-9", {"effort": "medium"}, SUMMARIZED, "medium"),
    ],
)
def test_each_generation_in_its_way(model: str, reasoning: dict[str, Any], thinking: Any, effort: str | None) -> None:
    assert asked(model, **reasoning)[:2] == (thinking, effort)


def test_conversions_are_reported_and_not_refused() -> None:
    for model, reasoning in (
        ("claude-sonnet-4-5", Reasoning(effort="high")),
        ("claude-opus-4-8", Reasoning(budget=5000)),
        ("claude-opus-4-6", Reasoning(effort="xhigh")),
    ):
        (adaptation,) = encoded(HI, model=model, reasoning=reasoning).adaptations
        assert "sent as" in adaptation.why
    assert encoded(HI, model="claude-opus-4-5", reasoning=Reasoning(effort="high")).adaptations == ()


@pytest.mark.parametrize(
    ("model", "effort", "why"),
    [("claude-opus-5-5", "none", "always thinks"), ("claude-3-5-haiku-latest", "low", "does not reason")],
)
def test_models_that_cannot_but_think_or_cannot_think(model: str, effort: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        encoded(HI, model=model, reasoning=Reasoning(effort=effort))


# --- budgets and max_tokens ---


def test_a_budget_goes_on_top_of_the_default_room_but_not_beyond_what_the_model_writes() -> None:
    assert asked("claude-sonnet-4-5", budget=2000)[2] == 8192 + 2000
    assert asked("claude-opus-4-8", effort="high")[2] == 8192
    assert asked("claude-opus-4-1", effort="max") == (enabled(32_000 - 1024), None, 32_000)
    with pytest.raises(ConfigurationError, match="max_tokens"):
        encoded(HI, model="claude-opus-4-1", reasoning=Reasoning(budget=40_000))


@pytest.mark.parametrize(("max_tokens", "budget"), [(5000, 5000 - 1024), (1500, 1024)])
def test_a_budget_of_our_choice_leaves_room_for_the_answer(max_tokens: int, budget: int) -> None:
    body = body_of(HI, reasoning=Reasoning(effort="max"), max_tokens=max_tokens)
    assert (body["thinking"], body["max_tokens"]) == (enabled(budget), max_tokens)


@pytest.mark.parametrize(
    ("budget", "max_tokens", "expected"), [(500, None, 1024), (5000, 4000, 3999), (4000, 4000, 3999), (2000, 900, None)]
)
def test_budgets_out_of_range(budget: int, max_tokens: int | None, expected: int | None) -> None:
    with pytest.raises(ConfigurationError, match="budget"):
        encoded(HI, reasoning=Reasoning(budget=budget), max_tokens=max_tokens)
    body = body_of(HI, reasoning=Reasoning(budget=budget), max_tokens=max_tokens, adapt=True)
    assert body.get("thinking", {}).get("budget_tokens") == expected


def test_no_room_to_think_at_all() -> None:
    with pytest.raises(ConfigurationError, match="max_tokens"):
        encoded(HI, reasoning=Reasoning(effort="low"), max_tokens=100)
    assert "thinking" not in body_of(HI, reasoning=Reasoning(effort="low"), max_tokens=100, adapt=True)
    # No tokens at all is for filling the cache.
    assert body_of(HI, max_tokens=0)["max_tokens"] == 0


# --- beside thinking ---


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"temperature": 1.0}, {"temperature": 1.0}),
        ({"temperature": 0.5}, None),
        ({"top_p": 0.97}, {"top_p": 0.97}),
        ({"top_p": 0.5}, None),
        ({"top_k": 5}, None),
    ],
)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-6"])
def test_sampling_beside_thinking(model: str, options: dict[str, Any], kept: dict[str, Any] | None) -> None:
    how = {"model": model, "reasoning": Reasoning(), **options}
    if kept is None:
        with pytest.raises(ConfigurationError, match="combined with thinking"):
            encoded(HI, **how)
    body = body_of(HI, adapt=True, **how)
    assert {name: body[name] for name in ("temperature", "top_p", "top_k") if name in body} == (kept or {})
    off = body_of(HI, model=model, reasoning=Reasoning(effort="none"), **options)
    assert options.items() <= off.items()


@pytest.mark.parametrize("choice", ["required", OneTool("add")])
def test_a_tool_call_cannot_be_forced_beside_a_budget(choice: Any) -> None:
    how: dict[str, Any] = {"tools": [ToolSpec("add")], "tool_choice": choice, "reasoning": Reasoning()}
    with pytest.raises(ConfigurationError, match="forced"):
        encoded(HI, **how)
    assert "tool_choice" not in body_of(HI, adapt=True, **how)
    # Adaptive thinking has no such rule.
    assert body_of(HI, model="claude-opus-4-6", **how)["tool_choice"]["type"] in {"any", "tool"}


# --- thinking that is bound to what came before it ---


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1"])
def test_bound_thoughts_may_be_dropped_where_the_prefix_changed(model: str) -> None:
    done = encoded(*EARLIER, model=model)
    assert json.loads(done.request.body)["thinking"] == {**ADAPTIVE, "block_binding": BOUND}
    assert done.request.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    fresh = encoded(HI, model=model)
    assert "thinking" not in json.loads(fresh.request.body)
    assert "anthropic-beta" not in fresh.request.headers
    thinking, effort, _ = asked(model, *EARLIER, effort="high")
    assert (thinking["display"], thinking["block_binding"], effort) == ("summarized", BOUND, "high")


def test_turned_off_thinking_and_earlier_models_take_no_binding() -> None:
    assert asked("claude-sonnet-5-5", *EARLIER, effort="none")[0] == {"type": "between_tools"}
    assert asked("claude-haiku-5-5", *EARLIER, effort="none")[0] == {"type": "disabled"}
    for model in ("claude-opus-5", "claude-fable-5", "claude-opus-4-8", "claude-sonnet-4-5"):
        assert "anthropic-beta" not in encoded(*EARLIER, model=model).request.headers
