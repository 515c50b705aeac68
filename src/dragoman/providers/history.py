"""Write the messages of a conversation: what all dialects have in common.

A dialect has a MessageWriter, with a method for each kind of block, and a HistoryWriter, which joins messages. Those of
Anthropic and Bedrock are TurnsWriters: neighbouring messages of one role become one turn.

The form of each message is cached with it, and that of the messages so far with the conversation, so that a turn on a
long history costs its new messages and a join.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2s
from re import Pattern
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from dragoman.conversation import (
    Block,
    Conversation,
    Json,
    Media,
    MediaKind,
    Message,
    Native,
    Opaque,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    memory_of,
)
from dragoman.errors import ConfigurationError

from .codec import Loss
from .profile import Profile
from .requests import ToolNames
from .wire import MALFORMED, read_members

UNREADABLE: Final = "INVALID_JSON"
"""The member that carries arguments which are not a JSON object."""
_MISPLACED: Final = "it is in a message of the wrong role"
NOT_REPLAYED: Final = "this model does not get its thinking back"


FoundLoss: TypeAlias = tuple[int, str, str]
"""Index and kind of a block, and why it is not sent or changed."""


# --- all messages -----------------------------------------------------------------------------------------------------


class Form(Protocol):
    """A message on the wire."""

    @property
    def content(self) -> bytes:
        """Empty if nothing of the message is sent."""
        ...

    @property
    def losses(self) -> Sequence[FoundLoss]: ...


class PlainForm(NamedTuple):
    """A message on the wire that does not depend on others."""

    content: bytes
    losses: tuple[FoundLoss, ...] = ()


class Written(Struct, frozen=True, kw_only=True):
    """The first messages of a conversation on the wire. A dialect may derive from it to keep more."""

    count: int = 0
    pieces: tuple[bytes, ...] = ()
    """Their JSON, to be joined."""
    losses: tuple[Loss, ...] = ()

    def losses_with(self, forms: Sequence[Form]) -> tuple[Loss, ...]:
        """The losses, with those of the messages that follow."""
        losses = self.losses
        for at, form in enumerate(forms, self.count):
            if form.losses:
                losses = (*losses, *[Loss(at, *loss) for loss in form.losses])
        return losses


_W = TypeVar("_W", bound=Written)
_F = TypeVar("_F", bound=Form)


class HistoryWriter(Generic[_W, _F]):
    """Writes the messages of conversations for one model and one set of tools."""

    nothing: _W
    """No messages."""

    def __init__(self, profile: Profile, names: ToolNames, *more: object) -> None:
        """`more`: what else the form of a message depends on, as part of the cache key."""
        self.profile: Profile = profile
        self.names: ToolNames = names
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
        self.key: str = f"{profile.dialect} {depends_on}"
        """The cache key: everything besides a message that its form depends on."""

    def write_message(self, message: Message) -> _F:
        """Write one message; the result is cached."""
        raise NotImplementedError

    def append(self, before: _W, messages: Sequence[Message]) -> _W:
        """Add messages to what is written."""
        raise NotImplementedError

    def write(self, conversation: Conversation, count: int | None = None) -> _W:
        """Write the first `count` messages, or all, continuing from what an earlier turn cached."""
        memory = memory_of(conversation)
        written: _W = memory.get(self.key, self.nothing)
        if count is None:
            count = len(conversation.messages)
        if written.count != count:
            if written.count > count:
                written = self.nothing
            written = memory[self.key] = self.append(written, conversation.messages[written.count : count])
        return written

    def form_of(self, message: Message) -> _F:
        """A message on the wire, from the cache if possible."""
        memory = memory_of(message)
        form: _F | None = memory.get(self.key)
        if form is None:
            form = memory[self.key] = self.write_message(message)
        return form

    def forms(self, messages: Sequence[Message]) -> list[_F]:
        return [self.form_of(message) for message in messages]


# --- one message ------------------------------------------------------------------------------------------------------


class MessageWriter(Struct, eq=False):
    """Writes the blocks of one message. A dialect has a method for each kind of block."""

    profile: Profile
    names: ToolNames
    reader: str
    """The reader key of this provider: only blocks and fields with it are sent back."""
    role: Role
    losses: list[FoundLoss] = []
    index: int = 0
    thinker: str = ""
    """The reader key of its thinking; empty: the same."""

    # Implemented by each dialect.
    write_text: ClassVar[Callable[[Text], None]]
    write_media: ClassVar[Callable[[Media], None]]
    write_call: ClassVar[Callable[[ToolCall], None]]
    write_result: ClassVar[Callable[[ToolResult], None]]
    write_thinking: ClassVar[Callable[[Thinking], None]]
    write_opaque: ClassVar[Callable[[Opaque], None]]
    """This and `write_thinking` get only what this provider wrote."""

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
        """The native fields of a block, if they are this provider's."""
        return native.fields if native is not None and native.provider == self.reader else {}

    def arguments(self, call: ToolCall) -> bytes:
        """The arguments of a call as a JSON object; what is not one is sent as a text inside of one."""
        if not call.has_arguments:
            return b"{}"
        try:
            read_members(call.arguments)
            return call.arguments.encode()
        except MALFORMED:
            self.lose("tool_call", f"its arguments are not a JSON object; sent as text under {UNREADABLE}")
            return msgspec.json.encode({UNREADABLE: call.arguments})


def _kind_of(block: Block) -> str:
    return str(type(block).__struct_config__.tag)


# --- turns ------------------------------------------------------------------------------------------------------------

USER: Final = b'{"role":"user","content":['
MODEL: Final = b'{"role":"assistant","content":['


class Turn(MessageWriter):
    """A message on the wire; not changed any more after `finish`."""

    opening: bytes = USER
    """The JSON before the content, which says whose turn it is."""
    content: bytes = b""
    """The blocks, joined by commas; empty if nothing of the message is sent."""
    blocks: list[bytes] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    """Features that the request must declare because of this message, named by the dialect."""
    cacheable: bool = True
    """Whether its last block can be marked for the cache."""

    def finish(self, message: Message) -> None:
        """Write the whole message."""
        self.opening = MODEL if message.role == "assistant" else USER
        blocks = message.blocks
        if len(blocks) == 1 and type(block := blocks[0]) is Text and block.native is None:  # as most are
            self.write_text(block)
        else:
            self.write_blocks(blocks)
        if not self.blocks and not self.losses:
            self.index = 0
            what = _kind_of(blocks[0]) if blocks else "message"
            self.lose(what, "the message is empty, and the provider takes no empty messages")
        self.content = b",".join(self.blocks)


class Turns(Written, frozen=True, kw_only=True):
    """The array of messages without the end of the last one."""

    opening: bytes = b""
    marks: frozenset[str] = frozenset()


_T = TypeVar("_T", bound=Turn)


class TurnsWriter(HistoryWriter[Turns, _T]):
    """Writes messages as turns: neighbouring messages of one role become one."""

    nothing = Turns()

    def append(self, before: Turns, messages: Sequence[Message]) -> Turns:
        return self.join(before, self.forms(messages))

    def write_marked(self, conversation: Conversation, count: int, mark: bytes) -> Turns:
        """All messages, with cache marks at the ends of the user's last `count` turns."""
        turns = self.all_turns(conversation.messages)
        return self.join(self.nothing, turns, last_user_turns(turns, count), mark)

    def all_turns(self, messages: Sequence[Message]) -> list[_T]:
        """All messages of a conversation on the wire."""
        return self.forms(messages)

    def mark_turn(self, content: bytes, mark: bytes) -> bytes:
        """The content of a turn with a cache mark at its end."""
        raise NotImplementedError

    def join(self, before: Turns, turns: Sequence[_T], marked: Collection[int] = (), mark: bytes = b"") -> Turns:
        pieces: list[bytes] = []
        opening = before.opening
        for at, turn in enumerate(turns, before.count):
            if turn.content:
                changed = b"]}," + turn.opening if opening else b"[" + turn.opening
                pieces.append(b"," if turn.opening == opening else changed)
                pieces.append(self.mark_turn(turn.content, mark) if at in marked else turn.content)
                opening = turn.opening
        return Turns(
            count=before.count + len(turns),
            pieces=(*before.pieces, *pieces),
            losses=before.losses_with(turns),
            opening=opening,
            marks=before.marks.union(*[turn.marks for turn in turns]),
        )


def last_user_turns(turns: Sequence[Turn], count: int) -> list[int]:
    """The indexes of the last messages of the user's last turns that can be marked."""
    found: list[int] = []
    inside = False
    for at in range(len(turns) - 1, -1, -1):
        turn = turns[at]
        if turn.opening == MODEL:
            inside = inside and not turn.content
        elif turn.content and not inside:
            inside = True
            if turn.cacheable:
                found.append(at)
            if len(found) == count:
                break
    return found


# --- ids, results and media -------------------------------------------------------------------------------------------


def legal_id(id: str, legal: Pattern[str], length: int = 40) -> str:
    """An id that the provider accepts; always the same for the same id, so that a call and its result still match."""
    if legal.fullmatch(id):
        return id
    return blake2s(id.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def why_not_media(
    media: Media, kinds: frozenset[MediaKind], url_kinds: frozenset[MediaKind], provider: str = ""
) -> str | None:
    """Why media cannot be sent as one of these kinds; None if they can. Raises for a file that was not read."""
    if media.path is not None:
        message = f"The file {media.name or media.path!r} was not read before the conversation was sent."
        hint = "If it may be read, call dragoman.engines.read_files(conversation) first."
        raise ConfigurationError(message, hint=hint)
    if media.kind not in kinds:
        return f"this model takes no {media.kind} here"
    if media.stored is not None:
        keeper, _ = media.stored
        return None if keeper == keeper_of(provider) else f"it is stored at {keeper}, and only models there can read it"
    if media.url is not None and media.kind not in url_kinds and not media.url.startswith("data:"):
        return f"this model takes {media.kind} as bytes only, not by URL"
    return None


def keeper_of(provider: str) -> str:
    """The service that stores a provider's files: two APIs of one service share them."""
    return "openai" if provider == "openai-responses" else provider


def url_of(media: Media) -> str:
    return media.url or f"data:{media.mime_type};base64,{b64encode(media.data or b'').decode()}"


def content_of(result: ToolResult, *, error_said: bool = False) -> tuple[Text | Json | Media, ...]:
    """The content of a tool's result. `error_said`: mark an error in the text, for an API without a flag for it."""
    content = result.content or ((result.structured,) if result.structured is not None else ())
    if not result.is_error or not error_said:
        return content
    first = content[0] if content else Text("the tool failed and gave no reason")
    if isinstance(first, Media):
        return (Text("Error"), *content)
    text = first.text if first.text.lower().startswith("error") else f"Error: {first.text}"
    return (Text(text), *content[1:])
