"""The page that shows small programs of others beside ours: theirs can be read by Python, and ours are no longer."""

from __future__ import annotations

import ast
from itertools import pairwise

from tests.test_docs import ROOT, blocks_in

PAGE = ROOT / "docs" / "agents-beside-others.md"


def count_lines(code: str) -> int:
    return len([line for line in code.splitlines() if line.strip()])


def test_ours_are_no_longer_than_theirs() -> None:
    blocks = list(blocks_in(PAGE))
    theirs = [block for block in blocks if block.language == "text"]
    ours = [later for before, later in pairwise(blocks) if (before.language, later.language) == ("python", "python")]
    ours = [block for block in ours if not block.code.startswith("model =")]
    assert len(theirs) == len(ours) == 6
    for their, our in zip(theirs, ours, strict=True):
        ast.parse(their.code)
        assert count_lines(our.code) <= count_lines(their.code), our.place
        assert len(our.code) <= len(their.code), our.place
