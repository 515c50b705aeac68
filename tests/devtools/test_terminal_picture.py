"""The picture of a terminal is made from a real run, and loads nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from devtools.terminal_picture import COMMANDS, main
from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator


def answer(request: Request) -> Reply | str:
    if "response_format" in request.body:
        return '{"name": "Ada", "age": 36}'
    if "17" not in request.last_user_text:
        return "Paris."
    if request.body["messages"][-1]["role"] == "tool":
        return "It is 391."
    return Reply(ToolCall("c1", "calculator", '{"expression": "17 * 23"}'))


@pytest.mark.slow
def test_the_picture_shows_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "images" / "terminal.svg"
    with Simulator(answer) as simulator:
        code = main([str(file), "--model", "openai-compatible:x", "--base-url", simulator.base_url("openai")])
    assert code == 0
    text = file.read_text(encoding="utf-8")
    shown = " ".join("".join(ET.fromstring(text).itertext()).replace("\xa0", " ").split())
    assert len(COMMANDS) == shown.count("$ dragoman")
    assert "Paris." in shown
    assert "calculator" in shown
    assert '"age": 36' in shown
    assert not re.search(r"url\((?!#)|https?://(?!www\.w3\.org)|@import|@font-face", text)
