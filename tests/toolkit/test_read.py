"""`Read`: parts of files, marks, encodings, images."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import Media
from dragoman.toolkit import Workspace
from dragoman.toolkit.read import read_tool
from dragoman.tools import AnyTool
from tests.toolkit.calling import Call, bad, both_colours, call, good

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def read(tmp_path: Path) -> AnyTool:
    return read_tool(Workspace(tmp_path), max_bytes=100)


@both_colours
def test_a_file_is_returned_as_it_is(called: Call, tmp_path: Path, read: AnyTool) -> None:
    (tmp_path / "a.txt").write_bytes("Grüße,\r\nWelt ☃\n\n".encode())
    assert good(called(read, file_path="a.txt")) == "Grüße,\r\nWelt ☃\n\n"


def test_a_range_of_lines(tmp_path: Path, read: AnyTool) -> None:
    (tmp_path / "a").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    text = good(call(read, file_path="a", offset=3, limit=2))
    assert text == (
        "line 3\nline 4\n[Lines 3 to 4 of 10 are shown, 43 bytes follow. To read on, call Read with offset=5.]"
    )
    assert good(call(read, file_path="a", offset=9)) == "line 9\nline 10\n"
    assert good(call(read, file_path="a", offset=10, limit=5)) == "line 10\n"
    assert "it has no line 11" in bad(call(read, file_path="a", offset=11), "execution")
    for wrong in ({"offset": 0}, {"limit": 0}, {"byte_offset": -1}, {"offset": "many"}):
        bad(call(read, file_path="a", **wrong), "validation")


def test_a_long_file_is_cut_at_a_line_and_says_how_to_read_on(tmp_path: Path, read: AnyTool) -> None:
    (tmp_path / "a").write_text("".join(f"line {n:04}\n" for n in range(1, 51)) + "the end")
    text = good(call(read, file_path="a"))
    assert text.endswith(
        "line 0010\n[Lines 1 to 10 of 51 are shown, 407 bytes follow. To read on, call Read with offset=11.]"
    )


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


@given(text=st.text(alphabet="ab\n ü☃🙂", max_size=900))
def test_the_marks_lead_through_the_whole_file(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    directory = tmp_path_factory.mktemp("marks")
    (directory / "a").write_text(text, encoding="utf-8", newline="")
    read = read_tool(Workspace(directory), max_bytes=64)
    assert followed(read, "a") == (text or "[The file is empty.]")


def test_a_line_that_is_too_long_is_read_on_within(tmp_path: Path, read: AnyTool) -> None:
    (tmp_path / "a").write_text("x" * 150 + "\nend\n")
    text = good(call(read, file_path="a"))
    assert text.endswith("[Cut within line 1, after byte 100 of 155. To read on, call Read with byte_offset=100.]")
    assert good(call(read, file_path="a", byte_offset=100)) == "x" * 50 + "\nend\n"
    assert "behind its end" in bad(call(read, file_path="a", byte_offset=1000), "execution")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_understood(tmp_path: Path, read: AnyTool, encoding: str) -> None:
    (tmp_path / "a").write_bytes("eins\nzwei ☃\n".encode(encoding))
    assert good(call(read, file_path="a")) == "eins\nzwei ☃\n"
    assert good(call(read, file_path="a", offset=2)) == "zwei ☃\n"


def test_binary_data_is_not_shown(tmp_path: Path, read: AnyTool) -> None:
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
def test_an_image_is_an_image_whatever_its_name(tmp_path: Path, read: AnyTool, start: bytes, kind: str) -> None:
    (tmp_path / "a.txt").write_bytes(start + b"\0data")
    [image] = call(read, file_path="a.txt").content
    assert isinstance(image, Media)
    assert (image.mime_type, image.kind, image.data, image.name) == (kind, "image", start + b"\0data", "a.txt")
