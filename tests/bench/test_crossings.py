"""A plain turn can be followed: docs/ARCHITECTURE.md names the files that it goes through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.crossings import MODELS, cross

ROOT = Path(__file__).parent.parent.parent


def named_files() -> list[str]:
    """The files that the chapter about a plain turn names, in order."""
    text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = text.partition("## A turn, file by file")[2].partition("\n- ")[0]
    return re.findall(r"`([\w/]+\.py)`", walk.replace("bench/crossings.py", ""))


@pytest.mark.parametrize("dialect", MODELS)
def test_a_plain_turn_goes_where_the_architecture_says(dialect: str) -> None:
    crossed, named = cross(dialect), named_files()
    assert len(named) > 10
    missing = [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in crossed.files)]
    assert missing == [], crossed.files
