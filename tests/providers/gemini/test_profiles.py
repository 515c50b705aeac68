"""The rows: what they say of models that we know, by whatever name they are called."""

from __future__ import annotations

import pytest

from dragoman.providers.catalogue import codec_of, profile_of
from dragoman.providers.gemini import CODEC


@pytest.mark.parametrize(
    "prefix", ["", "models/", "publishers/google/models/", "projects/p/locations/l/publishers/google/models/"]
)
@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("gemini-1.5-pro", {"reasoning": "none", "tool_schema": "gemini", "context_window": 2_097_152}),
        ("gemini-1.5-flash-8b", {"reasoning": "none", "structured_schema": "gemini", "context_window": 1_048_576}),
        ("gemini-2.0-flash-lite", {"reasoning": "none", "strict_tools": False, "tool_result_media": frozenset()}),
        ("gemini-2.5-flash", {"reasoning": "budget", "tool_schema": "json_schema", "tools": True}),
        ("gemini-2.5-flash-lite", {"reasoning": "budget", "quirks": frozenset(["no_combinations"])}),
        ("gemini-2.5-pro", {"efforts": frozenset(["minimal", "low", "medium", "high"])}),
        ("gemini-2.5-flash-image", {"tools": False, "reasoning": "none", "structured": "prompt"}),
        ("gemini-2.5-pro-preview-tts", {"tools": False, "media": frozenset()}),
        ("gemini-3-pro-preview", {"reasoning": "effort", "efforts": frozenset(["low", "high"])}),
        ("gemini-3-pro-image-preview", {"tools": False, "efforts": frozenset(["high"])}),
        ("gemini-3-flash-preview", {"efforts": frozenset(["minimal", "low", "medium", "high"])}),
        ("gemini-3.1-pro-preview", {"efforts": frozenset(["low", "medium", "high"])}),
        ("gemini-3.1-flash-lite", {"efforts": frozenset(["minimal", "low", "medium", "high"])}),
        ("gemini-3.1-flash-image", {"tools": False, "structured": "native"}),
        ("gemini-3.8-flash", {"efforts": frozenset(["low", "medium", "high"])}),
        ("gemini-3.8-flash-lite", {"efforts": frozenset(["minimal", "low", "medium", "high"])}),
        ("gemini-flash-latest", {"reasoning": "effort", "tool_result_media": frozenset(["image", "document"])}),
        ("gemini-9-ultra", {"quirks": frozenset(["thought_signatures", "tool_invocations"])}),
        ("gemma-3-27b-it", {"tools": False, "system_role": "user"}),
    ],
)  # fmt: skip
def test_rows(prefix: str, model: str, fields: dict[str, object]) -> None:
    profile = profile_of("gemini", prefix + model)
    assert {name: getattr(profile, name) for name in fields} == fields
    assert (profile.provider, profile.dialect) == ("gemini", "gemini")


def test_the_catalogue_finds_the_codec() -> None:
    assert codec_of("gemini") is CODEC
    assert CODEC.name == "gemini"
