"""What a chat client can be given: which options are the engine's, the executor's and the loop's.

Must not know: what a client does with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

import dragoman.tools
from dragoman._checks import check_names
from dragoman.conversation import Conversation
from dragoman.engines import AsyncEngine, Engine, EngineOptions, adopt, async_engine, engine
from dragoman.errors import ConfigurationError
from dragoman.loop import Limits, LoopOptions
from dragoman.providers import ModelOptions
from dragoman.tools import Approval, PermissionCheck, ToolConfig

if TYPE_CHECKING:
    import logging

    from dragoman.tools import AnyTools, Middleware, OnResult, ToolExecutor

    from .answers import AnswerType


E = TypeVar("E", bound=Engine | AsyncEngine)


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

    conversation: Conversation
    """The conversation to go on with."""
    id: str
    """The id that the conversation gets in a store, a UUID; one is made up without it."""
    answer: AnswerType[Any]
    """What `ask` gives where it is told no type."""
    stateless: bool
    """Keep no history: every turn starts from the same conversation. Such a client may be shared freely."""


class CallOptions(TypedDict, total=False):
    """What one turn or question can be given; of options and limits, the nearer ones win field by field."""

    options: ModelOptions
    limits: Limits
    deps: object
    retries: int
    """How often a typed answer that does not fit is asked for again; once by default."""


class TurnOptions(CallOptions, total=False):
    """What one turn can be given."""

    tools: AnyTools
    """In place of the client's."""
    approvals: Iterable[Approval]
    """Answers about pending calls."""
    conversation: Conversation
    """What a client without a history of its own (stateless=True) goes on with."""


_LOOP = LoopOptions.__annotations__
_ENGINE = EngineOptions.__annotations__
ELSEWHERE = {
    **{name: f"options=ModelOptions({name}=…)" for name in ModelOptions.__struct_fields__},
    **{name: f"limits=Limits({name}=…)" for name in Limits.__struct_fields__},
    **{name: f"tool_config=ToolConfig({name}=…)" for name in ToolConfig.__struct_fields__},
    "api_key": "key=…",
    "timeout": "timeouts=Timeouts(total=…)",
    "max_retries": "retry=RetryPolicy(max_attempts=…)",
    "instructions": "system=…",
    "system_prompt": "system=…",
    "messages": "conversation=Conversation(…)",
}
"""Where that is said here which other libraries, or one's memory, call by another name."""


def find_engine(
    model: object,
    transport: object,
    options: Mapping[str, object],
    kind: type[E],
    *,
    but: Iterable[str] = (),
) -> E:
    """The engine that is meant: made by its name, or itself, which takes none of the options of engines `but` these."""
    check_names(options, ChatOptions.__annotations__, "A chat client", ELSEWHERE)
    found: dict[str, Any] = {name: value for name, value in options.items() if name in _ENGINE}
    make: Any = engine if kind is Engine else async_engine
    if isinstance(model, str):
        return make(model, transport=transport, **found)
    if isinstance(model, Sequence):
        if not any(isinstance(each, str) for each in cast("Sequence[object]", model)):  # a call brings the loop's
            found = {name: value for name, value in found.items() if name not in _LOOP and name not in but}
        return make(model, transport=transport, **found)
    foreign = [name for name in list_engine_options(found) if name not in but]
    foreign += [] if transport is None else ["transport"]
    if foreign:
        message = f"{foreign[0]!r} is given together with an engine, which has its own."
        raise ConfigurationError(message, hint=f"Give {foreign[0]} to the engine, or a model's name instead of it.")
    return cast("E", adopt(model, kind))


def list_engine_options(options: Mapping[str, object]) -> list[str]:
    """Those that only an engine takes which is made with them."""
    return [name for name in options if name in _ENGINE and name not in _LOOP]


def check_store(store: object, *, plain: bool) -> None:
    """Refuse what is no store, and a store of the other colour, which would fail much later and in riddles."""
    if not callable(getattr(store, "record", None)):
        message = f"A store is not a {type(store).__name__}."
        path = str(cast("object", store)) if isinstance(store, str | os.PathLike) else "talks.db"
        raise ConfigurationError(message, hint=f"Make one, for instance SqliteStore({path!r}).")
    from inspect import iscoroutinefunction

    if iscoroutinefunction(getattr(store, "record", None)) is plain:
        other, use = ("a program on an event loop", "AsyncChatClient, or the store without `Async` in its name")
        if not plain:
            other, use = ("plain programs", "ChatClient, or AsyncStore(store), which makes a plain store async")
        raise ConfigurationError(f"The store is for {other}; this client is not.", hint=f"Use {use}.")


def drop_engine_options(given: ChatOptions) -> ChatOptions:
    """The options that another client on the same engine is made with."""
    return cast("ChatOptions", {name: value for name, value in given.items() if name not in _ENGINE or name in _LOOP})


def make_executor(tools: AnyTools, given: ChatOptions) -> ToolExecutor:
    """What runs these tools in the way that the options say."""
    return dragoman.tools.ToolExecutor(  # loaded with the first client that is made
        tools,
        given.get("tool_config"),
        permission=given.get("permission"),
        middleware=given.get("middleware", ()),
        on_result=given.get("on_result"),
        logger=given.get("logger"),
    )
