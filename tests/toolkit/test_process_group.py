"""The beginning and the end of an output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.toolkit.process_group import Output


def of(*pieces: bytes, limit: int) -> Output:
    output = Output(limit)
    for piece in pieces:
        output.feed(piece)
    return output


def test_what_fits_is_unchanged() -> None:
    assert of(b"0123", b"456789", limit=10).text == "0123456789"
    assert of(limit=10).text == ""


def test_the_middle_is_left_out() -> None:
    text = of(b"begin" + b"x" * 1000 + b"theend", limit=10).text
    assert text == (
        "begin\n[… 1001 bytes left out of 1011; to see them, write the output to a file and read that …]\nheend"
    )


def test_characters_are_not_cut() -> None:
    text = of("☃☃☃☃☃☃☃☃☃☃".encode(), limit=10).text
    assert text == ("☃\n[… 24 bytes left out of 30; to see them, write the output to a file and read that …]\n☃")


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert of(b"\xff\0ok", limit=10).text == "��ok"


@given(pieces=st.lists(st.binary(max_size=40), max_size=30), limit=st.integers(2, 60))
def test_any_amount_in_any_pieces(pieces: list[bytes], limit: int) -> None:
    output = of(*pieces, limit=limit)
    whole = b"".join(pieces)
    assert output.total == len(whole)
    if len(whole) <= limit - 1:
        assert output.text == whole.decode("utf-8", "replace").replace("\0", "\ufffd")
    else:
        assert len(output.text) <= limit * 2 + 150
    assert len(output._tail) <= 4 * limit + 40
