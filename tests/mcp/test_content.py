"""Results, there and back."""

from __future__ import annotations

import base64

import mcp_types as types
import msgspec
from hypothesis import given, strategies as st

from dragoman.conversation import Media, ResultPart, Text, ToolResult
from dragoman.mcp.content import result_from_mcp, to_content

MUCH = 1_000_000


def content_from_mcp(blocks: list[types.ContentBlock], limit: int) -> tuple[ResultPart, ...]:
    return result_from_mcp(types.CallToolResult(content=blocks), limit).content


def test_text_images_sound_and_documents_come_back() -> None:
    image = Media.from_bytes(b"\x89PNG", "image/png")
    sound = Media.from_bytes(b"RIFF", "audio/wav")
    paper = Media.from_bytes(b"%PDF", "application/pdf", name="test://paper")
    parts = (Text("héllo"), image, sound, paper)
    assert content_from_mcp(to_content(parts), MUCH) == parts


def test_a_text_document_is_sent_as_text_and_bytes_that_only_say_so_are_not() -> None:
    (block,) = to_content([Media.from_bytes(b"a,b", "text/csv", name="table.csv")])
    assert isinstance(block, types.EmbeddedResource)
    assert isinstance(block.resource, types.TextResourceContents)
    assert (block.resource.uri, block.resource.text) == ("resource://result/table.csv", "a,b")
    (block,) = to_content([Media.from_bytes(b"\xff\xfe", "text/csv")])
    assert isinstance(block, types.EmbeddedResource)
    assert isinstance(block.resource, types.BlobResourceContents)


def test_a_link_stays_a_link_in_both_directions() -> None:
    (block,) = to_content([Media.from_url("https://dragoman.dev/a.png")])
    assert isinstance(block, types.ResourceLink)
    (part,) = content_from_mcp([block], MUCH)
    assert isinstance(part, Text)  # nobody shall fetch what a stranger names
    assert "https://dragoman.dev/a.png" in part.text


def test_structured_content_is_kept_beside_the_text() -> None:
    result = result_from_mcp(
        types.CallToolResult(content=[types.TextContent(text="one")], structured_content={"n": 1}), MUCH
    )
    assert (result.text, result.value) == ("one", {"n": 1})
    alone = result_from_mcp(types.CallToolResult(content=[], structured_content={"n": 1}), MUCH)
    assert alone.content == (alone.structured,)
    large = result_from_mcp(types.CallToolResult(content=[], structured_content={"n": "x" * 100}), 50)
    assert large.structured is None
    assert "left out" in large.text


blocks = st.one_of(
    st.builds(lambda text: types.TextContent(text=text), st.text(st.characters(codec="utf-8"))),
    st.builds(
        lambda data, mime: types.ImageContent(data=data, mime_type=mime),
        st.text() | st.binary().map(lambda b: base64.b64encode(b).decode()),
        st.text(),
    ),
    st.builds(
        lambda uri, text: types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)),
        st.text(st.characters(codec="utf-8")),
        st.text(st.characters(codec="utf-8")),
    ),
    st.builds(
        lambda uri, blob: types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=blob)),
        st.text(st.characters(codec="utf-8")),
        st.text(),
    ),
)


@given(st.lists(blocks, max_size=8), st.integers(1, 200))
def test_whatever_a_server_sends_fits_the_limit_and_can_be_written(sent: list[types.ContentBlock], limit: int) -> None:
    parts = content_from_mcp(sent, limit)
    size = sum(len(p.data or b"") if isinstance(p, Media) else len(p.text.encode()) for p in parts)
    assert size <= limit + 200 * (len(parts) + 1)  # the marks themselves
    msgspec.json.encode(ToolResult("1", "t", parts))
