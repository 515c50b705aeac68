"""Names and shapes of the wire that several modules of this dialect share.

Owns: the reader key, the typed shape of the chunk that streams are nearly all made of, the careful way to take JSON
apart without losing a member, and the mark of ids that are ours.
Must not know: events and messages.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

__all__ = [
    "ABSENT",
    "MADE_UP_ID",
    "READER",
    "SIGNATURE",
    "Chunk",
    "compact",
    "decode_chunk",
    "given_members",
    "raw_list",
    "raw_members",
    "text_of",
    "text_or_none",
]

READER: Final = "gemini"
"""The reader key: who can read back what this dialect keeps as it came."""

SIGNATURE: Final = "thoughtSignature"

# Older models give their calls no ids. The ids that we make up for them must not go back: the model would meet names
# that it never used. The mark is in the id itself, because a tool's result knows of its call only the id.
MADE_UP_ID: Final = "call_gem_"

ABSENT: Final = Raw(b"")


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    text: str = ""
    thought: bool = False


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[_Part] = []
    role: str | None = None


# A member that is not named here makes the decoder take the careful way, so nothing can be overlooked.
class _Candidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _Content
    index: int = 0
    groundingMetadata: Raw = ABSENT  # noqa: N815 -- the wire's own name
    """Empty in every chunk of a grounded reply but the last."""


class Chunk(Struct, forbid_unknown_fields=True, gc=False):
    """A piece of text or of thought: what a stream consists of but for its last chunk and its function calls."""

    candidates: list[_Candidate]
    usageMetadata: Raw = ABSENT  # noqa: N815
    modelVersion: Raw = ABSENT  # noqa: N815
    responseId: Raw = ABSENT  # noqa: N815
    createTime: Raw = ABSENT  # noqa: N815


decode_chunk = msgspec.json.Decoder(Chunk).decode

raw_members = msgspec.json.Decoder(dict[str, Raw]).decode
"""The members of a JSON object, each as it came."""

raw_list = msgspec.json.Decoder(list[Raw]).decode
"""The elements of a JSON array, each as it came."""

text_of = msgspec.json.Decoder(str).decode

text_or_none = msgspec.json.Decoder(str | None).decode


def given_members(data: bytes | str | Raw) -> dict[str, Raw]:
    """The members of a JSON object without those that are null: Google leaves out what is not there, proxies do not."""
    return {name: raw for name, raw in raw_members(data).items() if bytes(raw) != b"null"}


def compact(raw: Raw) -> Raw:
    """A copy without the spaces between tokens: whole replies are pretty-printed, streams are not, and they mean the
    same. Numbers and strings keep their spelling. A copy also lets go of the buffer that the slice came from."""
    return Raw(msgspec.json.format(bytes(raw), indent=-1))
