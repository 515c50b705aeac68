"""What a user may say.

Owns: from what callers find easy to write to a message, and refusing what no history could hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dragoman.conversation import Block, Conversation, Message, Text
from dragoman.errors import ConfigurationError

__all__ = ["Prompt", "message_of"]

Prompt: TypeAlias = str | Block | Message | Sequence[str | Block]
"""A text, a block such as an image, several of them, or a whole message."""


def message_of(prompt: Prompt) -> Message:
    """The user's message."""
    if isinstance(prompt, Message):
        message = prompt
    else:
        content = (prompt,) if isinstance(prompt, str) or not isinstance(prompt, Sequence) else tuple(prompt)
        message = Message.user(*content)
    if all(isinstance(block, Text) and not block.text for block in message.blocks):
        text = "An empty message says nothing that a model could answer."
        raise ConfigurationError(text, hint="Give a text or a block.")
    for change in Conversation().plus(message).repaired().changes:
        if change.kind != "added_result":  # calls whose results come later are fine
            text = f"This message would spoil the history: {change.problem}."
            raise ConfigurationError(text, hint="Say texts and media; results of tools join the history by themselves.")
    return message
