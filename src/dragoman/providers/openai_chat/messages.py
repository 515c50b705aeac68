"""One message as the wire has it, and what of it this server does not get.

Owns: the wire form of each kind of message and block.
Must not know: what stands before and behind a message, options, tools.

One of our messages may be several of the wire's: each tool result is one. What a result holds that the wire cannot
take inside of it (an image, for most servers) is given back to stand behind all results, in a message of the user.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from dragoman.conversation import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.errors import ToolValidationError
from dragoman.providers.names import ToolNames
from dragoman.providers.profile import Profile

from .call_ids import wire_id
from .parts import image_part, media_part, native_fields, text_part, why_not
from .replayed import thought_on_wire
from .think_tags import CLOSE, OPEN
from .wire import joined, members, reader_of, string

__all__ = ["MessageWriter", "Wire", "user_message"]

_encode: Final = msgspec.json.encode
_MARK: Final = {"cache_control": Raw(b'{"type":"ephemeral"}')}


class Wire(NamedTuple):
    """A message on the wire."""

    messages: bytes
    """JSON objects with commas between them; empty if nothing is left of the message."""
    behind: bytes = b""
    """Parts of content for a message of the user behind all results."""
    losses: tuple[tuple[int, str, str], ...] = ()
    """Index of the block, its kind, and why it is not there."""


class _Losses(list[tuple[int, str, str]]):
    def add(self, at: int, kind: str, why: str) -> None:
        self.append((at, kind, why))


def user_message(parts: bytes) -> bytes:
    """A message of the user with these parts of content."""
    return b'{"role":"user","content":[' + parts + b"]}"


class MessageWriter:
    """Writes messages for one server."""

    __slots__ = ("_names", "_profile", "_quirks", "_reader")

    def __init__(self, profile: Profile, names: ToolNames) -> None:
        self._profile = profile
        self._quirks: frozenset[str] = profile.quirks
        self._names = names
        self._reader: str = reader_of(profile.provider)

    def system(self, text: str, *, mark: bool) -> bytes:
        content = b"[" + text_part(text, _MARK) + b"]" if mark else _encode(text)
        return b'{"role":"%s","content":%s}' % (self._profile.system_role.encode(), content)

    def write(self, message: Message, *, mark: bool = False) -> Wire:
        losses = _Losses()
        if message.role == "assistant":
            return Wire(self._assistant(message, losses), b"", tuple(losses))
        if message.role == "tool":
            written, behind = self._results(message, losses, mark=mark)
            return Wire(written, behind, tuple(losses))
        return Wire(self._user(message, losses, mark=mark), b"", tuple(losses))

    # --- the user's ---

    def _user(self, message: Message, losses: _Losses, *, mark: bool) -> bytes:
        text = _only_text(message)
        if text is not None and not mark:
            return b'{"role":"user","content":%s}' % _encode(text)
        texts: list[str] = []
        parts: list[bytes] = []
        plain = not mark
        for at, block in enumerate(message.blocks):
            if isinstance(block, Text):
                fields = native_fields(block.native, self._reader)
                plain = plain and not fields
                texts.append(block.text)
                parts.append(text_part(block.text, fields))
            elif isinstance(block, Media):
                self._put_media(at, block, parts, losses)
            elif isinstance(block, Opaque) and block.provider == self._reader:
                parts.append(bytes(block.raw))
            else:
                self._lose(at, block, losses)
        if not parts:
            return b""
        if plain and len(texts) == len(parts):  # a string is what every server takes
            return b'{"role":"user","content":%s}' % _encode("\n\n".join(texts))
        if mark:
            parts[-1] = _marked(parts[-1])
        return user_message(b",".join(parts))

    def _put_media(self, at: int, media: Media, parts: list[bytes], losses: _Losses) -> None:
        why = why_not(media, self._profile)
        if why is None:
            parts.append(media_part(media, self._profile, self._reader))
        else:
            losses.add(at, "media", why)

    # --- results ---

    def _results(self, message: Message, losses: _Losses, *, mark: bool) -> tuple[bytes, bytes]:
        written: list[bytes] = []
        behind: list[bytes] = []
        last = len(message.blocks) - 1
        for at, block in enumerate(message.blocks):
            if isinstance(block, ToolResult):
                written.append(self._result(at, block, behind, losses, mark=mark and at == last))
            else:
                self._lose(at, block, losses)
        return b",".join(written), b",".join(behind)

    def _result(self, at: int, result: ToolResult, behind: list[bytes], losses: _Losses, *, mark: bool) -> bytes:
        texts: list[str] = []
        parts: list[bytes] = []
        media_inside = False
        for part in result.content:
            if not isinstance(part, Media):
                texts.append(part.text)
                parts.append(text_part(part.text))
                continue
            why = why_not(part, self._profile)
            if why is not None:
                losses.add(at, "media", why)
            elif part.kind in self._profile.tool_result_media:
                parts.append(media_part(part, self._profile, self._reader))
                media_inside = True
            else:
                note = f"[{part.kind} of the result of {result.name}, call {result.call_id}]"
                texts.append(f"{note} follows in the next message of the user.")
                parts.append(text_part(texts[-1]))
                behind += [text_part(f"{note}:"), media_part(part, self._profile, self._reader)]
        if not parts and result.structured is not None:
            texts.append(result.structured.text)
        content = _encode("\n".join(texts))
        if media_inside or mark:
            parts = parts or [text_part("\n".join(texts))]
            parts[-1] = _marked(parts[-1]) if mark else parts[-1]
            content = b"[" + b",".join(parts) + b"]"
        call_id = _encode(wire_id(result.call_id, self._quirks))
        return b'{"role":"tool","tool_call_id":%s,"content":%s}' % (call_id, content)

    # --- the model's ---

    def _assistant(self, message: Message, losses: _Losses) -> bytes:
        text = _only_text(message)
        if text is not None and (message.native is None or "message" not in message.native.fields):
            return b'{"role":"assistant","content":%s}' % _encode(text)
        out = _Assistant()
        for at, block in enumerate(message.blocks):
            if isinstance(block, Text):
                out.put_text(block, native_fields(block.native, self._reader))
            elif isinstance(block, ToolCall):
                out.calls.append(self._call(at, block, losses))
            elif isinstance(block, Thinking):
                if block.provider != self._reader:
                    self._lose(at, block, losses)
                elif self._profile.reasoning_replayed:
                    field, written = thought_on_wire(block)
                    out.put_thought(field, written, block.text)
            elif isinstance(block, Opaque) and block.provider == self._reader:
                out.put_opaque(block.raw)
            elif isinstance(block, Media) and (fields := native_fields(block.native, self._reader)):
                out.put_media(block, fields)
            else:
                self._lose(at, block, losses)
        if not out:
            return b""
        own = message.provider == self._profile.provider
        written = out.fields("" if own else "\n\n", content_always="content_always" in self._quirks)
        if out.calls and "reasoning_with_calls" in self._quirks:
            # DeepSeek refuses a turn that called tools and does not show its reasoning, even one of another model.
            written.setdefault("reasoning_content", b'""')
        if "plain_history" not in self._quirks:
            kept = native_fields(message.native, self._reader).get("message")
            written = {**(members(kept) if kept is not None else {}), **written}
        return b'{"role":"assistant",' + joined(written)[1:]

    def _call(self, at: int, call: ToolCall, losses: _Losses) -> bytes:
        name, call_id = _encode(self._names.wire(call.name)), _encode(wire_id(call.id, self._quirks))
        native = dict(native_fields(call.native, self._reader)) if call.native is not None else {}
        if native and string(native.pop("type", None)) == "custom":
            written = b'{"id":%s,"type":"custom","custom":{"name":%s,"input":%s}}'
            written %= (call_id, name, _encode(call.arguments))
        else:
            written = b'{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}'
            written %= (call_id, name, _encode(self._arguments(at, call, losses)))
        return b"%s,%s" % (written[:-1], joined(native)[1:]) if native else written

    def _arguments(self, at: int, call: ToolCall, losses: _Losses) -> str:
        """The arguments as text of a JSON object: many servers parse it and fail on anything else, OpenAI does not."""
        if not call.arguments or call.arguments.isspace():
            return "{}"
        if "any_arguments" in self._quirks:
            return call.arguments
        try:
            call.parsed  # noqa: B018 -- raises if it cannot be parsed
        except ToolValidationError:
            losses.add(at, "tool_call", "its arguments are not a JSON object; they are sent as the text inside one")
            return _encode({"malformed_arguments": call.arguments}).decode()
        return call.arguments

    def _lose(self, at: int, block: object, losses: _Losses) -> None:
        if isinstance(block, Thinking):
            losses.add(at, "thinking", f"only {block.provider} can read this reasoning")
        elif isinstance(block, Opaque):
            losses.add(at, "opaque", f"only {block.provider} understands this block")
        elif isinstance(block, Media):
            losses.add(at, "media", "this API has no place for media in such a message")
        else:
            kind = "tool_result" if isinstance(block, ToolResult) else "tool_call"
            losses.add(at, kind, "it stands in a message of the wrong role")


def _only_text(message: Message) -> str | None:
    """The text of a message that is nothing else, as nearly all are."""
    if len(message.blocks) == 1:
        block = message.blocks[0]
        if type(block) is Text and block.native is None:
            return block.text
    return None


class _Assistant:
    """The members of one message of the model, while they are gathered."""

    __slots__ = ("_audio", "_details", "_images", "_parts", "_plain", "_reasoning", "_refusal", "_texts", "calls")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._parts: list[bytes] = []
        self._plain: bool = True
        self._refusal: list[str] = []
        self._reasoning: dict[str, str] = {}
        self._details: list[bytes] = []
        self._images: list[bytes] = []
        self._audio: bytes = b""
        self.calls: list[bytes] = []

    def __bool__(self) -> bool:
        found = (self._parts, self._refusal, self._reasoning, self._details, self._images, self._audio, self.calls)
        return any(found)

    def put_text(self, block: Text, fields: dict[str, Raw]) -> None:
        if string(fields.get("type")) == "refusal":
            self._refusal.append(block.text)
            return
        self._plain = self._plain and not fields
        self._texts.append(block.text)
        self._parts.append(text_part(block.text, fields))

    def put_thought(self, field: str, written: bytes, text: str) -> None:
        if field == "content":
            self._plain = False
            self._parts.append(written)
        elif field == "reasoning_details":
            self._details.append(written)
        elif field == "think_tags":
            self._texts.append(f"{OPEN}{text}{CLOSE}\n\n")
            self._parts.append(text_part(self._texts[-1]))
        else:
            self._reasoning[field] = self._reasoning.get(field, "") + text

    def put_opaque(self, raw: Raw) -> None:
        self._plain = False
        self._parts.append(bytes(raw))

    def put_media(self, media: Media, fields: dict[str, Raw]) -> None:
        """Media that this server's model made: sound goes back by its id, images as they came."""
        if "id" in fields:
            self._audio = joined({"id": fields["id"]})
        else:
            self._images.append(image_part(media))

    def fields(self, separator: str, *, content_always: bool) -> dict[str, bytes | Raw]:
        found: dict[str, bytes | Raw] = {}
        if not self._parts:
            if content_always or not (self.calls or self._refusal or self._audio):
                found["content"] = b'""'
        elif self._plain:
            found["content"] = _encode(separator.join(self._texts))
        else:
            found["content"] = b"[" + b",".join(self._parts) + b"]"
        if self._refusal:
            found["refusal"] = _encode("".join(self._refusal))
        found.update({field: _encode(text) for field, text in self._reasoning.items()})
        arrays = (("reasoning_details", self._details), ("images", self._images), ("tool_calls", self.calls))
        found.update({name: b"[" + b",".join(items) + b"]" for name, items in arrays if items})
        if self._audio:
            found["audio"] = self._audio
        return found


def _marked(part: bytes) -> bytes:
    return part[:-1] + b',"cache_control":{"type":"ephemeral"}}'
