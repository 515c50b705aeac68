"""What a user may say.

Owns: from what callers find easy to write to a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dragoman.conversation import Block, Message
from dragoman.errors import ConfigurationError

__all__ = ["Prompt", "message_of"]

Prompt: TypeAlias = str | Block | Message | Sequence[str | Block]
"""A text, a block such as an image, several of them, or a whole message."""


def message_of(prompt: Prompt) -> Message:
    """The user's message."""
    if isinstance(prompt, Message):
        return prompt
    content = (prompt,) if isinstance(prompt, str) or not isinstance(prompt, Sequence) else tuple(prompt)
    message = Message.user(*content)
    if not message.blocks or (isinstance(prompt, str) and not prompt):
        text = "An empty message says nothing that a model could answer."
        raise ConfigurationError(text, hint="Give a text or a block.")
    return message
