"""Profiles: rows fit together, and every word in them means something to the codec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragoman.providers import openai_chat
from dragoman.providers.catalogue import PROVIDERS, profile_of
from dragoman.providers.openai_chat import profiles
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile

NAMES = [name for name, provider in PROVIDERS.items() if provider.dialect == "openai_chat"]
DESCRIBED = set(re.findall(r"^    ([a-z_]+[0-9]*)(?:, _of_40)?  ", profiles.__doc__ or "", re.MULTILINE)) | {
    "call_id_of_40"
}


def all_profiles() -> list[Profile]:
    found = [profile_of(name, "a-model") for name in NAMES]
    for row in profiles.ROWS:
        found += [profile_of(row.provider, re.sub(r"\[.*?\]", "4", model).replace("*", "x")) for model in row.models]
    return found


def test_every_row_makes_a_profile_of_known_words() -> None:
    options = set(ModelOptions.__struct_fields__)
    for profile in all_profiles():
        assert profile.dialect == "openai_chat"
        assert profile.provider in NAMES
        assert profile.quirks <= DESCRIBED, profile.quirks - DESCRIBED
        assert profile.unsupported <= options
        assert set(profile.renamed) <= options
        assert profile.tool_choices <= {"auto", "none", "required", "tool"}
        assert profile.media_urls - profile.media <= {"image"}


def test_every_quirk_is_used_by_the_codec() -> None:
    code = "".join(
        path.read_text()
        for path in Path(openai_chat.__file__).parent.glob("*.py")
        if path.stem not in ("profiles", "servers")
    )
    assert {quirk for quirk in DESCRIBED if f'"{quirk}"' not in code} == set()


def test_every_server_of_the_catalogue_has_a_row_or_is_like_any_other() -> None:
    known = {row.provider for row in profiles.ROWS}
    assert set(NAMES) - known == {"openai-compatible", "together"}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", {"system_role": "system", "reasoning": "none", "structured": "native", "tools": True}),
        ("gpt-4o-mini-2024-07-18", {"context_window": 128_000, "structured": "native"}),
        ("gpt-4.1-nano", {"context_window": 1_047_576}),
        ("gpt-3.5-turbo", {"structured": "tool", "media": frozenset()}),
        ("gpt-4o-search-preview", {"tools": False}),
        ("gpt-audio-mini", {"media": frozenset(["audio"])}),
        ("o1-mini", {"system_role": "user", "tools": False, "structured": "prompt"}),
        ("o3-mini", {"system_role": "developer", "efforts": frozenset(["low", "medium", "high"])}),
        ("gpt-5-nano", {"efforts": frozenset(["minimal", "low", "medium", "high"])}),
        ("gpt-5-chat-latest", {"reasoning": "none"}),
        ("gpt-5.2-chat-latest", {"reasoning": "none"}),
        ("gpt-5.1", {"efforts": frozenset(["none", "low", "medium", "high"])}),
        ("gpt-5.6-luna", {"efforts": frozenset(["none", "low", "medium", "high", "xhigh", "max"])}),
        ("gpt-6-astra", {"tools": False, "efforts": frozenset(["low", "medium", "high", "xhigh"])}),
    ],
)
def test_what_is_known_of_openai_models(model: str, expected: dict[str, object]) -> None:
    profile = profile_of("openai", model)
    assert {name: getattr(profile, name) for name in expected} == expected


def test_a_user_may_change_a_profile() -> None:
    changed = profile_of("openai-compatible", "m").with_changes(media=frozenset(), unsupported=frozenset(["seed"]))
    assert changed.media == frozenset()
    assert profile_of("openai-compatible", "m").media == frozenset(["image"])
