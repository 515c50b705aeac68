"""Which part of a growing Markdown text is complete."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.chat.blocks import Blocks

TEXT = st.lists(
    st.sampled_from(["```", "```py", "~~~~", "\n", "\n\n", "a line", "- item", "    code", "`", " ", "# head"])
).map("".join)


def fed(pieces: list[str]) -> list[str]:
    blocks = Blocks()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    return [*found, blocks.end()]


def test_a_block_ends_with_an_empty_line() -> None:
    assert fed(["One\nstill one\n\nTw", "o\n"]) == ["One\nstill one\n\n", "Two\n"]


def test_a_code_block_is_not_cut() -> None:
    text = "```py\na = 1\n\nb = 2\n```\n\nbehind\n"
    assert fed([text]) == ["```py\na = 1\n\nb = 2\n```\n\n", "behind\n"]
    assert fed(["~~~\n```\n\n~~~\n\nx"]) == ["~~~\n```\n\n~~~\n\n", "x"]
    assert fed(["````\n```\n\n````\n\nx"]) == ["````\n```\n\n````\n\n", "x"]


def test_inline_code_opens_no_block() -> None:
    assert fed(["```not a fence``` here\n\nx"]) == ["```not a fence``` here\n\n", "x"]


@given(TEXT, st.randoms())
def test_nothing_is_lost_and_the_pieces_do_not_matter(text: str, random: object) -> None:
    cuts = sorted(random.sample(range(len(text) + 1), k=min(3, len(text) + 1)))  # type: ignore[attr-defined]
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(fed(pieces)) == text
    assert fed(pieces) == fed([text])
