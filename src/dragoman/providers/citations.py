"""Read the citations of all dialects as one value, from the raw JSON that decoders keep.

Malformed data gives no citation, or one without a span; it never breaks a reply.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from msgspec import Raw, structs

from dragoman.conversation import Citation, ReplyEvent, TextCited

from .wire import as_items, as_object, as_objects, value_of

_MOST: Final = 1 << 24
"""How many characters citations may have together: a text can cite one long source any number of times."""
_LARGEST: Final = 2**53
"""The integers that every JSON reader can represent."""

_Unit: TypeAlias = Literal["char", "page", "block"]
Texts: TypeAlias = Mapping[int, list[str]]
"""The texts of a reply, which are one text to the provider: their pieces, by index."""


def cite(texts: Texts, citations: Iterable[Citation], id: str = "") -> list[ReplyEvent]:
    """Events for citations whose spans count over all texts together; one without a span belongs to the last text."""
    if not texts:
        return []
    ends = _ends(texts)
    places, cited, room = [*texts], dict[int, list[Citation]](), _MOST
    for one in citations:
        room -= sum(map(len, filter(None, (one.url, one.title, one.quote))))
        if room < 0:
            break
        start, end = one.start, one.end
        if start is None or end is None or not 0 <= start < end <= ends[-1]:
            cited.setdefault(places[-1], []).append(structs.replace(one, start=None, end=None))
            continue
        which = bisect_left(ends, start + 1)
        before = ends[which - 1] if which else 0
        span = {"start": start - before, "end": min(end, ends[which]) - before}
        cited.setdefault(places[which], []).append(structs.replace(one, **span))
    return [TextCited(index, id, tuple(cited[index])) for index in places if index in cited]


def _ends(texts: Texts) -> list[int]:
    return [*accumulate([sum(map(len, pieces)) for pieces in texts.values()])]


# --- reading members --------------------------------------------------------------------------------------------------


def _text(*values: object) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


def _number(*values: object) -> int | None:
    return next((value for value in values if type(value) is int and 0 <= value < _LARGEST), None)


def _place(unit: _Unit, first: object, last: object) -> tuple[_Unit, int, int] | None:
    begin, end = _number(first), _number(last)
    return None if begin is None or end is None else (unit, begin, end)


def _has_source(citation: Citation) -> bool:
    return (citation.url, citation.title, citation.document, citation.quote) != (None, None, None, None)


# --- one text at a time: Anthropic, Bedrock, OpenAI -------------------------------------------------------------------


def read_citations(raw: Raw, read: Callable[[dict[str, object]], Citation]) -> tuple[Citation, ...]:
    """The citations in a dialect's list, each read by one of the functions below."""
    return tuple([found for found in map(read, as_objects(value_of(raw))) if _has_source(found)])


_UNITS: Final[dict[_Unit, str]] = {"char": "char_index", "page": "page_number", "block": "block_index"}


def of_claude(one: dict[str, object]) -> Citation:
    """One of the `citations` of Anthropic's text block; each kind of location has its own members."""
    places = [_place(unit, one.get(f"start_{name}"), one.get(f"end_{name}")) for unit, name in _UNITS.items()]
    return Citation(
        url=_text(one.get("url"), one.get("source")),
        title=_text(one.get("title"), one.get("document_title")),
        document=_text(one.get("file_id")) or _number(one.get("document_index"), one.get("search_result_index")),
        quote=_text(one.get("cited_text")),
        place=next(filter(None, places), None),
    )


_LOCATIONS: Final[dict[str, _Unit]] = {"documentChar": "char", "documentPage": "page"}
"""The unit of a location; others count parts of a document."""


def of_bedrock(one: dict[str, object]) -> Citation:
    """One of the `citations` of Bedrock's text."""
    location = as_object(one.get("location"))
    where = next(iter(as_objects([*location.values()])), dict[str, object]())
    return Citation(
        url=_text(where.get("url"), one.get("source")),
        title=_text(one.get("title")),
        document=_number(where.get("documentIndex"), where.get("searchResultIndex")),
        quote="".join([_text(part.get("text")) or "" for part in as_objects(one.get("sourceContent"))]) or None,
        place=_place(_LOCATIONS.get(next(iter(location), ""), "block"), where.get("start"), where.get("end")),
    )


def of_openai(given: dict[str, object]) -> Citation:
    """One of the `annotations` of OpenAI's text."""
    kind = given.get("type")
    one = given | (as_object(given.get(kind)) if isinstance(kind, str) else {})  # the chat API nests them
    return Citation(
        url=_text(one.get("url")),
        title=_text(one.get("title"), one.get("filename")),
        document=_text(one.get("file_id")),
        quote=_text(one.get("content")),
        start=_number(one.get("start_index")),
        end=_number(one.get("end_index")),
    )


# --- all texts of a reply ---------------------------------------------------------------------------------------------

_MARK: Final = re.compile(r"\[([0-9]{1,3})\]")


def read_sources(citations: Raw | None, results: Raw | None, texts: Texts) -> Iterator[Citation]:
    """The lists that Perplexity and xAI put beside the choices; `[1]` in the text refers to the first source."""
    described = {url: each for each in as_objects(value_of(results)) if (url := _text(each.get("url")))}
    urls = [_text(url) for url in as_items(value_of(citations))] or [*described]
    marks: dict[int, list[re.Match[str]]] = {}
    for mark in _MARK.finditer("".join([piece for pieces in texts.values() for piece in pieces])):
        marks.setdefault(int(mark[1]), []).append(mark)
    for number, url in enumerate(urls, 1):
        if url is None:
            continue
        about = described.get(url, {})
        source = Citation(url=url, title=_text(about.get("title")), quote=_text(about.get("snippet")))
        for mark in marks.get(number, ()):
            yield structs.replace(source, start=mark.start(), end=mark.end())
        if number not in marks:
            yield source


def read_grounding(grounding: Raw | None, recited: Raw | None, texts: Texts) -> list[Citation]:
    """Gemini's `groundingMetadata` and `citationMetadata`, whose offsets count bytes of UTF-8."""
    text = "".join([piece for pieces in texts.values() for piece in pieces])
    bounds, starts = _byte_bounds(text), dict(zip(texts, [0, *_ends(texts)], strict=False))
    metadata = as_object(value_of(grounding))
    chunks = [_source(as_object(one)) for one in as_items(metadata.get("groundingChunks"))]
    supports, found = as_objects(metadata.get("groundingSupports")), list[Citation]()
    for support in supports:
        span = _segment(as_object(support.get("segment")), text, bounds, starts)
        places = [
            place for each in as_items(support.get("groundingChunkIndices")) if (place := _number(each)) is not None
        ]
        found += [structs.replace(chunks[place], start=span[0], end=span[1]) for place in places if place < len(chunks)]
    if not supports:  # then every source supports the whole text
        found += chunks
    recitations = as_object(value_of(recited))
    for one in as_objects(recitations.get("citationSources") or recitations.get("citations")):
        start, end = _characters(one, 0, bounds)
        found.append(Citation(url=_text(one.get("uri")), title=_text(one.get("title")), start=start, end=end))
    return [one for one in found if _has_source(one)]


def _source(chunk: dict[str, object]) -> Citation:
    """The one object in a chunk: a web page, a document, a place on a map or a picture."""
    about = next(iter(as_objects([*chunk.values()])), dict[str, object]())
    return Citation(
        url=_text(about.get("uri"), about.get("sourceUri")),
        title=_text(about.get("title")),
        document=_text(about.get("documentName"), about.get("fileSearchStore")),
        quote=_text(about.get("text")),
    )


_DRIFT: Final = 200
"""How far from its offsets a segment is searched: some count characters that are not in the text."""


def _segment(
    segment: dict[str, object], text: str, bounds: Sequence[int], starts: Mapping[int, int]
) -> tuple[int | None, int | None]:
    """The span of a segment in characters. Its offsets are documented as relative to its part, but mostly count from
    the beginning of all text; the words that it repeats decide."""
    words, part = _text(segment.get("text")), _number(segment.get("partIndex")) or 0
    for base in (0, starts.get(part, 0)) if words else (starts.get(part, 0),):
        start, end = _characters(segment, bounds[base], bounds)
        if start is None or end is None:
            continue
        if words is None or (end - start == len(words) and text[start:end] == words):
            return start, end
    near = bisect_left(bounds, _number(segment.get("startIndex")) or 0)
    found = text.find(words, max(0, near - _DRIFT), near + len(words) + _DRIFT) if words else -1
    return (found, found + len(words or "")) if found >= 0 else (None, None)


def _characters(segment: dict[str, object], base: int, bounds: Sequence[int]) -> tuple[int | None, int | None]:
    """`startIndex` and `endIndex` in characters; None for one past the end, or in the middle of a character."""
    found: list[int | None] = []
    for offset in (segment.get("startIndex", 0), segment.get("endIndex")):
        number = _number(offset)
        place = bisect_left(bounds, base + number) if number is not None else len(bounds)
        exact = place < len(bounds) and number is not None and bounds[place] == base + number
        found.append(place if exact else None)
    return found[0], found[1]


def _byte_bounds(text: str) -> Sequence[int]:
    """Where each character begins in UTF-8, and where the last one ends."""
    if text.isascii():
        return range(len(text) + 1)
    sizes = [1 if c < "\x80" else 2 if c < "\u0800" else 3 if c < "\U00010000" else 4 for c in text]
    return [0, *accumulate(sizes)]
