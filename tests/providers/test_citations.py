"""Citations: compared with the official SDKs on recorded replies, in every form, and malformed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import Raw
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from dragoman.conversation import Citation, Message, Text, TextCited, TextDelta, TextEnded, TextStarted
from dragoman.errors import ProviderError
from dragoman.providers import AnswerReader
from dragoman.providers.citations import cite, of_bedrock, of_claude, of_openai, read_citations, read_grounding
from tests.providers.bedrock.wire import frame, problems
from tests.providers.calls import HI, body_of, call_of, decoder_of
from tests.providers.feeding import attempt, message_of
from tests.providers.gemini.case import as_events, chunk, streamed, whole
from tests.providers.oracles import claude_message, gemini_responses, openai_response
from tests.providers.recorded import Exchange, parametrized
from tests.providers.test_recorded import decoded
from tests.strategies import json_values, texts

Told = tuple[Any, ...]
"""url, title, document, the cited words (None: all)."""


def told(message: Message) -> list[Told]:
    found: list[Told] = []
    for block in [block for block in message.blocks if isinstance(block, Text)]:
        for one in block.citations:
            words = None if one.start is None or one.end is None else block.text[one.start : one.end]
            found.append((one.url, one.title, one.document, words))
    return found


# --- recorded replies, against the SDKs -------------------------------------------------------------------------------


@parametrized("anthropic", "_location")
def test_recorded_citations_of_anthropic(exchange: Exchange) -> None:
    said = [
        (one["url"], one["title"], one["cited_text"] or None)
        for block in claude_message(exchange)["content"]
        if block["type"] == "text"
        for one in block.get("citations") or []
    ]
    message = decoded("anthropic", exchange)
    assert said
    assert [(one.url, one.title, one.quote) for one in message.citations] == said


@parametrized("responses", "_citation")
def test_recorded_citations_of_the_responses_api(exchange: Exchange) -> None:
    said: list[Told] = []
    for part in [part for item in openai_response(exchange).output if item.type == "message" for part in item.content]:
        for one in part.annotations if part.type == "output_text" else []:
            if one.type == "url_citation":
                said.append((one.url, one.title, None, part.text[one.start_index : one.end_index]))
            elif one.type == "container_file_citation":
                words = part.text[one.start_index : one.end_index] or None
                said.append((None, one.filename, one.file_id, words))
            elif one.type == "file_citation":
                said.append((None, one.filename, one.file_id, None))
    message = decoded("responses", exchange)
    assert told(message) == said


@parametrized("chat", "url_citation")
def test_recorded_citations_of_chat(exchange: Exchange) -> None:
    lines = [line[6:] for line in exchange.body.splitlines() if line.startswith("data: {")]
    if exchange.streamed:  # the SDK's own accumulator refuses these, so its chunks are put together here
        pieces = [ChatCompletionChunk.construct(**json.loads(line)).choices[0].delta for line in lines]
    else:
        pieces = [ChatCompletion.construct(**json.loads(exchange.body)).choices[0].message]
    listed = [one for piece in pieces for one in getattr(piece, "annotations", None) or []]
    pages = [one["url_citation"] if isinstance(one, dict) else one.url_citation for one in listed]
    said = [page if isinstance(page, dict) else page.model_dump() for page in pages]
    message = decoded("chat", exchange)
    assert said
    assert told(message) == [(one["url"], one["title"] or None, None, None) for one in said]  # their spans are 0 to 0
    assert [one.quote for one in message.citations] == [one["content"] for one in said]


@parametrized("gemini", "groundingMetadata")
def test_recorded_citations_of_gemini(exchange: Exchange) -> None:
    said: list[Told] = []
    for response in gemini_responses(exchange):
        grounding = response.candidates[0].grounding_metadata if response.candidates else None
        chunks = (grounding.grounding_chunks or []) if grounding else []
        sources = [one.web or one.retrieved_context for one in chunks]
        named = [
            (one.uri, one.title, getattr(one, "document_name", None) or getattr(one, "file_search_store", None))
            for one in sources
            if one is not None
        ]
        supports = (grounding.grounding_supports or []) if grounding else []
        for support in supports:
            said += [(*named[index], support.segment.text) for index in support.grounding_chunk_indices]
        if not supports:
            said += [(*one, None) for one in named]
    assert told(decoded("gemini", exchange)) == said


# --- every form, whole and as a stream --------------------------------------------------------------------------------

CLAUDE: dict[str, tuple[dict[str, Any], Citation]] = {
    "char": (
        {"document_index": 0, "document_title": "T", "start_char_index": 3, "end_char_index": 9, "file_id": None},
        Citation(title="T", document=0, quote="q", place=("char", 3, 9)),
    ),
    "page": (
        {"document_index": 2, "document_title": None, "start_page_number": 1, "end_page_number": 3, "file_id": "f"},
        Citation(document="f", quote="q", place=("page", 1, 3)),
    ),
    "content_block": (
        {"document_index": 1, "start_block_index": 0, "end_block_index": 1},
        Citation(document=1, quote="q", place=("block", 0, 1)),
    ),
    "search_result": (
        {"source": "https://s", "title": "S", "search_result_index": 4, "start_block_index": 0, "end_block_index": 2},
        Citation(url="https://s", title="S", document=4, quote="q", place=("block", 0, 2)),
    ),
    "web_search_result": (
        {"url": "https://w", "title": "W", "encrypted_index": "e"},
        Citation(url="https://w", title="W", quote="q"),
    ),
}


@pytest.mark.parametrize("kind", CLAUDE)
def test_every_location_of_anthropic(kind: str) -> None:
    fields, expected = CLAUDE[kind]
    one = {"type": f"{kind}_location", "cited_text": "q", **fields}
    block = {"type": "text", "text": "Hi", "citations": [one]}
    reply = {"type": "message", "id": "m", "role": "assistant", "model": "c", "stop_reason": "end_turn"}
    at_once = message_of(
        decoder_of(call_of("anthropic:claude-sonnet-4-5")), [json.dumps({**reply, "content": [block]}).encode()]
    )
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "citations": []}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": one}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    stream = b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)
    message = message_of(decoder_of(call_of("anthropic:claude-sonnet-4-5", stream=True)), [stream])
    assert message.citations == at_once.citations == (expected,)
    assert message.blocks == at_once.blocks
    [_, back, _] = body_of("anthropic:claude-sonnet-4-5", HI, message, HI)["messages"]
    assert _given(back["content"]) == _given([block])


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _given(one) for name, one in value.items() if one is not None}
    return [_given(one) for one in value] if isinstance(value, list) else value


BEDROCK = [
    ({"web": {"url": "https://w", "domain": "w"}}, {"url": "https://w"}),
    ({"documentChar": {"documentIndex": 0, "start": 1, "end": 5}}, {"document": 0, "place": ("char", 1, 5)}),
    ({"documentPage": {"documentIndex": 1, "start": 2, "end": 3}}, {"document": 1, "place": ("page", 2, 3)}),
    ({"documentChunk": {"documentIndex": 1, "start": 0, "end": 1}}, {"document": 1, "place": ("block", 0, 1)}),
    (
        {"searchResultLocation": {"searchResultIndex": 3, "start": 0, "end": 1}},
        {"document": 3, "place": ("block", 0, 1)},
    ),
]


@pytest.mark.parametrize(("location", "expected"), BEDROCK)
def test_every_location_of_bedrock(location: dict[str, Any], expected: dict[str, Any]) -> None:
    target = "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    one = {"title": "T", "sourceContent": [{"text": "q1"}, {"text": "q2"}], "location": location}
    content = [{"citationsContent": {"content": [{"text": "Hi"}], "citations": [one]}}]
    body = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}
    at_once = message_of(decoder_of(call_of(target)), [json.dumps(body).encode()])
    place = {"contentBlockIndex": 0}
    stream = [
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {**place, "delta": {"text": "Hi"}}),
        ("contentBlockDelta", {**place, "delta": {"citation": one}}),
        ("contentBlockStop", place),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {}),
    ]
    message = message_of(decoder_of(call_of(target, stream=True)), [frame(*each) for each in stream])
    assert message.blocks == at_once.blocks
    assert message.citations == (Citation(title="T", quote="q1q2", **expected),)
    sent = body_of(target, HI, message, HI)
    assert problems(sent) == ""
    assert sent["messages"][1]["content"] == content


def chat(**beside: Any) -> Message:
    text = "Lyon [1] and Kyiv [2][1], not [9]."
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"id": "1", "model": "sonar", "choices": [choice], **beside}
    at_once = message_of(decoder_of(call_of("openai-compatible:sonar")), [json.dumps(body).encode()])
    pieces = [{**body, "choices": [{"index": 0, "delta": {"content": sign}}]} for sign in text]
    last = {**body, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    stream = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in [*pieces, last])
    message = message_of(decoder_of(call_of("openai-compatible:sonar", stream=True)), [stream, b"data: [DONE]\n\n"])
    assert message.blocks == at_once.blocks
    [_, back, _] = body_of("openai-compatible:sonar", HI, message, HI)["messages"]
    assert "citations" not in back
    assert back["content"] == text
    return message


def test_lists_beside_the_choices_and_marks_in_the_text() -> None:
    """Perplexity: the answer has numbers, and the reply what they stand for."""
    urls = ["https://a", "https://b", "https://c"]
    results = [{"url": "https://a", "title": "A", "date": "2026-01-01", "snippet": "q"}, {"title": "nowhere"}]
    message = chat(citations=urls, search_results=results)
    [text] = message.blocks
    assert isinstance(text, Text)
    assert [(one.url, one.title, one.quote, one.start, one.end) for one in text.citations] == [
        ("https://a", "A", "q", 5, 8),
        ("https://a", "A", "q", 21, 24),
        ("https://b", None, None, 18, 21),
        ("https://c", None, None, None, None),
    ]
    assert [one.url for one in chat(search_results=results).citations] == ["https://a", "https://a"]
    assert chat(citations="https://a", search_results={"url": 1}).citations == ()


def test_sources_without_supports_have_no_span() -> None:
    grounding = {"groundingChunks": [{"maps": {"uri": "https://m", "title": "M", "text": "q"}}, {"web": None}, {}]}
    message = whole(chunk("Hi", finish="STOP", groundingMetadata=grounding))
    assert message.citations == (Citation(url="https://m", title="M", quote="q"),)


def test_citation_metadata_of_gemini() -> None:
    for name in ("citationSources", "citations"):
        recited = {name: [{"startIndex": 4, "endIndex": 8, "uri": "https://x", "license": "mit"}, {"endIndex": 2}]}
        message = streamed(chunk("é€"), chunk("🙂!", finish="STOP", citationMetadata=recited))
        # No sign begins at byte 4, and a source that nobody names is none.
        assert told(message) == [("https://x", None, None, None)]
        recited[name][0] |= {"startIndex": 5, "endIndex": 9}
        assert told(whole(chunk("é€🙂!", finish="STOP", citationMetadata=recited))) == [("https://x", None, None, "🙂")]


def test_sources_may_come_long_after_their_text() -> None:
    """Gemini tells at the end what was behind texts before the code that it ran, in a stream as in a whole reply."""
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    supports = [
        {"segment": {"startIndex": 0, "endIndex": 3, "text": "One"}, "groundingChunkIndices": [0]},
        {"segment": {"startIndex": 5, "endIndex": 8, "text": "Two"}, "groundingChunkIndices": [0, 7, -1, True]},
        {"segment": {"partIndex": 2, "startIndex": 0, "endIndex": 3, "text": "Two"}, "groundingChunkIndices": [0]},
        {"segment": {"partIndex": 2, "startIndex": 0, "endIndex": 3}, "groundingChunkIndices": [0]},
        {"segment": {"startIndex": 0, "endIndex": 3, "text": "Else"}, "groundingChunkIndices": [0]},
    ]
    grounding = {"groundingChunks": [{"web": {"uri": "https://w"}}], "groundingSupports": supports}
    at_once = whole(chunk("One. ", code, "Two.", finish="STOP", groundingMetadata=grounding))
    assert streamed(
        chunk("One. "), chunk(code), chunk("Two."), chunk(finish="STOP", groundingMetadata=grounding)
    ).blocks == (at_once.blocks)
    assert [words for *_, words in told(at_once)] == ["One", "Two", "Two", "Two", None]
    assert [one.start for one in at_once.citations] == [0, 0, 0, 0, None]


def test_a_segment_is_searched_near_its_offsets() -> None:
    """Offsets that are off by some bytes, as they come where a sign of the text is another one than the model wrote."""
    segment = {"startIndex": 7, "endIndex": 14, "text": "is nice"}
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://w"}}],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
    }
    for before, expected in (("Lyon ", "is nice"), ("x" * 1000, None)):
        message = whole(chunk(f"{before}is nice.", finish="STOP", groundingMetadata=grounding))
        assert told(message) == [("https://w", None, None, expected)]


def test_removing_a_fence_removes_the_spans() -> None:
    cited = TextCited(0, "", (Citation(url="https://w", start=8, end=9),))
    events = [TextStarted(0, ""), TextDelta(0, "", '```json\n"a"\n```'), TextEnded(0, ""), cited]
    assert AnswerReader(fenced=True).events(events)[-1] == TextCited(0, "", (Citation(url="https://w"),))
    assert AnswerReader().events(events)[-1] == cited


# --- what holds for all of them ---------------------------------------------------------------------------------------

signs = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text("aé€🙂", max_size=12)


@given(said=st.lists(signs.filter(bool), min_size=1, max_size=3), data=st.data())
def test_byte_offsets_become_character_offsets(said: list[str], data: st.DataObject) -> None:
    whole_text = "".join(said)
    start = data.draw(st.integers(0, len(whole_text) - 1))
    end = data.draw(st.integers(start + 1, len(whole_text)))
    segment = {"startIndex": len(whole_text[:start].encode()), "endIndex": len(whole_text[:end].encode())}
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://w"}}],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
    }
    texts = {place: [text] for place, text in enumerate(said)}
    found = read_grounding(Raw(json.dumps(grounding).encode()), None, texts)
    assert [(one.start, one.end) for one in found] == [(start, end)]
    [event] = cite(texts, found)
    assert isinstance(event, TextCited)
    [one] = event.citations
    before = "".join(said[: event.index])
    assert (one.start, one.end) == (start - len(before), min(end - len(before), len(said[event.index])))
    words = said[event.index][one.start : one.end]
    assert words
    assert whole_text[start:end].startswith(words)


@given(said=signs.filter(bool), start=st.integers(-3, 60), end=st.integers(-3, 60))
def test_invalid_byte_offsets_give_no_span(said: str, start: int, end: int) -> None:
    grounding = {"citations": [{"startIndex": start, "endIndex": end, "uri": "https://x"}]}
    texts = {0: [said]}
    [event] = cite(texts, read_grounding(None, Raw(json.dumps(grounding).encode()), texts))
    assert isinstance(event, TextCited)
    [one] = event.citations
    data = said.encode()
    bounds = {len(said[:place].encode()) for place in range(len(said) + 1)}
    expected = data[start:end].decode() if {start, end} <= bounds and start < end else None
    assert (None if one.start is None else said[one.start : one.end]) == expected


NAMES = (
    "url title source document_index document_title file_id search_result_index cited_text start_char_index "
    "end_char_index start_page_number end_page_number type url_citation start_index end_index content filename "
    "location web documentChar documentPage documentIndex start end sourceContent text groundingChunks segment "
    "groundingSupports startIndex endIndex partIndex groundingChunkIndices citationSources uri"
)
values = st.recursive(
    json_values | st.integers(-(2**70), 2**70) | st.sampled_from([True, 0, 1, 3, "https://w", "url_citation"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=6),
    max_leaves=12,
)


@given(value=values, said=texts)
def test_malformed_citations_are_ignored(value: Any, said: str) -> None:
    """What comes of it can be written, and its spans are in the text."""
    raw = Raw(json.dumps(value).encode())
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("gemini:gemini-2.5-flash", chunk(said or "-", finish="STOP", groundingMetadata=value, citationMetadata=value)),
        (
            "openai:gpt-4o",
            {
                "id": "1",
                "model": "m",
                "choices": [{"index": 0, "message": {"content": said, "annotations": value}, "finish_reason": "stop"}],
                "citations": value,
                "search_results": value,
            },
        ),
    ]
    for target, body in bodies:
        message, failure = attempt(decoder_of(call_of(target)), json.dumps(body).encode())
        assert failure is None or isinstance(failure, ProviderError)
        _check(message)
    for read in (of_claude, of_bedrock, of_openai):
        found = read_citations(raw, read)
        _check(Message.assistant(Text(said, citations=found if read is not of_openai else ())))
        for event in cite({0: [said]}, found):
            assert isinstance(event, TextCited)
            _check(Message.assistant(Text(said, citations=event.citations)))


def _check(message: Message) -> None:
    for text in [block for block in message.blocks if isinstance(block, Text)]:
        for one in text.citations:
            assert (one.url, one.title, one.document, one.quote) != (None,) * 4
            assert one.start is None or (one.end is not None and 0 <= one.start < one.end <= len(text.text))
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


# --- very many --------------------------------------------------------------------------------------------------------

MANY = 20_000
"""Work that grows with the square of this does not end while anybody waits."""


def test_many_sources_do_not_take_quadratic_time() -> None:
    pages = [f"https://a.example/{number}" for number in range(MANY)]
    grounded = [chunk(groundingMetadata={"groundingChunks": [{"web": {"uri": page}}]}) for page in pages]
    chunks = as_events(chunk("One."), *grounded, chunk(finish="STOP"))
    gemini = message_of(decoder_of(call_of("gemini:gemini-2.5-flash", stream=True)), [chunks])
    assert [one.url for one in gemini.citations] == pages

    deltas = [{"content": "One."}, *[{"annotations": [{"type": "url_citation", "url": page}]} for page in pages]]
    choices = [*[{"delta": delta} for delta in deltas], {"delta": {}, "finish_reason": "stop"}]
    lines = [b"data: %b\n\n" % json.dumps({"id": "i", "choices": [choice]}).encode() for choice in choices]
    assert [one.url for one in message_of(decoder_of(call_of("openrouter:a/b")), lines).citations] == pages

    cited = [{"location": {"web": {"url": page}}} for page in pages]
    content = [{"citationsContent": {"content": [{"text": "One."}], "citations": cited}}]
    body = json.dumps({"output": {"message": {"content": content}}, "stopReason": "end_turn"}).encode()
    message = message_of(decoder_of(call_of("bedrock:amazon.nova-lite-v1:0")), [body])
    assert [one.url for one in message.citations] == pages


def test_repeated_long_sources_are_bounded() -> None:
    choice = {"message": {"content": "[1]" * MANY}, "finish_reason": "stop"}
    beside = {"search_results": [{"url": "https://a.example", "snippet": "x" * 1_000_000}]}
    body = json.dumps({"id": "i", "choices": [choice], **beside}).encode()
    message = message_of(decoder_of(call_of("openai:gpt-4o")), [body])
    assert 0 < sum(len(one.quote or "") for one in message.citations) < 20_000_000
