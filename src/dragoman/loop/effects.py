"""What a run asks for.

Owns: the effects, which a plain and an async driver carry out, each in its colour.
Must not know: why they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from dragoman.conversation import Conversation, ToolSpec
from dragoman.providers.options import ModelOptions

from .hooks import Hook

if TYPE_CHECKING:
    from dragoman.tools.batch import Batch

__all__ = ["CallModel", "CallTools", "Effect", "Tell"]


class CallModel(Struct, frozen=True):
    """Effect: ask the model; the answer is a Reply, or its error is thrown in."""

    conversation: Conversation
    tools: tuple[ToolSpec, ...]
    options: ModelOptions
    streamed: bool
    """Whether the caller may see the reply as it arrives; not so a call that is not part of the conversation."""


class CallTools(Struct, frozen=True):
    """Effect: carry out a batch; its results are in the batch, however it is left."""

    batch: Batch


class Tell(Struct, frozen=True):
    """Effect: a hook has given back something to be awaited."""

    hook: Hook


Effect: TypeAlias = CallModel | CallTools | Tell
