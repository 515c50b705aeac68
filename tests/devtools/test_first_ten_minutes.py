"""The page of the first ten minutes is what the command does now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.first_ten_minutes import make_page
from devtools.terminal_screen import Screen
from tests.processes import may_fork

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-ten-minutes.md"


@pytest.mark.slow
def test_the_page_is_what_is_seen() -> None:
    with may_fork():
        page = make_page()
    assert page == PAGE.read_text(encoding="utf-8"), "python3 -m devtools.first_ten_minutes makes it anew"


def test_pictures_load_nothing() -> None:
    pictures = list(PAGE.parent.rglob("*.svg"))
    assert pictures
    for picture in pictures:
        text = picture.read_text(encoding="utf-8")
        assert not re.search(r"url\((?!#)|https?://(?!www\.w3\.org)|@import|@font-face", text), picture


def test_a_screen_shows_what_a_terminal_would() -> None:
    screen = Screen(10)
    screen.write("one\r\ntwo\x1b[1A\rO\x1b[1B\r\x1b[2Kthree\x1b[31m!\x1b[0m\r\n0123456789ab\x1b]0;title\x07\x1b[?25l")
    assert screen.lines() == ["One", "three!", "0123456789", "ab"]
    assert screen.lines(colours=True)[1] == "three\x1b[0m\x1b[31m!\x1b[0m"
    screen.write("\x1b[3A\r\x1b[J\x1b[2Cx\x1b[2Dy")
    assert screen.lines() == [" yx"]
    with pytest.raises(ValueError, match="told"):
        screen.write("\x1b[2J")
