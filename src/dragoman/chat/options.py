"""The options of chat clients and turns, and which of them are for the engine, the executor and the loop."""

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
    """How a client's tools are run."""

    tool_config: ToolConfig
    """Limits, timeouts, retries and budgets of the tools."""
    permission: PermissionCheck
    """Decides about each call before it runs; `dragoman.toolkit` has one that follows rules."""
    middleware: Sequence[Middleware]
    """Wrapped around each call, the first outermost."""
    on_result: OnResult
    """Called once for every call, when its result is known."""
    logger: logging.Logger
    """Gets a line for each call, instead of the logger `dragoman.tools`."""


class ChatOptions(LoopOptions, ToolHandling, EngineOptions, total=False):
    """The options of a chat client, in addition to its model, tools and store."""

    conversation: Conversation
    """The conversation to continue."""
    id: str
    """The conversation's id in a store, a UUID; a new one by default."""
    answer: AnswerType[Any]
    """The default type of answers to `ask`."""
    stateless: bool
    """Keep no history: every turn starts from the same conversation. Such a client may be shared freely."""


class CallOptions(TypedDict, total=False):
    """The options of one turn or question; its `options` and `limits` override the client's field by field."""

    options: ModelOptions
    limits: Limits
    deps: object
    retries: int
    """How often the model may correct a typed answer that does not fit; once by default."""


class TurnOptions(CallOptions, total=False):
    """The options of one turn."""

    tools: AnyTools
    """Used instead of the client's."""
    approvals: Iterable[Approval]
    """Answers about pending calls."""
    conversation: Conversation
    """The conversation that a stateless client continues."""


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
"""For names that belong elsewhere, or that other libraries use: what to write instead."""


def find_engine(
    model: object,
    transport: object,
    options: Mapping[str, object],
    kind: type[E],
    *,
    but: Iterable[str] = (),
) -> E:
    """Create the engine of a model's name; an engine is returned as it is and takes no engine options, `but` these."""
    check_names(options, ChatOptions.__annotations__, "A chat client", ELSEWHERE)
    found: dict[str, Any] = {name: value for name, value in options.items() if name in _ENGINE}
    make: Any = engine if kind is Engine else async_engine
    if isinstance(model, str):
        return make(model, transport=transport, **found)
    if isinstance(model, Sequence):
        if not any(
            isinstance(each, str) for each in cast("Sequence[object]", model)
        ):  # the loop passes these with each call
            found = {name: value for name, value in found.items() if name not in _LOOP and name not in but}
        return make(model, transport=transport, **found)
    foreign = [name for name in list_engine_options(found) if name not in but]
    foreign += [] if transport is None else ["transport"]
    if foreign:
        message = f"{foreign[0]!r} cannot be combined with an engine, which has its own."
        raise ConfigurationError(
            message, hint=f"Pass {foreign[0]} to the engine, or pass a model's name instead of it."
        )
    return cast("E", adopt(model, kind))


def list_engine_options(options: Mapping[str, object]) -> list[str]:
    """The options that an engine can only be created with."""
    return [name for name in options if name in _ENGINE and name not in _LOOP]


def check_store(store: object, *, plain: bool) -> None:
    """Refuse what is not a store, or is one of the other colour, which would fail much later and less clearly."""
    record: object = getattr(store, "record", None)
    kind = type(store).__name__
    if not callable(record):
        path = str(cast("object", store)) if isinstance(store, str | os.PathLike) else "talks.db"
        raise ConfigurationError(f"A {kind} is not a store.", hint=f"Pass SqliteStore({path!r}), say.")
    from inspect import iscoroutinefunction

    if iscoroutinefunction(record) is plain:
        message, hint = (
            "The store is async, but this client is not.",
            "Use AsyncChatClient, or a store without `Async`.",
        )
        if not plain:
            message, hint = "The store is sync, but this client is async.", "Use ChatClient, or AsyncStore(store)."
        raise ConfigurationError(message, hint=hint)


def drop_engine_options(given: ChatOptions) -> ChatOptions:
    """The options for another client on the same engine."""
    return cast("ChatOptions", {name: value for name, value in given.items() if name not in _ENGINE or name in _LOOP})


def options_of_fork(given: ChatOptions) -> ChatOptions:
    """The options for a fork: those of another client on the same engine, in a conversation with an id of its own."""
    options = drop_engine_options(given)
    options.pop("id", None)
    return options


def make_executor(tools: AnyTools, given: ChatOptions) -> ToolExecutor:
    """The executor that runs these tools as the options say."""
    return dragoman.tools.ToolExecutor(  # loaded with the first client
        tools,
        given.get("tool_config"),
        permission=given.get("permission"),
        middleware=given.get("middleware", ()),
        on_result=given.get("on_result"),
        logger=given.get("logger"),
    )
