"""Messages of a conversation as the wire wants them, and what of a history this provider does not get.

A message's wire form is the inside of the content array, without brackets, so that turns of one role that follow each
other become one by joining. It is computed once and kept beside the message; what the messages so far became is kept
beside the conversation, so that a turn on a long history costs its new messages and a join.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from dragoman.providers.codec import Loss, Written, remembered, written_up_to
from dragoman.providers.profile import Profile
from dragoman.providers.requests import ToolNames, form_key, why_not_media
from dragoman.providers.wire import read_members, read_text

READER: Final = "anthropic"
"""The name under which thinking, opaque blocks and native fields of this dialect are kept."""
UNREADABLE: Final = "INVALID_JSON"
"""The member under which arguments travel that are no JSON object: the wire takes objects only."""
CACHE_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
"""Stands in place of the closing brace of what is marked for the cache."""

_USER: Final = b'{"role":"user","content":['
_MODEL: Final = b'{"role":"assistant","content":['
_OPENINGS: Final = {"user": _USER, "tool": _USER, "assistant": _MODEL}
"""How a turn begins, by the role of the message."""
_LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NO_ERROR_TEXT: Final = "The tool failed and gave no reason."

_encode = msgspec.json.encode


class Rules(NamedTuple):
    """What the wire form of a message depends on beside the message."""

    profile: Profile
    names: ToolNames
    key: str
    """Names all of it that matters; see `remembered`."""

    @classmethod
    def of(cls, profile: Profile, names: ToolNames) -> Rules:
        """The rules of a request to such a model with these tools."""
        return cls(profile, names, form_key(profile, names))


class History(Written, frozen=True, kw_only=True):
    """The array of messages, but for the end of the last one."""

    opening: bytes = b""
    """How the last one begins."""
    thinks: bool = False
    server_calls: bool = False
    """Whether there is thinking in it, and calls that the provider ran itself."""


# --- all messages -----------------------------------------------------------------------------------------------------


def write_history(conversation: Conversation, rules: Rules) -> History:
    """All messages. Turns of one role that follow each other become one, as the API would make them anyway.

    Results of tools so come first in the turn after their calls, where the API wants them, whoever speaks after them.
    """

    def append(before: History, new: tuple[Message, ...]) -> History:
        return _append(before, _write_turns(new, rules))

    history = written_up_to(conversation, len(conversation.messages), rules.key, append, History())
    return _append(History(), _answered_turns(conversation.messages, rules)) if history.server_calls else history


def write_marked_history(conversation: Conversation, rules: Rules, marks: int) -> History:
    """The same, with cache marks at the ends of so many of the user's last turns.

    Two marks let the cache be found again although a turn added many blocks.
    """
    turns = _answered_turns(conversation.messages, rules)
    return _append(History(), turns, _last_user_turns(turns, marks))


def _append(before: History, turns: Sequence[_Turn], marked: Collection[int] = ()) -> History:
    pieces: list[bytes] = []
    losses: list[Loss] = []
    opening = before.opening
    for at, turn in enumerate(turns, before.count):
        if turn.losses:
            losses += [Loss(at, *loss) for loss in turn.losses]
        if turn.content:
            changed = b"]}," + turn.opening if opening else b"[" + turn.opening
            pieces.append(b"," if turn.opening == opening else changed)
            pieces.append(turn.content[:-1] + CACHE_MARK if at in marked else turn.content)
            opening = turn.opening
    return History(
        count=before.count + len(turns),
        pieces=(*before.pieces, *pieces),
        losses=(*before.losses, *losses),
        opening=opening,
        thinks=before.thinks or any(turn.thinks for turn in turns),
        server_calls=before.server_calls or any(turn.server_calls for turn in turns),
    )


def _write_turns(messages: Iterable[Message], rules: Rules) -> list[_Turn]:
    return [remembered(message, rules.key, lambda message=message: _write_turn(message, rules)) for message in messages]


def _answered_turns(messages: Sequence[Message], rules: Rules) -> list[_Turn]:
    """All messages, without calls that the provider ran itself and never answered.

    It refuses such a call, except while its result may still come: nothing follows it but results of tools.
    """
    turns = _write_turns(messages, rules)
    answered = frozenset[str]().union(*[turn.server_results for turn in turns])
    for at, turn in enumerate(turns):
        lost = [block for block, id in turn.server_calls if id not in answered]
        if lost and (messages[at].interrupted or any(later.role != "tool" for later in messages[at + 1 :])):
            turns[at] = _write_turn(messages[at], rules, left_out=lost)
    return turns


def _last_user_turns(turns: Sequence[_Turn], count: int) -> list[int]:
    found: list[int] = []
    inside = False
    for at in range(len(turns) - 1, -1, -1):
        turn = turns[at]
        if turn.opening == _MODEL:
            inside = inside and not turn.content
        elif turn.content and not inside:
            inside = True
            if turn.markable:
                found.append(at)
            if len(found) == count:
                break
    return found


# --- one message ------------------------------------------------------------------------------------------------------


class _Turn(Struct, eq=False):
    """A message on the wire: filled while its blocks are written, and never changed after that."""

    rules: Rules
    opening: bytes
    """Whose turn it is: what stands before the content."""
    content: bytes = b""
    """The blocks, joined by commas; empty if nothing is left of the message."""
    blocks: list[bytes] = []
    losses: list[tuple[int, str, str]] = []
    """Index and kind of a block, and why it is not sent or sent otherwise."""
    index: int = 0
    """Of the block that is being written."""
    markable: bool = False
    """Whether a cache mark may be put on the last block."""
    thinks: bool = False
    """Whether it holds thinking."""
    server_calls: list[tuple[int, str]] = []
    """Index and id of calls that the provider ran itself."""
    server_results: list[str] = []
    """Ids of such calls whose results are here."""

    def write(self, block: Mapping[str, object], native: Native | None = None, *, markable: bool = True) -> None:
        if native is not None and native.provider == READER:
            block = {**block, **native.fields, **block}
        self.blocks.append(_encode(block))
        self.markable = markable and "cache_control" not in block

    def lose(self, what: str, why: str) -> None:
        self.losses.append((self.index, what, why))


def _write_turn(message: Message, rules: Rules, left_out: Collection[int] = ()) -> _Turn:
    """`left_out`: indices of server calls that never got a result."""
    turn = _Turn(rules, _OPENINGS[message.role])
    for turn.index, block in enumerate(message.blocks):
        if turn.index in left_out:
            turn.lose("opaque", "the provider ran this call itself and its result never arrived")
        else:
            _WRITERS[type(block)](turn, block)
    if not turn.blocks and not turn.losses:
        turn.index = 0
        what = str(type(message.blocks[0]).__struct_config__.tag) if message.blocks else "message"
        turn.lose(what, "the message is empty, and the provider takes no empty messages")
    turn.content = b",".join(turn.blocks)
    return turn


def _write_text(turn: _Turn, block: Text) -> None:
    # The API refuses texts without anything but white space, even those that a model wrote.
    if block.text and not block.text.isspace():
        turn.write({"type": "text", "text": block.text}, block.native)


def _write_thinking(turn: _Turn, block: Thinking) -> None:
    if block.provider != READER:
        turn.lose("thinking", f"only {block.provider} can read it back")
    elif not turn.rules.profile.reasoning_replayed:
        turn.lose("thinking", "this model does not get its thinking back")
    elif block.signature:
        # As it came, also with an empty text: the signature holds the thought itself.
        member = {"type": "thinking", "thinking": block.text, "signature": block.signature}
        turn.write(member, block.native, markable=False)
        turn.thinks = True
    elif block.encrypted is not None:
        turn.write({"type": "redacted_thinking", "data": block.encrypted}, block.native, markable=False)
        turn.thinks = True
    else:
        turn.lose("thinking", "its signature never arrived, and the provider takes none without")


def _write_call(turn: _Turn, block: ToolCall) -> None:
    arguments = object_of_arguments(block.arguments)
    if arguments is None:
        arguments = _encode({UNREADABLE: block.arguments})
        turn.lose("tool_call", f"its arguments are not a JSON object; sent as text under {UNREADABLE}")
    name = turn.rules.names.wire(block.name)
    member = {"type": "tool_use", "id": _legal_id(block.id), "name": name, "input": Raw(arguments)}
    turn.write(member, block.native)


def _write_result(turn: _Turn, block: ToolResult) -> None:
    profile = turn.rules.profile
    parts: list[dict[str, object]] = []
    for part in block.content:
        if isinstance(part, Media):
            found, why = encode_media(part, profile.tool_result_media, profile.media_urls)
            if found is None:
                turn.lose("tool_result", f"{part.kind} left out: {why}")
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
    turn.write(member)


def _write_media(turn: _Turn, block: Media) -> None:
    if turn.opening == _MODEL:
        turn.lose("media", f"the provider takes no {block.kind} in messages of the model")
        return
    found, why = encode_media(block, turn.rules.profile.media, turn.rules.profile.media_urls)
    if found is None:
        turn.lose("media", why)
    else:
        turn.write(found)


def _write_opaque(turn: _Turn, block: Opaque) -> None:
    if block.provider != READER:
        turn.lose("opaque", f"only {block.provider} can read it back")
        return
    turn.blocks.append(bytes(block.raw))
    turn.markable = False
    try:
        fields = read_members(block.raw)
        kind = read_text(fields.get("type")) or ""
        if kind in {"server_tool_use", "mcp_tool_use"}:
            turn.server_calls.append((turn.index, read_text(fields.get("id")) or ""))
        elif kind.endswith("_tool_result"):
            turn.server_results.append(read_text(fields.get("tool_use_id")) or "")
    except msgspec.MsgspecError:
        pass  # somebody made it by hand; the provider will say what is wrong with it


# Each takes its own kind of block, which the key guarantees and a type cannot say.
_WRITERS: Final[dict[type[Block], Callable[[_Turn, Any], None]]] = {
    Text: _write_text,
    Thinking: _write_thinking,
    ToolCall: _write_call,
    ToolResult: _write_result,
    Media: _write_media,
    Opaque: _write_opaque,
}


def object_of_arguments(arguments: str) -> bytes | None:
    """The text of a call's arguments as the JSON object that the wire wants; None if it is none."""
    if not arguments or arguments.isspace():
        return b"{}"
    try:
        read_members(arguments)
        return arguments.encode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _legal_id(id: str) -> str:
    """Ids of other providers may hold characters that this one refuses; calls and results change alike."""
    if _LEGAL_ID.fullmatch(id):
        return id
    return f"{_ILLEGAL.sub('_', id)[:40]}_{blake2s(id.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


# --- images and documents ---------------------------------------------------------------------------------------------

_IMAGES: Final = frozenset(["image/jpeg", "image/png", "image/gif", "image/webp"])
_PDF: Final = "application/pdf"
_ALSO_TEXT: Final = frozenset(["application/json", "application/xml", "application/yaml", "application/javascript"])


def encode_media(
    media: Media, kinds: frozenset[MediaKind], url_kinds: frozenset[MediaKind]
) -> tuple[dict[str, object] | None, str]:
    """The block for an image or a document, or None and why there is none."""
    if (why := why_not_media(media, kinds, url_kinds)) is not None:
        return None, why
    source = _image_source(media) if media.kind == "image" else _document_source(media)
    if isinstance(source, str):
        return None, source
    block: dict[str, object] = {"type": media.kind, "source": source}
    if media.kind == "document" and media.name:
        block["title"] = media.name
    if media.native is not None and media.native.provider == READER:
        block |= {name: raw for name, raw in media.native.fields.items() if name not in {"type", "source"}}
    return block, ""


def _image_source(media: Media) -> dict[str, object] | str:
    """The source, or why there is none."""
    if media.url is None and media.mime_type not in _IMAGES:
        return f"{media.mime_type} is not among the image types it takes: JPEG, PNG, GIF and WebP"
    return _url_or_base64(media)


def _document_source(media: Media) -> dict[str, object] | str:
    if media.mime_type == _PDF:
        return _url_or_base64(media)
    if not (media.mime_type.startswith("text/") or media.mime_type in _ALSO_TEXT):
        return f"{media.mime_type} is not among the document types it takes: PDF and text"
    if media.data is None:
        return "of documents by URL it takes PDF only"
    try:
        # The API names one type for all text, whatever its markup.
        return {"type": "text", "media_type": "text/plain", "data": media.data.decode("utf-8-sig")}
    except UnicodeDecodeError:
        return "the text of the document is not UTF-8"


def _url_or_base64(media: Media) -> dict[str, object]:
    if media.url is not None:
        return {"type": "url", "url": media.url}
    return {"type": "base64", "media_type": media.mime_type, "data": b64encode(media.data or b"").decode()}
