"""The readable text of HTML."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dragoman.toolkit.page_text import page_text
from tests.growth import grows_linearly
from tests.toolkit.calling import words


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one</p><p>two", "one\n\ntwo"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<h2>Head</h2>text", "## Head\n\ntext"),
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "a | b\n1 | 2"),
        ("<pre>  x\n    y\n</pre>z", "```\n  x\n    y\n```\n\nz"),
        ("x &amp; y &lt;b&gt; &#9731; &nbsp;z", "x & y <b> ☃ z"),
        ("a <!-- hidden <p> --> b", "a b"),
        ("<script>if (a < b) { '</p>' }</script>seen<style>p{}</style>", "seen"),
        ("<SCRIPT>x</ScRiPt >seen", "seen"),
        ("<svg><text>drawn</text></svg>seen<svg/>too", "seentoo"),
        ("a < b and c > d", "a < b and c > d"),
        ("1 <3 2", "1 <3 2"),
        ("<a href='/x'>link</a> <a>none</a> <a href='#top'>top</a>", "[link](http://h/x) none top"),
        ('<a href="javascript:x()">no</a>', "no"),
        ('<p title="a > b">text</p>', "text"),
        ("<p title='it's odd'>text</p>", "text"),
        ("<title>T</title><body>x", "T\n\nx"),
        ("<head><title>A &amp; B</title><meta x></head><h1>A &amp; B</h1>", "# A & B"),
        ("<!DOCTYPE html><?xml x?>x", "x"),
        ("unclosed <b", "unclosed"),
        ("unclosed <!-- comment", "unclosed"),
        ("</p></ul></a></pre>x", "x"),
        ("<head><p>no end of head", "no end of head"),
        ("", ""),
    ],
)
def test_html_to_text(html: str, text: str) -> None:
    assert page_text(html, "http://h/") == text


@pytest.mark.parametrize(
    "piece",
    [
        *words("< <!-- <! </ <script> & &# <p> <ul><li> <pre> <title> ]]>"),
        "<a ",
        "<a '",
        '<a "',
        "<a href='",
        "<b x=\"'>",
        "<a href=x>",
    ],
)
def test_no_page_takes_long(piece: str) -> None:
    """What goes back over the page would need very long for this."""
    page_text(piece * (200_000 // len(piece)), "http://h/")


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        ("", "<"),
        ("<b", "b"),
        ("<b ", "b"),
        ("", "<b '"),
        ("<b", "'\""),
        ("<b ", "a='>' "),
        ("", "<head>"),
        ("", "<head><svg></svg>"),
        ("", "<!--"),
    ],
)
def test_a_megabyte_takes_no_longer_than_its_parts(begin: str, piece: str) -> None:
    assert grows_linearly(page_text, lambda size: begin + piece * (size // len(piece)))


@given(st.text("<>/!-ab\"'= &;phulisrct", max_size=200))
def test_any_html_has_a_text(html: str) -> None:
    assert isinstance(page_text(html), str)
