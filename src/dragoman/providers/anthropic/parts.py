"""The blocks of a reply while they grow, whether they come in pieces or whole.

Owns: which events each kind of block becomes, and what is kept of members and deltas that we do not know.
Must not know: the events around the blocks, and how bytes become events.

A block that arrives whole is opened and ended at once, so whole replies and streams cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

import msgspec
from msgspec import Raw

from dragoman.conversation import (
    BlockReceived,
    Native,
    Opaque,
    ReplyEvent,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
)

from .wire import (
    READER,
    ArgumentsPiece,
    Piece,
    SignaturePiece,
    TextPiece,
    ThinkingPiece,
    as_object,
    grown,
    joined,
    known,
    members,
    text,
    written,
)

__all__ = ["UNREADABLE", "Part", "open_part"]

UNREADABLE = "INVALID_JSON"
"""The member under which arguments travel that are no JSON object: the wire takes objects only."""

_decode_list = msgspec.json.Decoder(list[Raw]).decode


class Part(Protocol):
    """A block that has begun."""

    foreign: ClassVar[bool]
    """Whether it is of a kind we do not know, to which any delta may belong."""

    def grow(self, piece: Piece, events: list[ReplyEvent]) -> bool:
        """Take one of the usual pieces; False if it is not of this kind of block."""
        ...

    def merge(self, delta: Mapping[str, Raw]) -> None:
        """Take any other delta, as raw members."""
        ...

    def end(self, events: list[ReplyEvent]) -> None:
        """The block is complete."""
        ...


class _Kept:
    """What all parts share: members that have no place in our blocks, and deltas that bring more of them."""

    __slots__ = ("citations", "fields", "index")
    foreign: ClassVar[bool] = False

    def __init__(self, index: int, fields: dict[str, Raw]) -> None:
        self.index = index
        self.fields = fields
        self.citations: list[Raw] = []

    def merge(self, delta: Mapping[str, Raw]) -> None:
        for name, raw in delta.items():
            if name == "citation":
                self.citations.append(raw.copy())
            elif name != "type":
                self.fields[name] = grown(self.fields.get(name), raw)

    def all_fields(self) -> dict[str, Raw]:
        if self.citations:
            before = _decode_list(self.fields["citations"]) if "citations" in self.fields else []
            parts = [bytes(raw) for raw in (*before, *self.citations)]
            self.fields["citations"] = Raw(b"[" + b",".join(parts) + b"]")
        elif bytes(self.fields.get("citations", b"")) == b"[]":
            del self.fields["citations"]  # a stream opens every text so where documents may be cited
        return self.fields

    def native(self) -> Native | None:
        fields = self.all_fields()
        return Native(READER, fields) if fields else None


class _Text(_Kept):
    __slots__ = ()

    def __init__(self, index: int, block: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        super().__init__(index, known(block, "type", "text"))
        events.append(TextStarted(index, ""))
        if first := text(block.get("text")):
            events.append(TextDelta(index, "", first))

    def grow(self, piece: Piece, events: list[ReplyEvent]) -> bool:
        if type(piece) is not TextPiece:
            return False
        if piece.text:
            events.append(TextDelta(self.index, "", piece.text))
        return True

    def end(self, events: list[ReplyEvent]) -> None:
        events.append(TextEnded(self.index, "", self.native()))


class _Thinking(_Kept):
    __slots__ = ("encrypted", "signature")

    def __init__(self, index: int, block: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        super().__init__(index, known(block, "type", "thinking", "signature", "data"))
        self.signature = text(block.get("signature"))
        self.encrypted = text(block.get("data"))
        events.append(ThinkingStarted(index, "", READER))
        if first := text(block.get("thinking")):
            events.append(ThinkingDelta(index, "", first))

    def grow(self, piece: Piece, events: list[ReplyEvent]) -> bool:
        if type(piece) is ThinkingPiece:
            if piece.thinking:
                events.append(ThinkingDelta(self.index, "", piece.thinking))
            return True
        if type(piece) is SignaturePiece:
            self.signature = piece.signature  # whole, however many come: the last one counts
            return True
        return False

    def end(self, events: list[ReplyEvent]) -> None:
        # A stream opens a thought with an empty signature; one that stays empty signs nothing.
        events.append(ThinkingEnded(self.index, "", self.signature or None, self.encrypted, self.native()))


class _Call(_Kept):
    __slots__ = ("given", "grew", "id")

    def __init__(
        self, index: int, block: Mapping[str, Raw], events: list[ReplyEvent], id: str, names: Mapping[str, str]
    ) -> None:
        super().__init__(index, known(block, "type", "id", "name", "input"))
        self.id = text(block.get("id")) or id
        self.given = block["input"].copy() if "input" in block else Raw(b"{}")
        self.grew = False
        name = text(block["name"]) or ""
        events.append(ToolCallStarted(index, self.id, names.get(name, name)))

    def grow(self, piece: Piece, events: list[ReplyEvent]) -> bool:
        if type(piece) is not ArgumentsPiece:
            return False
        if piece.partial_json:
            self.grew = True
            events.append(ToolCallDelta(self.index, self.id, piece.partial_json))
        return True

    def end(self, events: list[ReplyEvent]) -> None:
        # A call that came whole has its input here. In a stream this is {} and the pieces follow, or none for {}.
        if not self.grew and members(self.given):
            events.append(ToolCallDelta(self.index, self.id, bytes(self.given).decode()))
        events.append(ToolCallEnded(self.index, self.id, self.native()))


class _Foreign(_Kept):
    """A block that only the provider understands: server tools and their results, and whatever comes in future."""

    __slots__ = ("pieces",)
    foreign: ClassVar[bool] = True

    def __init__(self, index: int, block: Mapping[str, Raw]) -> None:
        super().__init__(index, {name: raw.copy() for name, raw in block.items()})
        self.pieces: list[str] = []

    def grow(self, piece: Piece, events: list[ReplyEvent]) -> bool:
        if type(piece) is not ArgumentsPiece:
            return False
        self.pieces.append(piece.partial_json)
        return True

    def end(self, events: list[ReplyEvent]) -> None:
        fields = self.all_fields()
        if whole := "".join(self.pieces):
            fields["input"] = Raw(as_object(whole) or written({UNREADABLE: whole}))
        id = text(fields.get("id")) if bytes(fields.get("id", b"")).startswith(b'"') else None
        events.append(BlockReceived(self.index, id or "", Opaque(READER, Raw(joined(fields.items())))))


def open_part(
    index: int, block: Mapping[str, Raw], events: list[ReplyEvent], reply_id: str | None, names: Mapping[str, str]
) -> Part:
    """The part that this block begins. `names` maps the names of tools back to their own."""
    kind = text(block["type"])
    if kind == "text":
        return _Text(index, block, events)
    if kind in {"thinking", "redacted_thinking"}:
        return _Thinking(index, block, events)
    if kind == "tool_use":
        # The API always gives an id; servers that imitate it may not, and a call without one cannot be answered.
        return _Call(index, block, events, f"call_{reply_id or 'reply'}_{index}", names)
    return _Foreign(index, block)
