"""The rows: what is known of each model."""

from __future__ import annotations

import fnmatch

import pytest

from dragoman.providers.catalogue import codec_of
from dragoman.providers.catalogue import profile_of as catalogued
from dragoman.providers.openai_responses import CODEC
from dragoman.providers.openai_responses.profiles import BASE, ROWS
from dragoman.providers.profile import Profile
from tests.providers.openai_responses.calls import profile_of


def test_the_catalogue_finds_them() -> None:
    assert codec_of("openai_responses") is CODEC
    assert catalogued("openai-responses", "gpt-5") == profile_of("gpt-5")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.provider} {row.models[0]}")
def test_rows_are_profiles(row: object) -> None:
    fields = getattr(row, "fields")  # noqa: B009 -- parametrized values have no type
    changed = BASE.with_changes(**fields)
    assert isinstance(changed, Profile)
    assert {"seed", "stop", "top_k"} <= changed.unsupported
    if changed.reasoning == "none":
        assert not changed.efforts


@pytest.mark.parametrize(
    ("model", "reasons", "efforts", "sampling"),
    [
        ("gpt-4o", False, "", True),
        ("gpt-4o-mini-2024-07-18", False, "", True),
        ("gpt-4.1-nano", False, "", True),
        ("ft:gpt-4o-2024-08-06:org::id", False, "", True),
        ("gpt-5-chat-latest", False, "", True),
        ("o1", True, "low medium high", False),
        ("o3-mini", True, "low medium high", False),
        ("o4-mini-deep-research", True, "medium", False),
        ("gpt-5", True, "minimal low medium high", False),
        ("gpt-5-mini-2025-08-07", True, "minimal low medium high", False),
        ("gpt-5-codex", True, "low medium high", False),
        ("gpt-5-pro", True, "high", False),
        ("gpt-5.1", True, "none low medium high", True),
        ("gpt-5.1-codex-max", True, "low medium high xhigh", False),
        ("gpt-5.1-chat-latest", True, "medium", False),
        ("gpt-5.2", True, "none low medium high xhigh", True),
        ("gpt-5.2-pro", True, "medium high xhigh", False),
        ("gpt-5.4-mini", True, "none low medium high xhigh", True),
        ("gpt-5.5-pro-2026-04-23", True, "medium high xhigh", False),
        ("gpt-5.6-sol", True, "none low medium high xhigh max", True),
        ("gpt-7-nova", True, "none low medium high xhigh max", True),
        ("computer-use-preview", True, "low medium high", False),
    ],
)
def test_openai(model: str, reasons: bool, efforts: str, sampling: bool) -> None:
    profile = profile_of(model)
    assert (profile.reasoning != "none") == reasons
    assert profile.efforts == set(efforts.split())
    assert ("temperature" not in profile.unsupported) == sampling
    assert profile_of(f"openai/{model}", "openrouter-responses").efforts == profile.efforts


@pytest.mark.parametrize(
    ("provider", "model", "quirks"),
    [
        ("openai-responses", "gpt-5.2", {"reasons_on_request"}),
        ("openai-responses", "gpt-5.6", {"reasons_unless_told"}),
        ("bedrock-mantle", "openai.gpt-5.6-luna", {"reasons_unless_told", "reply_scoped_call_ids"}),
        ("bedrock-mantle", "openai.gpt-oss-120b", {"no_encrypted_reasoning"}),
        ("bedrock-mantle", "openai.gpt-9", {"reasons_unless_told", "reply_scoped_call_ids"}),
        ("openrouter-responses", "openai/gpt-oss-20b", {"no_encrypted_reasoning"}),
        (
            "deepseek-responses",
            "deepseek-v4-flash",
            {"calls_last", "no_encrypted_reasoning", "no_reasoning_summary"},
        ),
    ],
)
def test_quirks(provider: str, model: str, quirks: set[str]) -> None:
    assert profile_of(model, provider).quirks == quirks


def test_patterns_are_patterns() -> None:
    """A bracket in a pattern means a choice, and is meant to."""
    assert fnmatch.fnmatchcase("gpt-5.3-chat-latest", "gpt-5.[123]-chat*")
