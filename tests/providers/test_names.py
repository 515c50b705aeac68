"""Legal names for tools, and back."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError
from dragoman.providers import ToolLimits, ToolNames

OPENAI = ToolLimits()
ANTHROPIC = ToolLimits(name_pattern=r"[a-zA-Z0-9_-]{1,128}", max_name_length=128)
GEMINI = ToolLimits(name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", max_name_length=64)
LETTERS = ToolLimits(name_pattern=r"[a-z]+", max_name_length=20)
LIMITS = st.sampled_from([OPENAI, ANTHROPIC, GEMINI, LETTERS])

names = st.text(min_size=1, max_size=12) | st.text("ab._-é 1", min_size=1, max_size=90)


def legal(name: str, limits: ToolLimits) -> bool:
    return re.fullmatch(limits.name_pattern, name) is not None and len(name) <= limits.max_name_length


WRITTEN: list[tuple[ToolLimits, str, str]] = [
    (OPENAI, "get_weather", "get_weather"),
    (OPENAI, "files.read", "files_read"),
    (OPENAI, "get weather", "get_weather"),
    (OPENAI, "mcp__server/tool", "mcp__server_tool"),
    (OPENAI, "Größe", "Gro_e"),
    (OPENAI, "café", "cafe"),
    (OPENAI, "2nd", "2nd"),
    (GEMINI, "2nd", "_2nd"),
    (GEMINI, "files.read", "files.read"),
]


@pytest.mark.parametrize(("limits", "own", "wire"), WRITTEN)
def test_names_stay_readable(limits: ToolLimits, own: str, wire: str) -> None:
    found = ToolNames([own], limits)
    assert found.to_wire == {own: wire}
    assert found.to_own == ({} if own == wire else {wire: own})


def test_long_names_are_cut_and_marked() -> None:
    found = ToolNames(["x" * 70 + "1", "x" * 70 + "2"], OPENAI)
    first, second = found.to_wire.values()
    assert first != second
    assert len(first) == len(second) == 64
    assert first.startswith("x" * 55 + "_")


@given(own=st.lists(names, max_size=8, unique=True), limits=LIMITS, seed=st.integers(0, 99))
def test_names_are_legal_unique_and_independent_of_the_order(own: list[str], limits: ToolLimits, seed: int) -> None:
    try:
        found = ToolNames(own, limits)
    except ConfigurationError:
        assert limits is LETTERS  # a mark has digits
        return
    assert list(found.to_wire) == own
    assert all(legal(wire, limits) for wire in found.to_wire.values())
    assert len(set(found.to_wire.values())) == len(own)
    assert all(found.to_wire[name] == name for name in own if legal(name, limits))
    assert found.to_own == {wire: name for name, wire in found.to_wire.items() if wire != name}
    shuffled = Random(seed).sample(own, len(own))
    assert ToolNames(shuffled, limits).to_wire == found.to_wire


@given(own=st.lists(names, min_size=1, max_size=6, unique=True), gone=names)
def test_a_tool_that_is_gone_still_has_a_legal_name_of_its_own(own: list[str], gone: str) -> None:
    found = ToolNames(own, OPENAI)
    wire = found.wire(gone)
    assert legal(wire, OPENAI)
    if gone in own:
        assert wire == found.to_wire[gone]
    else:
        assert wire not in found.to_wire.values()


def test_a_tool_that_is_gone_keeps_the_name_that_it_had() -> None:
    assert ToolNames(["other"], OPENAI).wire("files.read") == ToolNames(["files.read"], OPENAI).to_wire["files.read"]
    assert ToolNames(["other"], OPENAI).wire("legal") == "legal"


def test_a_pattern_that_nothing_can_be_made_to_fit() -> None:
    with pytest.raises(ConfigurationError, match="No legal name"):
        ToolNames(["a b"], ToolLimits(name_pattern="only_this"))
    assert ToolNames(["only_this"], ToolLimits(name_pattern="only_this")).to_own == {}
