"""Instructions and tools that functions supply anew before each model call.

Only runs with such functions use this. `wait` awaits the result of an async function.
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
    """The conversation with the functions' texts after its system prompt."""
    texts = [conversation.system] if conversation.system else []
    for function in functions:
        text = await _evaluate(function, context, wait)
        if isinstance(text, str):
            texts += [text] if text else []
        elif text is not None:
            message = f"A function of the system prompt returned a {type(text).__name__}."
            raise ConfigurationError(message, hint="Return a text, or None for no text.")
    return conversation.with_system("\n\n".join(texts)) if texts else conversation


async def tools_of(tools: ToolSet, context: RunContext[Any], wait: Wait) -> ToolSet:
    """The tools for the next step: those that the function supplies, if there is one, else the tools themselves."""
    if tools.function is None:
        return tools
    return cast("MomentTools", tools).take(await _evaluate(tools.function, context, wait))


async def _evaluate(function: Callable[[RunContext[Any]], object], context: RunContext[Any], wait: Wait) -> object:
    value = function(context)
    return await wait(cast("Awaitable[object]", value)) if isinstance(value, Awaitable) else value
