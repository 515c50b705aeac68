"""Values as HTML for notebooks: all kinds of blocks, escaped, with invisible characters made visible."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Citation,
    Conversation,
    Json,
    Media,
    Message,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    source_lines,
    sources_of,
)

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">'
PNG = Media(kind="image", mime_type="image/png", data=b"\x89PNG", name=HOSTILE)
STORED = Media.from_file("openai", "file-1", mime_type="application/pdf")


class Tags(HTMLParser):
    """The tags of a page, and the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_every_kind_of_block_is_shown_and_escaped() -> None:
    result = ToolResult("1", HOSTILE, (Text(HOSTILE), Json(Raw(b'{"a":1}')), PNG), is_error=True, duration=1.5)
    said = Message(
        role="assistant",
        model=HOSTILE,
        usage=Usage(input=1, output=2),
        stop_reason=StopReason.INTERRUPTED,
        blocks=(
            Text(HOSTILE),
            Thinking(HOSTILE, "anthropic"),
            Thinking("", "anthropic"),
            ToolCall("1", HOSTILE, HOSTILE),
            Opaque(HOSTILE, Raw(b"{}")),
            PNG,
            STORED,
        ),
    )
    talk = Conversation(HOSTILE).plus(Message.user(HOSTILE), said, Message.tool([result]))
    page = talk.to_html(note=HOSTILE)
    tags = Tags(page)
    assert tags.found <= {"div", "small", "pre", "p", "i", "b", "img", "details", "summary"}
    assert tags.attributes <= {"style", "class", "dir", "alt", "src"}
    assert "3 tokens" in page
    assert "interrupted" in page
    assert "failed" in page
    assert "data:image/png;base64," in page
    assert talk._repr_html_() == talk.to_html()
    assert said._repr_html_() in page


def test_invisible_characters_are_made_visible() -> None:
    page = Message.assistant("a\u202eb\u200bc", ToolCall("1", "pa\u200by", "{}"))._repr_html_()
    assert "a⟨U+202E⟩b\u200bc" in page, "in prose, signs of no width join emoji"
    assert "pa⟨U+200B⟩y" in page


def test_long_texts_and_many_messages_are_truncated() -> None:
    assert "(5 more characters)" in Message.user("x" * 20_005)._repr_html_()
    many = Conversation().plus(*[Message.user(f"number {at}.") for at in range(203)])
    assert "3 earlier messages" in many.to_html()
    assert "number 2." not in many.to_html()


def test_media_stored_at_a_provider() -> None:
    assert STORED.stored == ("openai", "file-1")
    assert Media.from_url("https://example.com/a.png").stored is None


def test_sources_are_a_list_of_links_that_show_their_host() -> None:
    cited = (
        Citation(url="https://bank.example/\u202e?a=1&b=2", title=HOSTILE, start=0, end=1),
        Citation(url="https://bank.example/\u202e?a=1&b=2", title="again", start=1, end=2),
        Citation(url="javascript:alert(1)", title="script"),
        Citation(url='https://"onmouseover="alert(1)', title="quotes"),
        Citation(document=3, title="Notes"),
        Citation(document=4),
    )
    page = Message.assistant(Text("ab", citations=cited))._repr_html_()
    tags = Tags(page)
    assert tags.found == {"div", "small", "pre", "ol", "li", "a"}
    assert tags.attributes == {"style", "dir", "href", "rel", "target"}
    assert page.count("<li>") == 5, "each source once"
    assert page.count("href=") == 2, "and links to pages only"
    assert 'href="https://bank.example/?a=1&amp;b=2"' in page
    assert "<small>bank.example</small>" in page
    assert "document 4" in page


@pytest.mark.parametrize(
    "url", ["https:///evil.example", "https://\\evil.example", "https://a.example/\n2. b", "https://<b>"]
)
def test_an_address_that_hides_its_host_is_no_link(url: str) -> None:
    assert sources_of([Citation(url=url, title="bank.example")]) == [("bank.example", "")]
    assert source_lines([Citation(url=url)]) == [f"1. {' '.join(url.split())}"]


def test_the_number_of_source_lines_is_limited() -> None:
    lines = source_lines([Citation(url=f"https://a.example/{number}") for number in range(1_234)])
    assert lines[-2:] == ["100. https://a.example/99", "… and 1,134 more"]
