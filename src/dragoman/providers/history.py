"""What all dialects do alike with the messages of a conversation.

Owns: what of a history a model does not get; ids, arguments, results and media as a wire takes them. The form of each
message is kept beside it, and that of the messages so far beside the conversation (see codec.py), so that a turn on a
long history costs its new messages and a join.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2s
from re import Pattern
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Block,
    Json,
    Media,
    MediaKind,
    Native,
    Opaque,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.errors import ConfigurationError

from .profile import Profile
from .requests import ToolNames
from .wire import MALFORMED, read_members

UNREADABLE: Final = "INVALID_JSON"
"""The member under which arguments travel that are no JSON object."""
_MISPLACED: Final = "it stands in a message of the wrong role"


def form_key(profile: Profile, names: ToolNames, *more: object) -> str:
    """Names everything besides a message that its form on the wire depends on."""
    kinds = (profile.quirks, profile.media, profile.media_urls, profile.tool_result_media)
    limits = profile.tool_limits
    depends_on = (
        profile.provider,
        *[",".join(sorted(each)) for each in kinds],
        profile.reasoning,
        profile.reasoning_replayed,
        limits.name_pattern,
        limits.max_name_length,
        sorted(names.to_own.items()),
        *more,
    )
    return f"{profile.dialect} {depends_on}"


class MessageWriter(Struct, eq=False):
    """One message while its blocks are written. A dialect has a method for each kind of block."""

    profile: Profile
    names: ToolNames
    reader: str
    """The name under which this provider's own blocks and fields are kept."""
    role: Role
    losses: list[tuple[int, str, str]] = []
    """Index and kind of a block, and why it is not sent or sent otherwise."""
    index: int = 0
    thinker: str = ""
    """… and its thinking; empty: under the same."""

    # A dialect's own.
    write_text: ClassVar[Callable[[Text], None]]
    write_media: ClassVar[Callable[[Media], None]]
    write_call: ClassVar[Callable[[ToolCall], None]]
    write_result: ClassVar[Callable[[ToolResult], None]]
    write_thinking: ClassVar[Callable[[Thinking], None]]
    write_opaque: ClassVar[Callable[[Opaque], None]]
    """This and thinking: only what this provider wrote."""

    def write_blocks(self, blocks: Sequence[Block]) -> None:
        for self.index, block in enumerate(blocks):
            match block:
                case ToolCall() if self.role == "assistant":
                    self.write_call(block)
                case ToolResult() if self.role == "tool":
                    self.write_result(block)
                case Text() if self.role != "tool":
                    self.write_text(block)
                case Media() if self.role != "tool":
                    self.write_media(block)
                case Thinking() if block.provider == (self.thinker or self.reader):
                    self.write_thinking(block)
                case Opaque() if block.provider == self.reader and self.role != "tool":
                    self.write_opaque(block)
                case Thinking():
                    self.lose("thinking", f"only {block.provider} can read it back")
                case Opaque() if block.provider != self.reader:
                    self.lose("opaque", f"only {block.provider} can read it back")
                case _:
                    self.lose(_kind_of(block), _MISPLACED)

    def lose(self, what: str, why: str) -> None:
        """Note that the block is not sent, or sent in another form."""
        self.losses.append((self.index, what, why))

    def native(self, native: Native | None) -> Mapping[str, Raw]:
        """The fields of a block that are this provider's own."""
        return native.fields if native is not None and native.provider == self.reader else {}

    def arguments(self, call: ToolCall) -> bytes:
        """The arguments of a call as the JSON object that the wire wants; what is none travels as a text in one."""
        if not call.arguments or call.arguments.isspace():
            return b"{}"
        try:
            read_members(call.arguments)
            return call.arguments.encode()
        except MALFORMED:
            self.lose("tool_call", f"its arguments are not a JSON object; sent as text under {UNREADABLE}")
            return msgspec.json.encode({UNREADABLE: call.arguments})


def _kind_of(block: Block) -> str:
    return str(type(block).__struct_config__.tag)


# --- ids, results and media -------------------------------------------------------------------------------------------


def legal_id(id: str, legal: Pattern[str], length: int = 40) -> str:
    """An id as a provider takes it, changed always in the same way, so that a call and its result still agree."""
    if legal.fullmatch(id):
        return id
    return blake2s(id.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def why_not_media(
    media: Media, kinds: frozenset[MediaKind], url_kinds: frozenset[MediaKind], provider: str = ""
) -> str | None:
    """Why media cannot be sent as one of these kinds; None if they can. Raises for a file that nobody has read."""
    if media.path is not None:
        message = f"The file {media.name or media.path!r} was not read before the conversation was sent."
        hint = "If it may be read, call dragoman.engines.read_files(conversation) first."
        raise ConfigurationError(message, hint=hint)
    if media.kind not in kinds:
        return f"this model takes no {media.kind} here"
    if media.stored is not None:
        keeper, _ = media.stored
        return None if keeper == keeper_of(provider) else f"it is kept by {keeper}, where only its models can read it"
    if media.url is not None and media.kind not in url_kinds and not media.url.startswith("data:"):
        return f"this model takes {media.kind} as bytes only, not by URL"
    return None


def keeper_of(provider: str) -> str:
    """The name under which a provider's files are known: two APIs of one service share them."""
    return "openai" if provider == "openai-responses" else provider


def url_of(media: Media) -> str:
    return media.url or f"data:{media.mime_type};base64,{b64encode(media.data or b'').decode()}"


def content_of(result: ToolResult, *, error_said: bool = False) -> tuple[Text | Json | Media, ...]:
    """What a tool gave. `error_said`: for an API without a flag for errors, where the text must say that it is one."""
    content = result.content or ((result.structured,) if result.structured is not None else ())
    if not result.is_error or not error_said:
        return content
    first = content[0] if content else Text("the tool failed and gave no reason")
    if isinstance(first, Media):
        return (Text("Error"), *content)
    said = first.text if first.text.lower().startswith("error") else f"Error: {first.text}"
    return (Text(said), *content[1:])
