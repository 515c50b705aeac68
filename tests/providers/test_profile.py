"""Profiles as data, and rows laid over each other."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, lay_over

BASE = Profile(provider="p", dialect="d", media=frozenset(["image"]))


def test_later_rows_win_field_by_field() -> None:
    rows = [
        ProfileRow(provider="p", fields={"context_window": 1, "reasoning": "effort"}),
        ProfileRow(provider="p", models=("big-*", "*-large"), fields={"context_window": 2}),
        ProfileRow(provider="p", models=("big-1",), fields={"tools": False}),
        ProfileRow(provider="other", fields={"context_window": 9}),
    ]
    small, large, one = (lay_over(BASE, rows, model) for model in ("small", "x-large", "big-1"))
    assert (small.context_window, small.reasoning, small.tools) == (1, "effort", True)
    assert (large.context_window, large.reasoning, large.tools) == (2, "effort", True)
    assert (one.context_window, one.reasoning, one.tools) == (2, "effort", False)


def test_without_a_row_it_is_the_base() -> None:
    assert lay_over(BASE, [], "m") is BASE
    assert lay_over(BASE, [ProfileRow(provider="p", models=("x",), fields={"tools": False})], "m") is BASE


def test_patterns_are_about_whole_names_and_about_case() -> None:
    row = ProfileRow(provider="p", models=("gpt-?",), fields={"tools": False})
    assert not lay_over(BASE, [row], "gpt-5").tools
    assert lay_over(BASE, [row], "gpt-55").tools
    assert lay_over(BASE, [row], "GPT-5").tools


def test_a_changed_profile_is_another_one() -> None:
    changed = BASE.with_changes(tools=False, tool_limits=ToolLimits(max_tools=3))
    assert BASE.tools
    assert changed.tool_limits.max_tools == 3
    with pytest.raises(TypeError):
        BASE.with_changes(tolos=False)
    with pytest.raises(AttributeError):
        BASE.tools = False  # type: ignore[misc]


def test_a_profile_can_be_written_down() -> None:
    changed = BASE.with_changes(unsupported=frozenset(["seed"]), renamed={"max_tokens": "n"}, tool_schema="gemini")
    data = msgspec.json.encode(changed)
    assert msgspec.json.decode(data, type=Profile) == changed
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"provider":"p","dialect":"d","unheard":1}', type=Profile)
