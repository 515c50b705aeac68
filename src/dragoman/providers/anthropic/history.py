"""Messages of a conversation as the wire wants them.

Owns: each block's wire form; what of a history this provider does not get, and why.
Must not know: options, tools and everything else of a request.

A message's wire form is computed once and kept beside it. It is the inside of the content array, without brackets, so
that turns of one role that follow each other become one by joining. What the messages so far became is kept beside the
conversation, so that a turn on a long history costs its new messages and a join.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2s
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Block,
    Conversation,
    Media,
    MediaKind,
    Message,
    Native,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.conversation.values import memory_of
from dragoman.providers.codec import Written, written_up_to

from .media import media_block
from .parts import UNREADABLE
from .wire import READER, as_object, members, text, written

__all__ = ["MODEL_SPEAKS", "Rules", "Sent", "Turn", "joined", "sent", "wire_turn", "wire_turns"]

MODEL_SPEAKS: Final = b'{"role":"assistant","content":['
_USER_SPEAKS: Final = b'{"role":"user","content":['
_OPENINGS: Final = {"user": _USER_SPEAKS, "tool": _USER_SPEAKS, "assistant": MODEL_SPEAKS}
_LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NONE_MARKED: Final[Mapping[int, bytes]] = {}
_NO_ERROR_TEXT: Final = "The tool failed and gave no reason."


class Rules(Struct, frozen=True):
    """What the wire form of a message depends on beside the message."""

    key: str
    """Names all of this; see `remembered`."""
    media: frozenset[MediaKind]
    media_urls: frozenset[MediaKind]
    result_media: frozenset[MediaKind]
    thinking: bool
    """Whether thinking is sent back."""
    name_of: Callable[[str], str]
    """The name of a tool on the wire, by its own."""
    left_out: frozenset[int] = frozenset()
    """Indices of blocks that are left out of this message: server calls that never got a result."""


class Turn(NamedTuple):
    """A message on the wire."""

    opening: bytes
    """Whose turn it is: what stands before the content, the same object for the same role."""
    content: bytes
    """The blocks, joined by commas; empty if nothing is left of the message."""
    plain: bool
    """Whether all that follows here is as it mostly is: nothing lost, no thinking, no calls by the provider."""
    losses: tuple[tuple[int, str, str], ...] = ()
    """Index and kind of a block, and why it is not sent or sent otherwise."""
    markable: bool = False
    """Whether a cache mark may be put on the last block."""
    thinks: bool = False
    """Whether it holds thinking."""
    server_calls: tuple[tuple[int, str], ...] = ()
    """Index and id of calls that the provider ran itself."""
    server_results: frozenset[str] = frozenset()
    """Ids of such calls whose results are here."""


class _Writer:
    """The blocks of one message, while they are written."""

    __slots__ = ("blocks", "calls", "index", "losses", "markable", "results", "role", "rules", "thinks")

    def __init__(self, role: str, rules: Rules) -> None:
        self.role = role
        self.rules = rules
        self.index = 0
        self.blocks: list[bytes] = []
        self.losses: list[tuple[int, str, str]] = []
        self.markable = False
        self.thinks = False
        self.calls: list[tuple[int, str]] = []
        self.results: list[str] = []

    def write(self, block: Mapping[str, object], native: Native | None = None, *, markable: bool = True) -> None:
        if native is not None and native.provider == READER:
            block = {**block, **{name: raw for name, raw in native.fields.items() if name not in block}}
        self.blocks.append(written(block))
        self.markable = markable and "cache_control" not in block

    def lose(self, what: str, why: str) -> None:
        self.losses.append((self.index, what, why))


class Sent(Written, frozen=True, kw_only=True):
    """Turns joined to messages, but for the end of the last one."""

    speaking: bytes = b""
    """The opening of the last one."""
    unusual: tuple[tuple[int, Turn], ...] = ()
    """Which turns are not plain."""


def sent(conversation: Conversation, rules: Rules) -> Sent:
    """All messages. Turns of one role that follow each other become one, as the API would make them anyway.

    Results of tools so come first in the turn after their calls, where the API wants them, whoever speaks after them.
    """
    count = len(conversation.messages)
    return written_up_to(
        conversation, count, rules.key, lambda before, new: joined(before, wire_turns(new, rules)), Sent()
    )


def joined(before: Sent, turns: Sequence[Turn], marked: Mapping[int, bytes] = _NONE_MARKED) -> Sent:
    """What was sent before, and these turns behind it; at the given places with this at their end."""
    pieces: list[bytes] = []
    speaking = before.speaking
    unusual: list[tuple[int, Turn]] = []
    for at, turn in enumerate(turns, before.count):
        if not turn.plain:
            unusual.append((at, turn))
        content = turn.content
        if not content:
            continue
        opening = turn.opening
        pieces.append(b"," if opening is speaking else b"]}," + opening if speaking else b"[" + opening)
        pieces.append(content[:-1] + marked[at] if at in marked else content)
        speaking = opening
    return Sent(
        count=before.count + len(turns),
        pieces=(*before.pieces, *pieces),
        speaking=speaking,
        unusual=(*before.unusual, *unusual),
    )


def wire_turns(messages: Iterable[Message], rules: Rules) -> list[Turn]:
    """The wire forms of messages, each computed at most once for these rules."""
    key = rules.key
    # What `remembered` does, without a call for each of a thousand messages that are known already.
    return [
        kept if (kept := message.__dict__.get(key)) is not None else _remembered(message, rules) for message in messages
    ]


def _remembered(message: Message, rules: Rules) -> Turn:
    turn = memory_of(message)[rules.key] = _plain_turn(message) or wire_turn(message, rules)
    return turn


def _plain_turn(message: Message) -> Turn | None:
    """The wire form of a message that is one text, as most are; None for any other."""
    if len(message.blocks) != 1:
        return None
    block = message.blocks[0]
    if type(block) is not Text or block.native is not None or not block.text or block.text.isspace():
        return None
    return Turn(_OPENINGS[message.role], b'{"type":"text","text":%b}' % written(block.text), True, (), True)


def wire_turn(message: Message, rules: Rules) -> Turn:
    """The wire form of a message, computed now."""
    writer = _Writer(message.role, rules)
    for index, block in enumerate(message.blocks):
        writer.index = index
        if index in rules.left_out:
            writer.lose("opaque", "the provider ran this call itself and its result never arrived")
        else:
            _HANDLERS[type(block)](writer, block)
    if not writer.blocks:
        writer.index = 0
        what = _kind(message.blocks[0]) if message.blocks else "message"
        if not writer.losses:
            writer.lose(what, "the message is empty, and the provider takes no empty messages")
    return Turn(
        _OPENINGS[message.role],
        b",".join(writer.blocks),
        not (writer.losses or writer.thinks or writer.calls or writer.results),
        tuple(writer.losses),
        writer.markable,
        writer.thinks,
        tuple(writer.calls),
        frozenset(writer.results),
    )


def _kind(block: Block) -> str:
    return str(type(block).__struct_config__.tag)


# --- one function for each kind of block ---


def _text(writer: _Writer, block: Text) -> None:
    # The API refuses texts without anything but white space, even those that a model wrote.
    if block.text and not block.text.isspace():
        writer.write({"type": "text", "text": block.text}, block.native)


def _thinking(writer: _Writer, block: Thinking) -> None:
    if block.provider != READER:
        writer.lose("thinking", f"only {block.provider} can read it back")
    elif not writer.rules.thinking:
        writer.lose("thinking", "this model does not get its thinking back")
    elif block.signature:
        # As it came, also with an empty text: the signature holds the thought itself.
        member = {"type": "thinking", "thinking": block.text, "signature": block.signature}
        writer.write(member, block.native, markable=False)
        writer.thinks = True
    elif block.encrypted is not None:
        writer.write({"type": "redacted_thinking", "data": block.encrypted}, block.native, markable=False)
        writer.thinks = True
    else:
        writer.lose("thinking", "its signature never arrived, and the provider takes none without")


def _call(writer: _Writer, block: ToolCall) -> None:
    arguments = as_object(block.arguments)
    if arguments is None:
        arguments = written({UNREADABLE: block.arguments})
        writer.lose("tool_call", f"its arguments are not a JSON object; sent as text under {UNREADABLE}")
    member = {
        "type": "tool_use",
        "id": _legal_id(block.id),
        "name": writer.rules.name_of(block.name),
        "input": Raw(arguments),
    }
    writer.write(member, block.native)


def _result(writer: _Writer, block: ToolResult) -> None:
    parts: list[dict[str, object]] = []
    for part in block.content:
        if isinstance(part, Media):
            found, why = media_block(part, writer.rules.result_media, writer.rules.media_urls)
            if found is None:
                writer.lose("tool_result", f"{part.kind} left out: {why}")
            else:
                parts.append(found)
        elif part.text and not part.text.isspace():
            parts.append({"type": "text", "text": part.text})
    if not parts and block.structured is not None:
        parts.append({"type": "text", "text": block.structured.text})
    member: dict[str, object] = {"type": "tool_result", "tool_use_id": _legal_id(block.call_id)}
    if len(parts) == 1 and "text" in parts[0]:
        member["content"] = parts[0]["text"]
    elif parts:
        member["content"] = parts
    if block.is_error:
        member.setdefault("content", _NO_ERROR_TEXT)  # the API refuses an error without content
        member["is_error"] = True
    writer.write(member)


def _media(writer: _Writer, block: Media) -> None:
    if writer.role == "assistant":
        writer.lose("media", f"the provider takes no {block.kind} in messages of the model")
        return
    found, why = media_block(block, writer.rules.media, writer.rules.media_urls)
    if found is None:
        writer.lose("media", why)
    else:
        writer.write(found)


def _opaque(writer: _Writer, block: Opaque) -> None:
    if block.provider != READER:
        writer.lose("opaque", f"only {block.provider} can read it back")
        return
    writer.blocks.append(bytes(block.raw))
    writer.markable = False
    try:
        fields = members(block.raw)
        kind = text(fields.get("type")) or ""
        if kind in {"server_tool_use", "mcp_tool_use"}:
            writer.calls.append((writer.index, text(fields.get("id")) or ""))
        elif kind.endswith("_tool_result"):
            writer.results.append(text(fields.get("tool_use_id")) or "")
    except msgspec.MsgspecError:
        pass  # somebody made it by hand; the provider will say what is wrong with it


# Each takes its own kind of block, which the key guarantees and a type cannot say.
_HANDLERS: Final[dict[type[Block], Callable[[_Writer, Any], None]]] = {
    Text: _text,
    Thinking: _thinking,
    ToolCall: _call,
    ToolResult: _result,
    Media: _media,
    Opaque: _opaque,
}


def _legal_id(id: str) -> str:
    """Ids of other providers may hold characters that this one refuses; calls and results change alike."""
    if _LEGAL_ID.fullmatch(id):
        return id
    return f"{_ILLEGAL.sub('_', id)[:40]}_{blake2s(id.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
