"""What a chat client can be given.

Owns: the options beside model, tools and store; which of them are the engine's, the executor's and the loop's.
Must not know: what a client does with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

from dragoman.conversation import Conversation
from dragoman.engines import EngineOptions
from dragoman.errors import ConfigurationError
from dragoman.loop import LoopOptions
from dragoman.tools import AnyTools, PermissionCheck, ToolConfig

if TYPE_CHECKING:
    import logging

    from dragoman.tools import Middleware, OnResult, ToolExecutor

    from .schema import AnswerType


class ToolHandling(TypedDict, total=False):
    """How a client's tools are run: what goes to the executor beside the tools themselves."""

    tool_config: ToolConfig
    """Caps, time limits, retries and budgets of the tools."""
    permission: PermissionCheck
    """Decides about each call before it runs; see `dragoman.toolkit` for one made of rules."""
    middleware: Sequence[Middleware]
    """What is wrapped around each call, the first outermost."""
    on_result: OnResult
    """Called once for every call, when its result is known."""
    logger: logging.Logger
    """Gets a line for each call, in place of the logger `dragoman.tools`."""


class ChatOptions(LoopOptions, ToolHandling, EngineOptions, total=False):
    """What a chat client can be given beside its model, its tools and its store."""

    system: str | None
    """The system prompt."""
    conversation: Conversation
    """The conversation to go on with."""
    answer: AnswerType[Any]
    """What `ask` gives where it is told no type."""
    stateless: bool
    """Keep no history: every turn starts from the same conversation. Such a client may be shared freely."""


_LOOP = LoopOptions.__annotations__
_ENGINE = EngineOptions.__annotations__
_COLOURS = {
    "close": "Use AsyncChatClient, or the twin without `Async` in its name.",
    "aclose": "Use ChatClient, or its async twin; AsyncStore(store) makes a plain store async.",
}


def select_engine_options(
    given: Mapping[str, object], transport: object, *, made: bool, but: Iterable[str] = ()
) -> EngineOptions:
    """What of the options is the engine's. An engine that was made already takes none `but` these."""
    found = {name: value for name, value in given.items() if name in _ENGINE}
    if made:
        foreign = [name for name in found if name not in _LOOP and name not in but]
        foreign += [] if transport is None else ["transport"]
        if foreign:
            message = f"{foreign[0]!r} is given together with an engine, which has its own."
            raise ConfigurationError(message, hint=f"Give {foreign[0]} to the engine, or a model's name instead of it.")
    return cast("EngineOptions", found)


def check_colour(given: object, what: str, *, closes: str) -> None:
    """Refuse an engine or a store of the other colour, which would fail much later and in riddles."""
    if not hasattr(given, closes):
        other = "a program on an event loop" if closes == "close" else "plain programs"
        message = f"The {what} is for {other}; this client is not."
        raise ConfigurationError(message, hint=_COLOURS[closes])


def drop_engine_options(given: ChatOptions) -> ChatOptions:
    """The options that another client on the same engine is made with."""
    return cast("ChatOptions", {name: value for name, value in given.items() if name not in _ENGINE or name in _LOOP})


def make_executor(tools: AnyTools, given: ChatOptions) -> ToolExecutor:
    """What runs these tools in the way that the options say."""
    from dragoman.tools import ToolExecutor  # loaded with the first client that is made

    return ToolExecutor(
        tools,
        given.get("tool_config"),
        permission=given.get("permission"),
        middleware=given.get("middleware", ()),
        on_result=given.get("on_result"),
        logger=given.get("logger"),
    )
