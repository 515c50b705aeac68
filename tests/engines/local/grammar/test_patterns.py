"""Regular expressions as grammars: they find what the expression finds."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.engines.local.grammar.gbnf import Impossible
from dragoman.engines.local.grammar.patterns import NotRegular, matching
from tests.engines.local.grammar.gbnf import Reading

PATTERNS = (
    "^a+$", "a", "^(a|bc)*$", "^[a-c]{2,3}$", r"^\d{2}\.?\d*$", "^[^a]b?$", "^(?:x|y)(?<n>z)?$", r"^\w\s\S$", "^.$",
    r"^\x41\u0042\u{43}$", "^a{0,2}b{2}$", "^a|b$", "|a", "^$", "", r'^["\\/]+$', "^[]a]$", r"^[\]\-a]+$", "^a*?b+?$",
    r"^\t\n$", "^[a-]$", "^a{2,}$",
)  # fmt: skip
TEXTS = ("", "a", "aa", "aab", "abc", "b", "bb", "bcbc", "ca", "12", "12.", "12.5", "x", "xz", "y", "a b", "ABC",
         '"\\/', "]", "]a-", "\t\n", "-", "é", "\n")  # fmt: skip


def found(grammar: Reading, text: str) -> bool:
    return grammar.accepts(json.dumps(text, ensure_ascii=False)[1:-1])


def in_python(pattern: str) -> re.Pattern[str]:
    """The same in Python's words."""
    pattern = re.sub(r"\\u\{([0-9a-f]+)\}", lambda code: f"\\x{int(code[1], 16):02x}", pattern)
    pattern = pattern.replace("(?<n>", "(?P<n>").replace("^[]a]$", r"^(?!)$")
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern), re.ASCII)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_finds_what_python_finds(pattern: str) -> None:
    if pattern == "^[]a]$":  # an empty class, in which nothing is found: Python reads it otherwise
        with pytest.raises((NotRegular, Impossible)):
            matching(pattern)
        return
    grammar, python = Reading(f"root ::= {matching(pattern) or chr(34) * 2}"), in_python(pattern)
    for text in TEXTS:
        assert found(grammar, text) == (python.search(text) is not None), text


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"\bword", r"(a)\1", r"\p{L}", "a^b", "a$b", "(^a)", "(", "a)", "[", "*",
     "a**", "[b-a]", "a{3,2}", "a{5000}", r"\k<n>", "(?i)a", "\\"],
)  # fmt: skip
def test_what_is_no_plain_expression_is_refused(pattern: str) -> None:
    with pytest.raises(NotRegular):
        matching(pattern)


@given(st.from_regex(r"[ab(|)\[\]^$*+?{},\\d1-]{0,12}", fullmatch=True))
def test_any_text_is_read_or_refused(pattern: str) -> None:
    with suppress(NotRegular, Impossible):
        Reading(f"root ::= {matching(pattern) or chr(34) * 2}")
