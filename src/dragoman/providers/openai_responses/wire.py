"""The JSON of the Responses API: the struct of a streamed event, and small readers.

Owns: turning raw members into values; the name under which our own replies are read back.
Must not know: what an event means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Native

READER: Final = "openai_responses"
"""The reader of everything that only this API understands."""

MALFORMED: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What the readers raise for JSON that is broken or something else than expected."""

_NOTHING: Final = Raw(b"")


# One struct for all events, so that each is parsed once: the members that any handler looks at. Objects stay raw until
# a handler asks for them; `logprobs` and `obfuscation` of a delta are passed over (the finished item repeats the
# former, and the latter is only padding).
class Event(Struct, gc=False):
    """An event of the stream."""

    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    item: Raw = _NOTHING
    part: Raw = _NOTHING
    response: Raw = _NOTHING
    error: Raw = _NOTHING


decode_event: Final = msgspec.json.Decoder(Event).decode
decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
encode: Final = msgspec.json.Encoder().encode
_decode_items: Final = msgspec.json.Decoder(list[Raw]).decode


def items_of(raw: Raw | None) -> list[Raw]:
    """The items of a JSON array; none where it is absent, null or something else."""
    return _decode_items(raw) if raw and bytes(memoryview(raw)[:1]) == b"[" else []


def value_of(raw: Raw | None) -> object:
    """A member, parsed; None where it is absent."""
    return cast("object", msgspec.json.decode(raw)) if raw else None


def text_of(raw: Raw | None) -> str | None:
    """A member that is a string; None for anything else."""
    value = value_of(raw)
    return value if isinstance(value, str) else None


def native_of(fields: Mapping[str, Raw]) -> Native:
    """Members to keep beside a block. They are copied: a slice would keep the whole reply in memory."""
    return Native(provider=READER, fields={name: raw.copy() for name, raw in fields.items()})
