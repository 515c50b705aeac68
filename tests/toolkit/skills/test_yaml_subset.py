"""The reader agrees with PyYAML on everything that it does not report."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.toolkit.skills.yaml_subset import read_yaml


def by_oracle(text: str) -> Any:
    """What PyYAML makes of it, every scalar as a text."""
    return yaml.load(text if text.endswith("\n") else f"{text}\n", Loader=yaml.BaseLoader)


GOOD = [
    "name: a\ndescription: b",
    "name: a b c",
    "name:\ndescription:\n",
    "name:    spaced   ",
    "a: b # comment",
    "a: b#not a comment",
    "# comment\na: b\n  # another\nc: d",
    "a: 'single'",
    "a: 'it''s'",
    'a: "double"',
    'a: "esc \\" \\n \\t \\\\ \\x41 \\u00e9 \\U0001F600 \\/"',
    "a: 'x: y # z'",
    'a: "x" # comment',
    "'quoted key': b",
    '"quoted: key": b',
    "a: http://x.y/z",
    "a: 12:30",
    "a: -1",
    "a: -b",
    "a: ?b",
    "a: yes\nb: null\nc: 1.0\nd: ~\ne: 0x1F",
    "a: |\n  one\n  two\n",
    "a: |\n  one\n\n  two\n\nb: c",
    "a: |-\n  one\n  two\n",
    "a: |+\n  one\n\n\nb: c",
    "a: |2\n   one\n  two",
    "a: |-2\n   one\n  two",
    "a: | # comment\n  one\n",
    "a: >\n  one\n  two\n\n  three\n",
    "a: >\n  one\n    more\n  two\n",
    "a: >-\n  one\n  two\n",
    "a: >+\n  one\n\n",
    "a: |\nb: c",
    "a: |\n\n  one\n",
    "a: >\n\n  one\n    two\n\n    three\n  four\n",
    "a: |\n  # not a comment\n  x",
    "a: |\n  x\n# a comment\nb: c",
    "a: one\n  two\n  three",
    "a: one\n\n  two",
    "a:\n  one\n  two",
    "a:\n  'one\n  two'",
    "a: 'one\n  two\n\n  three'",
    'a: "one\n  two\\\n  three"',
    "a:\n  b: c\n  d: e",
    "a:\n    b: c\n    d: 'e'\nf: g",
    "a:\n  b: |\n    one\n    two\n  c: d",
    "a:\n  b:\n  c:",
    "a:\n  - b\n  - c",
    "a:\n- b\n- c\nd: e",
    "a:\n  - 'b'\n  - \"c\"\n  - d e # x",
    "a:\n  -\n  - b",
    "a:\n  - |\n    x\n  - y",
    "a: [b, c]",
    "a: ['b', \"c, d\", e f]",
    "a: []",
    "a: [b,]",
    "a: {b: c, d: 'e'}",
    "a: {}",
    "  a: b\n  c: d",
    "a : b",
    "a: |\n  b\tc\n  \td",
    "a b: c",
    "ä: ö",
    "a: b\r\nc: d\r\n",
    "",
    "# nothing",
    "a: one\n  - two",
]


@pytest.mark.parametrize("text", GOOD)
def test_plain_yaml_is_read_as_yaml(text: str) -> None:
    parsed = read_yaml(text)
    assert parsed.problems == ()
    assert parsed.values == (by_oracle(text) or {})


@pytest.mark.parametrize(
    ("text", "values", "what"),
    [
        ("description: Use when: needed", {"description": "Use when: needed"}, "line 1: .*must be quoted"),
        ("name: a\ndescription: a: b\nc: d", {"name": "a", "description": "a: b", "c": "d"}, "line 2"),
        ("a: b\na: c", {"a": "b"}, "twice"),
        ("a: &x b", {"a": "&x b"}, "cannot begin with '&'"),
        ("a: *x", {"a": "*x"}, "cannot begin"),
        ("a: !!str b", {"a": "!!str b"}, "cannot begin"),
        ("a: @b", {"a": "@b"}, "cannot begin"),
        ("a: %b", {"a": "%b"}, "cannot begin"),
        ("a: `b`", {"a": "`b`"}, "cannot begin"),
        ("a: 'open\nb: c", {"a": "open\nb: c"}, "never closed"),
        ('a: "\\q"', {"a": "\\q"}, "no escape"),
        ('a: "\\x4"', {"a": "\\x4"}, "hexadecimal"),
        ("a: 'b' c", {"a": "b"}, "after a quoted"),
        ("a: [b", {"a": ["b"]}, "closed on the same line"),
        ("a: [[b]]", {"a": ["[b"]}, "brackets"),
        ("a:\n  b:\n    c: d\n  e: f", {"a": {"b": "c: d", "e": "f"}}, "inside"),
        ("a:\n  - b: c\n  - d", {"a": ["b: c", "d"]}, "inside"),
        ("\ta: b", {"a": "b"}, "tab"),
        ("just text", {}, "not 'key: value'"),
        ("- a\n- b", {}, "not 'key: value'"),
        ("a: b\n c: d\ne: f", {"a": "b c: d", "e": "f"}, "quoted"),
        ("a: b # c\n  d", {"a": "b d"}, "after a comment"),
        ("a: |x\n  b", {"a": "|x b"}, "begins a block"),
        ("a: b\x00", {"a": "b\x00"}, "control"),
        ("? a\n: b", {}, "not"),
        ("a:\n  - b\n c: d", {"a": ["b"]}, "does not fit"),
    ],
)
def test_what_goes_beyond_is_reported_and_kept_as_far_as_it_goes(text: str, values: object, what: str) -> None:
    parsed = read_yaml(text)
    assert parsed.values == values
    import re

    assert any(re.search(what, problem) for problem in parsed.problems), parsed.problems


def test_lines_are_counted_from_where_they_stand() -> None:
    assert read_yaml("a: b\nc: &d e", first_line=2).problems == (
        "line 3: a value cannot begin with '&'; put it in quotes",
    )


SCALARS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff"), max_size=30
) | st.text("ab :#-'\"\n\t,[]{}&*!|>%@`?\\", max_size=20)
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(SCALARS, SCALARS, max_size=4)
STYLES = st.sampled_from([None, "'", '"', "|", ">"])


@given(
    st.dictionaries(st.text("abc-_ ", min_size=1, max_size=8), VALUES, max_size=4),
    STYLES,
    st.sampled_from([20, 80, 10_000]),
    st.sampled_from([2, 4]),
)
def test_what_pyyaml_writes_is_read_unless_it_is_reported(
    values: dict[str, Any], style: Any, width: int, indent: int
) -> None:
    text = yaml.dump(
        values,
        default_style=style,
        default_flow_style=False,
        width=width,
        indent=indent,
        allow_unicode=True,
        Dumper=yaml.SafeDumper,
    )
    parsed = read_yaml(text)
    if not parsed.problems:
        assert parsed.values == (by_oracle(text) or {}), text


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=8), st.text("abc xyz.,;()äé!?", min_size=1, max_size=40), min_size=1
    ),
    STYLES,
)
def test_ordinary_texts_are_never_reported(values: dict[str, str], style: Any) -> None:
    text = yaml.dump(values, default_style=style, default_flow_style=False, allow_unicode=True)
    if "? " in text:
        return  # a long key
    parsed = read_yaml(text)
    assert parsed.problems == ()
    assert parsed.values == values


PIECES = st.sampled_from([
    "a", "b: ", "c:", "\n", "\n  ", "\n    ", " ", "- ", "-", "'", '"', "|", ">", "|-", ">+", "|2", "#", " #", "[", "]",
    "{", "}", ",", ": ", ":", "\\", "\\n", "''", "x y", "\t", "&", "*", "!", "?", "%", "é", "\n\n", "key: ", "\nkey: ",
    "\n- ", "\n  k: ", "\n  - ", "...", "---", "\r\n", "\\\n",
])  # fmt: skip


@given(st.lists(PIECES, max_size=14).map("".join))
@example("a: 'b\n---\nc'")
def test_whatever_is_not_reported_means_what_yaml_says(text: str) -> None:
    parsed = read_yaml(text)
    if parsed.problems:
        return
    try:
        expected = by_oracle(text)
    except yaml.YAMLError as error:
        pytest.fail(f"{text!r} is no YAML ({error}) and was read as {parsed.values}")
    assert parsed.values == (expected or {}), text


@given(st.text(max_size=200))
def test_nothing_makes_it_fail(text: str) -> None:
    read_yaml(text)
