"""What functions say about the moment, before each call of the model: instructions and tools.

A run without such functions does not come here. Whoever asks brings `wait`, which awaits what an async function gave.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.conversation import Conversation
from dragoman.errors import ConfigurationError

from .settings import Instruction, RunContext

if TYPE_CHECKING:
    from dragoman.tools import MomentTools, ToolSet

Wait: TypeAlias = Callable[[Awaitable[object]], Awaitable[object]]


async def instruct(
    conversation: Conversation, functions: Iterable[Instruction], context: RunContext[Any], wait: Wait
) -> Conversation:
    """The conversation as the model gets it: what the functions say stands behind its system prompt."""
    said = [conversation.system] if conversation.system else []
    for function in functions:
        text = await _ask(function, context, wait)
        if isinstance(text, str):
            said += [text] if text else []
        elif text is not None:
            message = f"A function of the system prompt gave back a {type(text).__name__}."
            raise ConfigurationError(message, hint="Return a text, or None to say nothing.")
    return conversation.with_system("\n\n".join(said)) if said else conversation


async def tools_of(tools: ToolSet, context: RunContext[Any], wait: Wait) -> ToolSet:
    """The tools of the moment, where a function gives them; else the tools themselves."""
    if tools.function is None:
        return tools
    return cast("MomentTools", tools).take(await _ask(tools.function, context, wait))


async def _ask(function: Callable[[RunContext[Any]], object], context: RunContext[Any], wait: Wait) -> object:
    said = function(context)
    return await wait(cast("Awaitable[object]", said)) if isinstance(said, Awaitable) else said
