"""Generated values for property tests, shared by the tests of all rooms."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from dragoman.conversation import (
    Account,
    Attempt,
    Block,
    Citation,
    Conversation,
    Json,
    Media,
    Message,
    Native,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

# Everything that UTF-8 can carry: surrogates cannot be written to JSON at all.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text("abcdefgh_", min_size=1, max_size=8)
ids = st.text("0123456789abcdef", min_size=1, max_size=6)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
raws = json_values.map(lambda value: Raw(json.dumps(value, ensure_ascii=False).encode()))
extras = st.none() | st.dictionaries(st.sampled_from(["new_field", "später", "x-1"]), raws, min_size=1, max_size=2)
natives = st.none() | st.builds(Native, provider=names, fields=st.dictionaries(names, raws, max_size=2), extra=extras)
usages = st.builds(
    Usage,
    input=st.none() | st.integers(0, 10**9),
    output=st.none() | st.integers(0, 10**9),
    cache_read=st.none() | st.integers(0, 10**9),
    total=st.none() | st.integers(0, 10**9),
    partial=st.booleans(),
    extra=extras,
)
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))  # noqa: DTZ001

citations = st.builds(
    Citation,
    url=st.none() | texts,
    title=st.none() | texts,
    document=st.none() | st.integers(0, 2**53) | texts,
    quote=st.none() | texts,
    start=st.none() | st.integers(0, 99),
    end=st.none() | st.integers(0, 99),
    place=st.none() | st.tuples(st.sampled_from(["char", "page", "block"]), st.integers(0, 99), st.integers(0, 99)),
    extra=extras,
)
text_blocks = st.builds(
    Text, text=texts, native=natives, citations=st.lists(citations, max_size=2).map(tuple), extra=extras
)
media_blocks = st.one_of(
    st.builds(Media.from_bytes, st.binary(max_size=10), st.sampled_from(["image/png", "audio/wav", "application/pdf"])),
    st.builds(Media.from_url, st.just("https://host/picture.png?size=1")),
    st.builds(Media.from_path, st.just("film.mp4")),
)
json_parts = st.builds(Json, raw=raws, extra=extras)
opaque_blocks = st.builds(Opaque, provider=names, raw=raws, extra=extras)
thinking_blocks = st.builds(
    Thinking, text=texts, provider=names, signature=st.none() | texts, encrypted=st.none() | texts, native=natives
)
call_blocks = st.builds(
    ToolCall, id=ids, name=names, arguments=texts, partial=st.booleans(), native=natives, extra=extras
)
result_blocks = st.builds(
    ToolResult,
    call_id=ids,
    name=names,
    content=st.lists(text_blocks | json_parts | media_blocks, max_size=2).map(tuple),
    is_error=st.booleans(),
    structured=st.none() | json_parts,
    duration=st.none() | st.floats(0, 1e6),
    retries=st.integers(0, 5),
    began=st.none() | times,
    extra=extras,
)
blocks: st.SearchStrategy[Block] = st.one_of(
    text_blocks, media_blocks, opaque_blocks, thinking_blocks, call_blocks, result_blocks
)
attempts = st.builds(
    Attempt, outcome=texts, duration=st.floats(0, 1e6), first_token=st.none() | st.floats(0, 1e6), extra=extras
)
accounts = st.builds(
    Account,
    began=times,
    seconds=st.floats(0, 1e6),
    attempts=st.lists(attempts, max_size=2).map(tuple),
    extra=extras,
)
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool"]),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    provider=st.none() | names,
    model=st.none() | names,
    usage=st.none() | usages,
    stop_reason=st.none() | st.sampled_from(StopReason),
    raw_stop_reason=st.none() | texts,
    time=st.none() | times,
    native=natives,
    account=st.none() | accounts,
    extra=extras,
)
conversations = st.builds(
    Conversation,
    system=st.none() | texts,
    messages=st.lists(messages, max_size=4).map(tuple),
    metadata=st.dictionaries(texts, json_values, max_size=2),
    extra=extras,
)
