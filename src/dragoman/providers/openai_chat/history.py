"""The history of a conversation, as the wire has it.

Owns: the order of messages on the wire and what must stand between them; keeping the wire form of each message beside
it, so that a turn on a long history costs its new messages and a join.
Must not know: how blocks are written (messages.py does), options and tools.
"""

from __future__ import annotations

from typing import Final

from dragoman.conversation import Conversation
from dragoman.providers.codec import Loss, remembered
from dragoman.providers.names import ToolNames
from dragoman.providers.profile import Profile

from .messages import MessageWriter, user_message

__all__ = ["wire_history"]

_BRIDGE: Final = b'{"role":"assistant","content":"OK."}'
"""What stands between results and a message of the user for servers that refuse the latter right behind the former."""


def wire_history(
    conversation: Conversation, profile: Profile, names: ToolNames, losses: list[Loss], *, mark: bool
) -> bytes:
    """All messages as one JSON array. With `mark` the system prompt and the end are marked for the provider's cache."""
    writer = MessageWriter(profile, names)
    key = _key(profile, names)
    bridge = "assistant_after_tool" in profile.quirks
    out: list[bytes] = [writer.system(conversation.system, mark=mark)] if conversation.system else []
    behind: list[bytes] = []
    after_results = False
    last = len(conversation.messages) - 1 if mark else -1
    for at, message in enumerate(conversation.messages):
        if at == last:
            wire = remembered(message, key + "|marked", lambda m=message: writer.write(m, mark=True))
        else:
            wire = remembered(message, key, lambda m=message: writer.write(m))
        if wire.losses:
            losses.extend([Loss(at, *loss) for loss in wire.losses])
        if after_results and message.role != "tool":
            if bridge and (behind or message.role == "user"):
                out.append(_BRIDGE)
            _write_behind(behind, out)
        after_results = message.role == "tool"
        if wire.messages:
            out.append(wire.messages)
        if wire.behind:
            behind.append(wire.behind)
    if bridge and behind:
        out.append(_BRIDGE)
    _write_behind(behind, out)
    return b"[" + b",".join(out) + b"]"


def _write_behind(behind: list[bytes], out: list[bytes]) -> None:
    """What results hold and cannot carry follows all of them: nothing may come between a call and its results."""
    if behind:
        out.append(user_message(b",".join(behind)))
        behind.clear()


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
