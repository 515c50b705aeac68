"""Bytes as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.toolkit.read import clip, detect, image_type, is_binary

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@given(text=st.text(alphabet="aü☃🙂\n", min_size=1, max_size=40), cut=st.integers(0, 200))
def test_a_part_is_cut_between_characters(encoding: str, text: str, cut: int) -> None:
    data = text.encode(encoding)
    found = detect(data, data)
    body = data[len(found.mark) :]
    part = clip(body[:cut], found)
    assert len(body[:cut]) - len(part) < 4
    assert text.startswith(part.decode(found.name))


@given(st.binary(max_size=60))
def test_any_bytes_have_an_encoding(data: bytes) -> None:
    found = detect(data, data)
    data[len(found.mark) :].decode(found.name, "replace")
    clip(data, found)
    image_type(data)
    is_binary(data)


def test_what_is_binary() -> None:
    assert is_binary(b"a\0b")
    assert not is_binary(b"abc\xff")
    assert not is_binary("a".encode("utf-16"))
