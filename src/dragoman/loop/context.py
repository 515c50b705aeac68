"""Keeping a conversation within what the model can read.

Owns: the estimate of a history's size, and the ready policies. A policy is asked before each call of the model and
gives back the conversation to go on with: the same one, or a shorter one. Calls and their results stay together.
Must not know: engines. A policy that needs a model asks for one by yielding what is to be said to it, so that one
policy serves plain and async programs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import Conversation, Json, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.conversation.blocks import Block

_CHARACTERS_PER_TOKEN: Final = 4
_TOKENS_PER_MEDIA: Final = 1500
_TOKENS_PER_MESSAGE: Final = 4
_DROPPED: Final = "[This result was dropped to save space. Call the tool again if it is needed.]"


class ContextUse(Struct, frozen=True):
    """How full the model's window is."""

    tokens: int
    """An estimate: what the model last reported, and what has come since by its length."""
    window: int | None
    """What the model can read, where its profile says so."""

    def beyond(self, share: float) -> bool:
        """Whether more than this share of the window is used; never where the window is unknown."""
        return self.window is not None and self.tokens > share * self.window


Shortening: TypeAlias = Generator[Conversation, Message, Conversation]
"""Yields conversations to be answered by the model, without tools, and returns the one to go on with."""

ContextPolicy: TypeAlias = Callable[[Conversation, ContextUse], Conversation | Shortening]
"""Is asked before each call of the model: gives back the conversation as it is, or a shorter one that is valid."""


def estimated_tokens(conversation: Conversation) -> int:
    """About how many tokens the model would read: from its last report on, by length; four characters are a token."""
    tokens = 0
    for message in reversed(conversation.messages):
        if message.role == "assistant" and message.usage is not None and message.usage.tokens is not None:
            return tokens + message.usage.tokens
        tokens += _TOKENS_PER_MESSAGE + sum(map(_length, message.blocks)) // _CHARACTERS_PER_TOKEN
    return tokens + len(conversation.system or "") // _CHARACTERS_PER_TOKEN


def _length(block: Block | Json) -> int:
    """A block's length in characters, or what stands for it."""
    match block:
        case Text() | Thinking():
            return len(block.text)
        case ToolCall():
            return len(block.name) + len(block.arguments)
        case ToolResult():
            return sum(map(_length, block.content))
        case Media():
            return _TOKENS_PER_MEDIA * _CHARACTERS_PER_TOKEN
        case Json() | Opaque():
            return len(bytes(block.raw))


class DropToolResults(Struct, frozen=True, kw_only=True):
    """Replaces the oldest tool results by a note, once more than `above` of the window is used.

    The results of the last `keep` messages with results stay. Nothing else is touched.
    """

    above: float = 0.7
    keep: int = 3

    def __call__(self, conversation: Conversation, use: ContextUse) -> Conversation:
        if not use.beyond(self.above):
            return conversation
        places = [index for index, message in enumerate(conversation.messages) if message.role == "tool"]
        messages = list(conversation.messages)
        for index in places[: max(0, len(places) - self.keep)]:
            messages[index] = _without_content(messages[index])
        return _replaced(conversation, messages)


def _without_content(message: Message) -> Message:
    kept: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolResult) and sum(map(_length, block.content)) > len(_DROPPED):
            kept.append(msgspec.structs.replace(block, content=(Text(_DROPPED),), structured=None))
        else:
            kept.append(block)
    return msgspec.structs.replace(message, blocks=tuple(kept)) if tuple(kept) != message.blocks else message


class Summarise(Struct, frozen=True, kw_only=True):
    """Has the model summarise the older part of the history, once more than `above` of the window is used.

    The last `keep` turns of the user stay word for word; what came before becomes one message of the user that says so.
    """

    above: float = 0.8
    keep: int = 2
    instruction: str = (
        "Summarise our conversation so far for yourself, so that you can go on without it: what is wanted, what was "
        "decided and why, what was done and found out (names, numbers, paths exactly), and what is still to be done. "
        "Write only the summary."
    )

    def __call__(self, conversation: Conversation, use: ContextUse) -> Conversation | Shortening:
        cut = self._cut(conversation)
        return self._shortened(conversation, cut) if use.beyond(self.above) and cut else conversation

    def _cut(self, conversation: Conversation) -> int:
        """Where the part begins that stays: at a message of the user, so that no call is parted from its result."""
        turns = [index for index, message in enumerate(conversation.messages) if message.role == "user"]
        cut = turns[-self.keep] if len(turns) > self.keep > 0 else turns[-1] if turns else 0
        return cut if cut > 1 else 0  # a single message is not worth a call

    def _shortened(self, conversation: Conversation, cut: int) -> Shortening:
        older = conversation.up_to(cut).repaired().conversation
        summary = (yield older.plus(Message.user(self.instruction))).text.strip()
        if not summary:
            return conversation
        said = Message.user(f"[Summary of the conversation before this point]\n{summary}")
        return _replaced(conversation, [said, *conversation.messages[cut:]])


def _replaced(conversation: Conversation, messages: list[Message]) -> Conversation:
    if tuple(messages) == conversation.messages:
        return conversation
    return msgspec.structs.replace(conversation, messages=tuple(messages))
