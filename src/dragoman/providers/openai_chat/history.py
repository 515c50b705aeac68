"""The history of a conversation, as the wire has it.

Owns: the order of messages on the wire and what must stand between them; keeping the wire form of each message beside
it, and that of the messages so far beside the conversation, so that a turn on a long history costs its new messages and
a join.
Must not know: how blocks are written (messages.py does), options and tools.
"""

from __future__ import annotations

from typing import Final

from dragoman.conversation import Conversation, Message
from dragoman.conversation.values import memory_of
from dragoman.providers.codec import Loss, Written, written_up_to
from dragoman.providers.names import ToolNames
from dragoman.providers.profile import Profile

from .messages import MessageWriter, Wire, user_message

__all__ = ["HistoryWriter"]

_BRIDGE: Final = b'{"role":"assistant","content":"OK."}'
"""What stands between results and a message of the user for servers that refuse the latter right behind the former."""


class _Written(Written, frozen=True, kw_only=True):
    behind: tuple[bytes, ...] = ()
    """What results hold and cannot carry; it follows all of them."""
    after_results: bool = False


_NOTHING: Final = _Written()


class HistoryWriter:
    """Writes histories for one server and one set of tools."""

    __slots__ = ("_bridge", "_key", "_mark", "_messages", "_system")

    def __init__(self, profile: Profile, names: ToolNames, *, mark: bool) -> None:
        self._messages: MessageWriter = MessageWriter(profile, names)
        self._key: str = _key(profile, names)
        self._bridge: bool = "assistant_after_tool" in profile.quirks
        self._mark: bool = mark
        """Whether the system prompt and the end are marked for the provider's cache."""
        self._system: tuple[str, bytes] = ("", b"")
        """The last system prompt and its wire form: from turn to turn it is the same."""

    def write(self, conversation: Conversation) -> tuple[bytes, tuple[Loss, ...]]:
        """All messages as JSON with commas between them, and what of them this server does not get."""
        messages = conversation.messages
        # A mark is not there to stay: the message that has it now is written without it in the next turn.
        count = len(messages) - 1 if self._mark and messages else len(messages)
        written = written_up_to(conversation, count, self._key, self._further, _NOTHING)
        if self._mark:
            written = self._further(written, messages[count:], mark=True)
        out = written.pieces
        if conversation.system:
            out = (self._system_prompt(conversation.system), *out)
        if written.behind:
            out = (*out, *([_BRIDGE] if self._bridge else []), user_message(b",".join(written.behind)))
        return b",".join(out), written.losses

    def _system_prompt(self, text: str) -> bytes:
        known, written = self._system
        if known is not text:
            written = self._messages.system(text, mark=self._mark)
            self._system = (text, written)
        return written

    def _further(self, written: _Written, messages: tuple[Message, ...], *, mark: bool = False) -> _Written:
        """What was written, and these messages behind it."""
        behind, after_results = written.behind, written.after_results
        out: list[bytes] = []
        lost: list[Loss] = []
        for at, message in enumerate(messages, written.count):
            wire = self._wire(message, mark=mark)
            if wire.losses:
                lost += [Loss(at, *loss) for loss in wire.losses]
            if after_results and message.role != "tool":
                if self._bridge and (behind or message.role == "user"):
                    out.append(_BRIDGE)
                if behind:  # nothing may come between a call and its results
                    out.append(user_message(b",".join(behind)))
                    behind = ()
            after_results = message.role == "tool"
            if wire.messages:
                out.append(wire.messages)
            if wire.behind:
                behind = (*behind, wire.behind)
        return _Written(
            count=written.count + len(messages),
            pieces=(*written.pieces, *out),
            losses=(*written.losses, *lost),
            behind=behind,
            after_results=after_results,
        )

    def _wire(self, message: Message, *, mark: bool) -> Wire:
        key = f"{self._key}|marked" if mark else self._key
        memory = memory_of(message)  # what `remembered` does, without two calls for each new message
        wire = memory.get(key)
        if wire is None:
            wire = memory[key] = self._messages.write(message, mark=mark)
        return wire


def _key(profile: Profile, names: ToolNames) -> str:
    """Everything besides a message that its wire form depends on."""
    parts = (
        "openai_chat",
        profile.provider,
        ",".join(sorted(profile.quirks)),
        ",".join(sorted(profile.media)),
        ",".join(sorted(profile.media_urls)),
        ",".join(sorted(profile.tool_result_media)),
        str(profile.reasoning_replayed),
        profile.tool_limits.name_pattern,
        str(profile.tool_limits.max_name_length),
        str(sorted(names.to_own.items())) if names.to_own else "",
    )
    return "|".join(parts)
