"""`Write`: all of a file or nothing, with the mode it had."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.toolkit.workspace import Workspace
from dragoman.toolkit.write import write_tool
from dragoman.tools.definition import AnyTool
from tests.toolkit.calling import Call, bad, both_colours, call, good, meanwhile


@pytest.fixture
def write(tmp_path: Path) -> AnyTool:
    return write_tool(Workspace(tmp_path), max_bytes=1000)


@both_colours
def test_a_file_is_made_with_its_directories(called: Call, tmp_path: Path, write: AnyTool) -> None:
    assert good(called(write, file_path="a/b/c.txt", content="Grüße\r\n")) == "created a/b/c.txt (9 bytes)"
    assert (tmp_path / "a/b/c.txt").read_bytes() == "Grüße\r\n".encode()
    assert good(called(write, file_path="a/b/c.txt", content="")) == "replaced a/b/c.txt (0 bytes)"
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["c.txt"]


def test_it_may_be_repeated_and_is_not_read_only(write: AnyTool) -> None:
    assert (write.name, write.options.read_only, write.options.idempotent) == ("Write", False, True)


def test_missing_arguments(write: AnyTool) -> None:
    assert bad(call(write, content="x"), "validation") == "missing file_path argument"
    assert "content" in bad(call(write, file_path="a"), "validation")


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_the_mode_stays(tmp_path: Path, write: AnyTool, mode: int) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(mode)
    good(call(write, file_path="a", content="y"))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_new_content_is_not_set_user_id(tmp_path: Path, write: AnyTool) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o4755)
    good(call(write, file_path="a", content="y"))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


def test_a_new_file_has_the_usual_mode(tmp_path: Path, write: AnyTool) -> None:
    before = os.umask(0o027)
    try:
        good(call(write, file_path="a", content="y"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_stays_as_it_is(tmp_path: Path, write: AnyTool) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o444)
    assert "read-only" in bad(call(write, file_path="a", content="y"), "execution")


def test_what_is_too_large_is_not_written(tmp_path: Path, write: AnyTool) -> None:
    assert "too large" in bad(call(write, file_path="a", content="x" * 1001), "execution")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path, write: AnyTool) -> None:
    (tmp_path / "target").write_text("x")
    (tmp_path / "link").symlink_to("target")
    assert good(call(write, file_path="link", content="y")) == "replaced target (1 bytes)"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "y"


def test_nobody_ever_sees_half_a_file(tmp_path: Path) -> None:
    write = write_tool(Workspace(tmp_path))
    contents = {"a" * 300_000, "b" * 300_000}
    (tmp_path / "f").write_text("a" * 300_000)
    seen: set[str] = set()
    with meanwhile(lambda: seen.add((tmp_path / "f").read_text())):
        for number in range(40):
            good(call(write, file_path="f", content=sorted(contents)[number % 2]))
    assert seen <= contents


def test_a_failed_write_leaves_the_old_file_and_no_rest(
    tmp_path: Path, write: AnyTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def no_space(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    assert "the disk is full" in bad(call(write, file_path="a", content="new"), "execution")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


@given(content=st.text(max_size=200))
def test_what_was_written_is_what_is_there(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    directory = tmp_path_factory.mktemp("w")
    result = call(write_tool(Workspace(directory)), file_path="f", content=content)
    assert good(result)
    assert (directory / "f").read_bytes() == content.encode()
