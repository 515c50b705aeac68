"""What the simulator needs of a dialect: reading its requests, writing its replies and its errors.

Owns: the Dialect record, and the values that pass between it and the server.
Must not know: any particular dialect, connections, faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.conversation import Block, Native, StopReason, Usage
from dragoman.simulator.json_access import JsonObject
from dragoman.simulator.reply import Chunking
from dragoman.simulator.request import DialectName, Heard, Request

__all__ = ["Answer", "Dialect", "Frame", "FrameKind", "Refusal", "UnwritableReplyError", "native_fields"]

FrameKind: TypeAlias = Literal["start", "part", "delta", "other", "finish", "end"]
"""start: the reply begins; part: a part of it begins; finish: says why it ended; end: the very last mark."""

ErrorForm: TypeAlias = Literal["event", "nested", "failed"]


class Frame(Struct, frozen=True):
    """One event of a stream, before it is written out."""

    data: JsonObject | bytes
    name: str = ""
    kind: FrameKind = "other"


class Refusal(Struct, frozen=True):
    """An error, before a dialect has given it its shape."""

    status: int
    message: str
    code: str | None = None
    """A provider's own word for the error; None: the dialect's usual one for the status."""
    param: str | None = None
    retry_after: str | None = None
    """Seconds, for a dialect that also says so in the body."""


class UnwritableReplyError(ValueError):
    """The script's reply has something that this dialect cannot carry."""


class Answer(Struct, frozen=True, kw_only=True):
    """A scripted reply with everything decided that the script left open."""

    blocks: tuple[Block, ...]
    usage: Usage | None
    """None: nothing is reported."""
    stop_reason: StopReason
    raw_stop_reason: str | None
    model: str
    chunking: Chunking
    request: Request
    reasoning_field: str
    """Where compatible servers of the chat dialect put thinking."""

    def id(self, prefix: str) -> str:
        """An id of this reply: the same in every run."""
        return f"{prefix}sim{self.request.number:06d}"

    def pieces(self, text: str) -> list[str]:
        """The text in pieces of one delta each."""
        return self.chunking.pieces(text)


class Dialect(Struct, frozen=True, kw_only=True):
    """A dialect, as a record of functions."""

    name: DialectName
    stream_type: str
    """The content type of streams."""
    whole_type: str
    """The content type of everything else."""
    hear: Callable[[JsonObject], Heard]
    check: Callable[[JsonObject, Mapping[str, str]], Refusal | None]
    """What the provider would refuse in this body or these headers."""
    whole: Callable[[Answer], JsonObject]
    frames: Callable[[Answer], list[Frame]]
    failure: Callable[[Refusal, str], JsonObject]
    """The body of an error; the text is the request's id."""
    failure_in_stream: Callable[[Refusal, Answer, int, ErrorForm], list[Frame]]
    """The events that tell of an error in a stream that began well; the number counts the events before."""
    failure_in_whole: Callable[[Refusal, Answer, ErrorForm], JsonObject]
    """A reply with status 200 that nevertheless is an error."""
    with_unknown: Callable[[Answer, list[Frame], int], list[Frame]]
    """The events with one more at this index, of a kind that no client knows yet."""
    bad_key: Callable[[str | None], Refusal]
    """The refusal of a wrong key, or of none."""
    models: Callable[[Sequence[str]], JsonObject]
    """The list of models."""
    model: Callable[[str], JsonObject]
    """One entry of that list."""
    no_model: Callable[[str], Refusal]
    headers: Callable[[str], dict[str, str]]
    """Headers of every response; the text is the request's id."""


def native_fields(native: Native | None, reader: str) -> JsonObject:
    """The provider's own fields of a block, where this dialect is the one that can read them."""
    if native is None or native.provider.partition(":")[0] != reader:
        return {}
    return {name: cast("object", msgspec.json.decode(raw)) for name, raw in native.fields.items()}
