"""Keep a conversation within the model's context window: how full it is, and ready-made policies.

A policy is called before each model call and returns the conversation to continue with: the same one, or a shorter one
in which calls and their results stay together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from weakref import WeakSet

import msgspec
from msgspec import Struct

import dragoman.providers
import dragoman.tools
from dragoman._checks import CheckedMeta, Count
from dragoman.conversation import (
    Block,
    Conversation,
    Message,
    Text,
    ToolResult,
)
from dragoman.errors import ConfigurationError

if TYPE_CHECKING:
    from dragoman.engines import BaseEngine

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_WARNED: Final = WeakSet["BaseEngine"]()
_DROPPED: Final = "[This result was dropped to save space. Call the tool again if it is needed.]"


class ContextUse(Struct, frozen=True):
    """How full the model's context window is."""

    tokens: int
    """An estimate: the usage that the model last reported, plus the length of what was added since."""
    window: int | None
    """The size of the window, if the model's profile knows it."""
    ask: Callable[[Conversation], Awaitable[Message]]
    """Calls the model with this conversation, without tools; counts against the limits of the run."""

    def beyond(self, share: float) -> bool:
        """Whether more than this share of the window is used; False if the window is unknown."""
        return self.window is not None and self.tokens > share * self.window


ContextPolicy: TypeAlias = Callable[[Conversation, ContextUse], Conversation | Awaitable[Conversation]]
"""Returns the conversation as it is, or a shorter one. In a sync run it may await `use.ask` and nothing else."""


async def ask_policy(
    policy: ContextPolicy,
    conversation: Conversation,
    window: int | None,
    ask: Callable[[Conversation], Awaitable[Message]],
    wait: Callable[[Awaitable[Conversation]], Awaitable[object]],
) -> Conversation:
    """Apply a policy; `wait` awaits the result of an async one."""
    use = ContextUse(dragoman.providers.estimated_tokens(conversation), window, ask)
    after: object = policy(conversation, use)
    if isinstance(after, Awaitable):
        after = await wait(after)
    if not isinstance(after, Conversation):
        message = f"A context policy returned a {type(after).__name__}."
        raise ConfigurationError(message, hint="Return a conversation: the same one, or a shorter one.")
    if after is not conversation:
        after.ensure_valid()
    return after


class _WhenFull(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    """A policy that begins at a share of the window, or at a number of tokens: at whichever comes first."""

    above: _Share
    """The share of the window."""
    above_tokens: Count | None = None
    """The number of tokens; needed if the size of the window is not known."""

    def is_due(self, use: ContextUse) -> bool:
        """Whether there is enough to shorten."""
        return use.beyond(self.above) or (self.above_tokens is not None and use.tokens > self.above_tokens)


def warn_of_unknown_window(policies: Iterable[ContextPolicy], engine: BaseEngine) -> None:
    """Log that a policy will never begin, because nobody knows the model's window; once for each engine."""
    idle = [each for each in policies if isinstance(each, _WhenFull) and each.above_tokens is None]
    if not idle or engine in _WARNED or engine.context_window is not None:
        return
    _WARNED.add(engine)
    import logging  # slow to import, and most windows are known

    policy = f"{type(idle[0]).__name__}(above={idle[0].above:g})"
    logging.getLogger("dragoman.loop").warning(
        "%s: %s never begins, because the size of this model's context window is not known. Say above_tokens=…, a "
        'number of tokens, or give the model profile={"context_window": …}.',
        engine.name,
        policy,
    )


class DropToolResults(_WhenFull, frozen=True, kw_only=True):
    """Replaces old tool results by a note once more than `above` of the window, or `above_tokens`, is used.

    The last `keep` messages with results stay as they are, and so does everything else.
    """

    above: _Share = 0.7
    keep: int = 3

    def __call__(self, conversation: Conversation, use: ContextUse) -> Conversation:
        if not self.is_due(use):
            return conversation
        places = [index for index, message in enumerate(conversation.messages) if message.role == "tool"]
        messages = list(conversation.messages)
        for index in places[: max(0, len(places) - self.keep)]:
            messages[index] = _without_content(messages[index])
        if tuple(messages) == conversation.messages:
            return conversation
        return msgspec.structs.replace(conversation, messages=tuple(messages))


def _without_content(message: Message) -> Message:
    def length(result: ToolResult) -> int:
        return sum(map(dragoman.providers.length_of_block, result.content))

    kept: list[Block] = []
    for block in message.blocks:
        # Tools that a tool search found are offered only while its result is in the history.
        if isinstance(block, ToolResult) and block.name != dragoman.tools.FIND_TOOLS and length(block) > len(_DROPPED):
            kept.append(msgspec.structs.replace(block, content=(Text(_DROPPED),), structured=None))
        else:
            kept.append(block)
    return msgspec.structs.replace(message, blocks=tuple(kept)) if tuple(kept) != message.blocks else message


class Summarise(_WhenFull, frozen=True, kw_only=True):
    """Has the model summarise what is older once more than `above` of the window, or `above_tokens`, is used.

    The last `keep` user turns stay word for word; the summary of what came before becomes one user message.
    """

    above: _Share = 0.8
    keep: int = 2
    instruction: str = (
        "Summarise our conversation so far for yourself, so that you can go on without it: what is wanted, what was "
        "decided and why, what was done and found out (names, numbers, paths exactly), and what is still to be done. "
        "Write only the summary."
    )

    async def __call__(self, conversation: Conversation, use: ContextUse) -> Conversation:
        cut = self._cut(conversation)
        if not cut or not self.is_due(use):
            return conversation
        older = conversation.up_to(cut).repaired().conversation
        summary = (await use.ask(older.plus(Message.user(self.instruction)))).text.strip()
        if not summary:
            return conversation
        message = Message.user(f"[Summary of the conversation before this point]\n{summary}")
        return msgspec.structs.replace(conversation, messages=(message, *conversation.messages[cut:]))

    def _cut(self, conversation: Conversation) -> int:
        """The index of the first message to keep: a user message, so that calls stay with their results."""
        turns = [index for index, message in enumerate(conversation.messages) if message.role == "user"]
        cut = turns[-self.keep] if len(turns) > self.keep > 0 else turns[-1] if turns else 0
        return cut if cut > 1 else 0  # a single message is not worth a call
