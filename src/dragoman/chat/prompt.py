"""What a user may say.

Owns: from what callers find easy to write to a message, and refusing what no history could hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from dragoman.conversation import Block, Conversation, Message, Text, ToolCall, ToolResult
from dragoman.errors import ConfigurationError

Prompt: TypeAlias = str | Block | Message | Sequence[str | Block]
"""A text, a block such as an image, several of them, or a whole message."""


def make_message(prompt: Prompt) -> Message:
    """The user's message."""
    if isinstance(prompt, str) and prompt:  # nearly always
        return Message(role="user", blocks=(Text(prompt),))
    if isinstance(prompt, Message):
        message = prompt
    else:
        content = (prompt,) if isinstance(prompt, str) or not isinstance(prompt, Sequence) else tuple(prompt)
        message = Message.user(*content)
    for block in cast("Sequence[object]", message.blocks):  # whatever the types promise
        if not isinstance(block, Block):
            text = f"A message cannot be made of a {type(block).__name__}."
            raise ConfigurationError(text, hint="Give a text, a block such as Media, a list of these, or a Message.")
    if all(isinstance(block, Text) and not block.text for block in message.blocks):
        text = "An empty message says nothing that a model could answer."
        raise ConfigurationError(text, hint="Give a text or a block.")
    if message.role != "user" or any(isinstance(block, ToolCall | ToolResult) for block in message.blocks):
        _check(message)
    return message


def _check(message: Message) -> None:
    for change in Conversation().plus(message).repaired().changes:
        if change.kind != "added_result":  # calls whose results come later are fine
            text = f"This message would spoil the history: {change.problem}."
            raise ConfigurationError(text, hint="Say texts and media; results of tools join the history by themselves.")
