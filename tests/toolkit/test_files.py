"""`Read`, `Write` and `Edit`: parts of files, marks, encodings, images; all of a file or nothing."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import Media
from dragoman.toolkit import Workspace, files as module
from dragoman.toolkit.files import edit_tool, read_tool, write_tool
from dragoman.toolkit.workspace import Place
from dragoman.tools import AnyTool
from tests.toolkit.calling import Call, bad, both_colours, call, good, meanwhile

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def read(tmp_path: Path) -> AnyTool:
    return read_tool(Workspace(tmp_path), max_bytes=100)


def test_a_range_of_lines(tmp_path: Path, read: AnyTool) -> None:
    (tmp_path / "a").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    text = good(call(read, file_path="a", offset=3, limit=2))
    assert text == ("line 3\nline 4\n[Lines 3 to 4 are shown, 43 bytes follow. To read on, call Read with offset=5.]")
    assert good(call(read, file_path="a", offset=9)) == "line 9\nline 10\n"
    assert good(call(read, file_path="a", offset=10, limit=5)) == "line 10\n"
    assert "it has no line 11" in bad(call(read, file_path="a", offset=11), "execution")
    for wrong in ({"offset": 0}, {"limit": 0}, {"byte_offset": -1}, {"offset": "many"}):
        bad(call(read, file_path="a", **wrong), "validation")


def followed(tool: AnyTool, path: str) -> str:
    """The whole of a file, read as the marks say."""
    pieces: list[str] = []
    more: dict[str, object] = {}
    for _ in range(2000):
        text = good(call(tool, file_path=path, **more))
        mark = re.search(r"\n?\[[^\[]*To read on, call Read with ((?:\w+=\d+(?:, )?)+)\.\]\Z", text)
        if mark is None:
            return "".join([*pieces, text])
        body = text[: mark.start()]
        # The mark stands on a line of its own; whether the line before it was whole, it says.
        pieces.append(body + "\n" if "Lines " in mark[0] else body)
        more = {name: int(number) for name, _, number in (each.partition("=") for each in mark[1].split(", "))}
    pytest.fail("the marks lead in a circle")


@given(text=st.text(alphabet="ab\n\r ü☃🙂", max_size=900))
def test_following_the_marks_reads_the_whole_file(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    directory = tmp_path_factory.mktemp("marks")
    (directory / "a").write_text(text, encoding="utf-8", newline="")
    read = read_tool(Workspace(directory), max_bytes=64)
    assert followed(read, "a") == (text or "[The file is empty.]")


def test_a_long_line_is_read_in_parts(tmp_path: Path, read: AnyTool) -> None:
    (tmp_path / "a").write_text("x" * 150 + "\nend\n")
    text = good(call(read, file_path="a"))
    assert text.endswith("[Cut within line 1, after byte 100 of 155. To read on, call Read with byte_offset=100.]")
    assert good(call(read, file_path="a", byte_offset=100)) == "x" * 50 + "\nend\n"
    assert "past its end" in bad(call(read, file_path="a", byte_offset=1000), "execution")
    (tmp_path / "a.txt").write_bytes(b"MZ\0\1\2")
    assert "binary data (5 bytes)" in bad(call(read, file_path="a.txt"), "execution")


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\1\2\3\4WEBP", "image/webp"),
    ],
)
def test_images_are_detected_by_their_content(tmp_path: Path, read: AnyTool, start: bytes, kind: str) -> None:
    (tmp_path / "a.txt").write_bytes(start + b"\0data")
    [image] = call(read, file_path="a.txt").content
    assert isinstance(image, Media)
    assert (image.mime_type, image.kind, image.data, image.name) == (kind, "image", start + b"\0data", "a.txt")


# --- Write -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path: Path) -> AnyTool:
    return write_tool(Workspace(tmp_path), max_bytes=1000)


@both_colours
def test_missing_directories_are_created(called: Call, tmp_path: Path, write: AnyTool) -> None:
    assert good(called(write, file_path="a/b/c.txt", content="Grüße\r\n")) == "created a/b/c.txt (9 bytes)"
    assert (tmp_path / "a/b/c.txt").read_bytes() == "Grüße\r\n".encode()
    assert good(called(write, file_path="a/b/c.txt", content="")) == "replaced a/b/c.txt (0 bytes)"
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["c.txt"]


@pytest.mark.parametrize("tool", ["Write", "Edit"])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o4755])
def test_the_mode_is_kept_without_set_user_id(
    tmp_path: Path, write: AnyTool, edit: AnyTool, monkeypatch: pytest.MonkeyPatch, tool: str, mode: int
) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(mode)
    seen: list[int] = []

    def writing(file: int, data: bytes) -> int:
        seen.append(stat.S_IMODE(os.fstat(file).st_mode))
        return os_write(file, data)

    os_write, before = os.write, os.umask(0)
    monkeypatch.setattr(os, "write", writing)
    try:
        if tool == "Write":
            good(call(write, file_path="a", content="new"))
        else:
            good(call(edit, file_path="a", old_string="old", new_string="new"))
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode & 0o777


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_stays_as_it_is(tmp_path: Path, write: AnyTool) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o444)
    assert "read-only" in bad(call(write, file_path="a", content="y"), "execution")


def test_writes_are_atomic(tmp_path: Path) -> None:
    write = write_tool(Workspace(tmp_path))
    contents = {"a" * 300_000, "b" * 300_000}
    (tmp_path / "f").write_text("a" * 300_000)
    seen: set[str] = set()
    with meanwhile(lambda: seen.add((tmp_path / "f").read_text())):
        for number in range(40):
            good(call(write, file_path="f", content=sorted(contents)[number % 2]))
    assert seen <= contents


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, write: AnyTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def no_space(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    assert "no space left" in bad(call(write, file_path="a", content="new"), "execution")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


# --- Edit ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def edit(tmp_path: Path) -> AnyTool:
    return edit_tool(Workspace(tmp_path), max_bytes=10_000)


@both_colours
def test_one_occurrence_is_replaced(called: Call, tmp_path: Path, edit: AnyTool) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    text = good(called(edit, file_path="a.py", old_string="fo", new_string="FO\nx"))
    assert text == "replaced 1 occurrence in a.py (line 4)"
    assert (tmp_path / "a.py").read_text() == "one\ntwo\nthree\nFO\nxur\nfive\nsix\nseven\n"


def test_a_missing_or_ambiguous_text_is_an_error(tmp_path: Path, edit: AnyTool) -> None:
    (tmp_path / "a").write_text("if x:\n\treturn  1\n")
    assert "was not found" in bad(call(edit, file_path="a", old_string="return 2", new_string="x"), "execution")
    text = bad(call(edit, file_path="a", old_string="if x:\n    return 1", new_string="x"), "execution")
    assert "with different whitespace" in text
    assert (tmp_path / "a").read_text() == "if x:\n\treturn  1\n"
    (tmp_path / "a").write_text("x\nyx\n" * 10)
    lines = "(line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)"
    text = bad(call(edit, file_path="a", old_string="x", new_string="z"), "execution")
    assert all(part in text for part in ("occurs 20 times", lines, "replace_all=true"))
    text = good(call(edit, file_path="a", old_string="x", new_string="z", replace_all=True))
    assert text == f"replaced 20 occurrences in a {lines}"
    assert (tmp_path / "a").read_text() == "z\nyz\n" * 10


def test_line_endings_are_kept(tmp_path: Path, edit: AnyTool) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    good(call(edit, file_path="a", old_string="one\ntwo\n", new_string="1\n2\n"))
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"
    good(call(edit, file_path="a", old_string="2\r\nthree", new_string="2\nthree"))
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\nthree\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"])
def test_the_encoding_is_understood_and_kept(tmp_path: Path, read: AnyTool, edit: AnyTool, encoding: str) -> None:
    (tmp_path / "a").write_bytes("Grüße\nWelt\n".encode(encoding))
    note = "[This file is not UTF-8; it was read as Latin-1.]\n" if encoding == "latin-1" else ""
    assert good(call(read, file_path="a")) == f"{note}Grüße\nWelt\n"
    assert good(call(read, file_path="a", offset=2)) == "Welt\n"
    good(call(edit, file_path="a", old_string="Welt", new_string="Wält"))
    assert (tmp_path / "a").read_bytes() == "Grüße\nWält\n".encode(encoding)


def test_a_file_that_changed_meanwhile_is_not_overwritten(
    tmp_path: Path, edit: AnyTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("one")
    check = module._check_unchanged

    def late(place: Place, before: os.stat_result) -> None:
        (tmp_path / "a").write_text("one, and more")
        check(place, before)

    monkeypatch.setattr(module, "_check_unchanged", late)
    assert "changed while" in bad(call(edit, file_path="a", old_string="one", new_string="1"), "execution")
    assert (tmp_path / "a").read_text() == "one, and more"


@given(
    text=st.text("ab\n\r", max_size=60), old=st.text("ab\n\r", min_size=1, max_size=4), new=st.text("abc\n", max_size=4)
)
def test_replace_all_agrees_with_str_replace(
    tmp_path_factory: pytest.TempPathFactory, text: str, old: str, new: str
) -> None:
    directory = tmp_path_factory.mktemp("e")
    (directory / "f").write_bytes(text.encode())
    result = call(edit_tool(Workspace(directory)), file_path="f", old_string=old, new_string=new, replace_all=True)
    if old in text and old != new:
        good(result)
        assert (directory / "f").read_bytes() == text.replace(old, new).encode()
    elif result.is_error:
        assert (directory / "f").read_bytes() == text.encode()
    else:  # LF taken for CRLF
        assert (directory / "f").read_bytes() == text.replace(
            old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        ).encode()
