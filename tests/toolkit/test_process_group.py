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
