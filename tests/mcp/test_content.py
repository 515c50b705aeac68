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


def test_content_round_trip() -> None:
    image, sound = Media.from_bytes(b"\x89PNG", "image/png"), Media.from_bytes(b"RIFF", "audio/wav")
    parts = (Text("héllo"), image, sound, Media.from_bytes(b"%PDF", "application/pdf", name="test://paper"))
    assert content_from_mcp(to_content(parts), MUCH) == parts
    table, noise, link = to_content(
        [
            Media.from_bytes(b"a,b", "text/csv", name="table.csv"),
            Media.from_bytes(b"\xff\xfe", "text/csv"),  # which only says that it is text
            Media.from_url("https://dragoman.dev/a.png"),
        ]
    )
    text = types.TextResourceContents(uri="resource://result/table.csv", mime_type="text/csv", text="a,b")
    assert table == types.EmbeddedResource(resource=text)
    assert isinstance(noise, types.EmbeddedResource)
    assert isinstance(noise.resource, types.BlobResourceContents)
    assert isinstance(link, types.ResourceLink)
    (part,) = content_from_mcp([link], MUCH)
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
def test_any_result_fits_the_limit_and_can_be_serialized(sent: list[types.ContentBlock], limit: int) -> None:
    parts = content_from_mcp(sent, limit)
    size = sum(len(p.data or b"") if isinstance(p, Media) else len(p.text.encode()) for p in parts)
    assert size <= limit + 200 * (len(parts) + 1)  # the marks themselves
    msgspec.json.encode(ToolResult("1", "t", parts))
