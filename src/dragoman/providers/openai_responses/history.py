"""The conversation as input items.

Owns: which block becomes which item, in which order, and what is lost on the way. What this API said itself goes back
as it came: with its ids, its phases, its encrypted reasoning.
Must not know: parameters and tools (encode.py).

Rules of the API that shape this file:
- without storage (`store: false`) reasoning can only be replayed with its encrypted content, or its plain content where
  an open model gave that; an item that refers to nothing stored is an error;
- reasoning must be followed by the item that it led to, and, where the service remembers items by their ids, an item
  must not come without its reasoning;
- a model that does not reason refuses reasoning items.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

from msgspec import Raw

from dragoman.conversation import (
    Block,
    Conversation,
    Media,
    Message,
    Native,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.conversation.values import memory_of
from dragoman.providers.codec import Loss, Written, written_up_to
from dragoman.providers.names import ToolNames
from dragoman.providers.profile import Profile

from .content import Part, Refused, media_part, output_of, text_part
from .pictures import item_of
from .wire import READER, encode, items_of, members_of, text_of

__all__ = ["HistoryWriter", "Style"]

_MAX_CALL_ID: Final = 64
_NO_FOLLOWER: Final = "nothing follows it, and the API takes reasoning only before what it led to"
_ALONE: Final = "the reasoning before it was left out, and the service expects both or none"

_Found = tuple[int, str, str]
"""A loss within a message: index of the block, kind of block, why."""


class Style(NamedTuple):
    """Everything besides a message that its wire form depends on."""

    profile: Profile
    stateless: bool
    """Whether the service keeps nothing of this request."""
    names: Mapping[str, str]
    """Own names of tools to names on the wire."""

    @property
    def key(self) -> str:
        """A name for all of that, under which a message's wire form is remembered."""
        profile = self.profile
        sets = (profile.media, profile.media_urls, profile.tool_result_media, profile.quirks)
        renamed = sorted(item for item in self.names.items() if item[0] != item[1])
        return repr(
            (
                "openai_responses",
                profile.provider,
                profile.reasoning != "none" and profile.reasoning_replayed,
                profile.tool_limits.name_pattern,
                self.stateless,
                [sorted(each) for each in sets],
                renamed,
            )
        )


class Wire(NamedTuple):
    """A message on the wire."""

    items: bytes
    """The items, with commas between them; empty where nothing is left of the message."""
    plain: bool
    """Whether nothing of what follows is there, as with most messages."""
    losses: tuple[_Found, ...] = ()
    callers: Mapping[str, Raw] = {}
    """By call id: what ran the call, where it was a program of the model's; its result must say so again."""


class _Written(Written, frozen=True, kw_only=True):
    callers: Mapping[str, Raw] = {}
    """Of the last message."""


_NOTHING: Final = _Written()


class HistoryWriter:
    """Writes histories in one style."""

    __slots__ = ("_key", "_style")

    def __init__(self, style: Style) -> None:
        self._style: Style = style
        self._key: str = style.key

    def write(self, conversation: Conversation, first: int = 0) -> tuple[tuple[bytes, ...], tuple[Loss, ...]]:
        """The input items of the messages from `first` on, to be joined by commas, and what was lost of them."""
        messages = conversation.messages
        if first:  # the service has the others
            written = self._further(_Written(count=first), messages[first:])
        else:
            written = written_up_to(conversation, len(messages), self._key, self._further, _NOTHING)
        return written.pieces, written.losses

    def _further(self, written: _Written, messages: tuple[Message, ...]) -> _Written:
        """What was written, and these messages behind it."""
        items: list[bytes] = []
        losses: list[Loss] = []
        callers = written.callers
        for at, message in enumerate(messages, written.count):
            if callers and message.role == "tool":
                wire = _wire(message, self._style, callers)
            else:
                wire = self._remembered(message)
            callers = wire.callers
            if wire.items:
                items.append(wire.items)
            if wire.losses:
                losses += [Loss(at, block, what, why) for block, what, why in wire.losses]
        return _Written(
            count=written.count + len(messages),
            pieces=(*written.pieces, *items),
            losses=(*written.losses, *losses),
            callers=callers,
        )

    def _remembered(self, message: Message) -> Wire:
        memory = memory_of(message)  # what `remembered` does, without two calls for each new message
        wire = memory.get(self._key)
        if wire is None:
            wire = memory[self._key] = _plain_wire(message) or _wire(message, self._style, {})
        return wire


def _plain_wire(message: Message) -> Wire | None:
    """The wire form of a message that is one text of the user's, as most of theirs are; None for any other."""
    if message.role != "user" or len(message.blocks) != 1:
        return None
    block = message.blocks[0]
    if type(block) is not Text or block.native is not None:
        return None
    return Wire(b'{"role":"user","content":%b}' % encode(block.text), True)


def _wire(message: Message, style: Style, callers: Mapping[str, Raw]) -> Wire:
    writer = _Writer(message, style, callers)
    for index, block in enumerate(message.blocks):
        writer.write(index, block)
    if message.role == "user" and not writer.items:  # said nothing, or nothing that this model can take
        writer.say_nothing()
    return writer.wire()


class _Writer:
    """One message while its items are written."""

    def __init__(self, message: Message, style: Style, callers: Mapping[str, Raw]) -> None:
        self.style = style
        self.callers = callers
        self.assistant = message.role == "assistant"
        # Other services speak this dialect too, but cannot read what this one encrypted or stored.
        self.own = message.provider is None or message.provider == style.profile.provider
        self.items: list[tuple[int, Part | bytes]] = []
        self.losses: list[_Found] = []
        self.found_callers: dict[str, Raw] = {}
        self.unreasoned = False
        """Whether the reasoning of what follows was left out: then what follows must not be named by its id."""
        self.content: list[Part] | None = None
        """The content of the message item that is being written."""
        self.shell: bytes = b""

    def write(self, index: int, block: Block) -> None:
        self._WRITE[type(block)](self, index, block)

    def say_nothing(self) -> None:
        self._say(0, text_part(""))

    def wire(self) -> Wire:
        items = self.items
        while self.assistant and items and _kind(items[-1][1]) == "reasoning":
            self._lose(items.pop()[0], "thinking", _NO_FOLLOWER)
        written = [item for _, item in items]
        if "calls_last" in self.style.profile.quirks:
            written.sort(key=lambda item: _kind(item) == "function_call")
        joined = b",".join([item if isinstance(item, bytes) else encode(_tidied(item)) for item in written])
        plain = not self.losses and not self.found_callers
        return Wire(joined, plain, tuple(sorted(self.losses)), self.found_callers)

    def _add(self, index: int, item: Part | bytes) -> None:
        self.content = None
        self.items.append((index, item))

    def _lose(self, index: int, what: str, why: str) -> None:
        self.losses.append((index, what, why))

    def _native(self, native: Native | None) -> Mapping[str, Raw]:
        """What this service itself said of a block."""
        return native.fields if native is not None and native.provider == READER and self.own else {}

    # --- texts -------------------------------------------------------------------------------------------------------

    def _text(self, index: int, block: Text) -> None:
        if not self.assistant:
            self._say(index, {**text_part(block.text), **self._native(block.native)})  # such as a mark for the cache
            return
        fields = self._native(block.native)
        shell = members_of(fields["item"]) if "item" in fields else {}
        if not shell or self.unreasoned or "id" not in shell:
            if block.text:
                phase = {"phase": shell["phase"]} if "phase" in shell else {}
                self._add(index, {"role": "assistant", "content": block.text, **phase})
            return
        kept = {name: raw for name, raw in fields.items() if name != "item"}
        if "type" in kept:
            part: Part = {**kept, "refusal": block.text}
        else:
            part = {"type": "output_text", "annotations": [], **kept, "text": block.text}
        self._say_again(index, bytes(fields["item"]), shell, [part])

    def _say(self, index: int, part: Part) -> None:
        """A part of a message of the user's."""
        if self.content is None:
            content: list[Part] = []
            self._add(index, {"role": "user", "content": content})
            self.content = content
        self.content.append(part)

    def _say_again(self, index: int, shell: bytes, members: Mapping[str, Raw], parts: list[Part]) -> None:
        """Parts of a message that the model said; those of one item come back as one item."""
        if self.content is None or shell != self.shell:
            content: list[Part] = []
            self._add(index, {**members, "content": content})
            self.content = content
            self.shell = shell
        self.content += parts

    # --- media -------------------------------------------------------------------------------------------------------

    def _media(self, index: int, block: Media) -> None:
        if self.assistant:
            fields = self._native(block.native)
            if "item" not in fields:
                self._lose(index, "media", "the API takes pictures of the model back only if it made them itself")
            elif self.unreasoned and not self.style.stateless:
                self._lose(index, "media", _ALONE)
            else:
                self._add(index, item_of(block, fields["item"]))
            return
        part = media_part(block, self.style.profile.media, self.style.profile.media_urls)
        if isinstance(part, Refused):
            self._lose(index, "media", part.why)
        else:
            self._say(index, part)

    # --- reasoning ---------------------------------------------------------------------------------------------------

    def _thinking(self, index: int, block: Thinking) -> None:
        item = self._reasoning(block)
        self.unreasoned = isinstance(item, str)
        if isinstance(item, str):
            self._lose(index, "thinking", item)
        else:
            self._add(index, item)

    def _reasoning(self, block: Thinking) -> Part | str:
        """The reasoning item, or why there is none."""
        profile = self.style.profile
        if block.provider != READER or not self.own:
            return "only the service that wrote it can read it"
        if profile.reasoning == "none" or not profile.reasoning_replayed:
            return "this model takes no reasoning back"
        fields = self._native(block.native)
        if not block.encrypted and self.style.stateless and bytes(fields.get("content", b"")) in {b"", b"[]", b"null"}:
            return "it came without encrypted content, and the service keeps no copy"
        if not fields and not block.encrypted:
            return "it is not complete"
        summary = [{"type": "summary_text", "text": block.text}] if block.text else []
        item: Part = {"type": "reasoning", "summary": summary, **fields}
        if block.encrypted:
            item["encrypted_content"] = block.encrypted
        return item

    # --- calls and results -------------------------------------------------------------------------------------------

    def _call(self, index: int, block: ToolCall) -> None:
        fields = dict(self._native(block.native))
        if self.unreasoned:
            fields.pop("id", None)
        if "caller" in fields:
            self.found_callers[block.id] = fields["caller"]
        self._add(index, {
            "type": "function_call",
            "call_id": self._call_id(block.id),
            "name": self._name(block.name),
            "arguments": block.arguments or "{}",
            **fields,
        })  # fmt: skip

    def _result(self, index: int, block: ToolResult) -> None:
        output, left_out = output_of(block, self.style.profile)
        for why in left_out:
            self._lose(index, "tool_result", why)
        item: Part = {"type": "function_call_output", "call_id": self._call_id(block.call_id), "output": output}
        if block.call_id in self.callers:
            item["caller"] = self.callers[block.call_id]
        self._add(index, item)

    def _call_id(self, call_id: str) -> str:
        """Ids of other providers may be longer than this API takes; a shortened one is the same for call and result."""
        if len(call_id) <= _MAX_CALL_ID or "reply_scoped_call_ids" in self.style.profile.quirks:
            return call_id
        return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:40]}"

    def _name(self, name: str) -> str:
        limits = self.style.profile.tool_limits
        if name in self.style.names:
            return self.style.names[name]
        # A tool that is no longer offered, perhaps named by the rules of another provider.
        return name if re.fullmatch(limits.name_pattern, name) else ToolNames([name], limits).to_wire[name]

    # --- what only the provider understands --------------------------------------------------------------------------

    def _opaque(self, index: int, block: Opaque) -> None:
        if block.provider != READER or not self.own:
            self._lose(index, "opaque", "only the service that made it understands it")
            return
        if self.unreasoned and not self.style.stateless:
            self._lose(index, "opaque", _ALONE)
            return
        raw = bytes(block.raw)
        if not raw.startswith(b"{"):
            self._lose(index, "opaque", "it is not an item")
            return
        members = members_of(raw)
        parts = items_of(members.pop("content", None))
        if self.assistant and parts and text_of(members.get("type")) == "message":
            self._say_again(index, encode(members), members, [dict(members_of(part)) for part in parts])
        else:
            self._add(index, raw)

    # Each writer takes its own kind of block, which the key guarantees and a type cannot say.
    _WRITE: Final[dict[type[Block], Callable[..., None]]] = {
        Text: _text,
        Media: _media,
        Thinking: _thinking,
        ToolCall: _call,
        ToolResult: _result,
        Opaque: _opaque,
    }


def _kind(item: Part | bytes) -> str:
    kind = text_of(members_of(item).get("type")) if isinstance(item, bytes) else item.get("type")
    return kind if isinstance(kind, str) else text_of(kind) or "" if isinstance(kind, Raw) else ""


def _tidied(item: Part) -> Part:
    """A message of one text and nothing else is written as that text."""
    content = item.get("content")
    if item.get("role") == "user" and isinstance(content, list):
        parts = cast("list[Part]", content)
        if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
            return {**item, "content": parts[0]["text"]}
    return item
