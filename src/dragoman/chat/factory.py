"""`new` and `new_async`: chat clients from a Config."""

from __future__ import annotations

from typing import Any, Final, Unpack, cast

from dragoman._checks import overlay
from dragoman.loop import Limits
from dragoman.stores import AsyncConversationStore, ConversationStore
from dragoman.tools import AnyTools

from .answers import answer_type
from .client import AsyncChatClient, ChatClient
from .config import ENGINE_OPTIONS, Config
from .config_sources import change_config, load_config
from .options import ChatOptions

_FIELDS: Final = {"tool_config": "tool_config", **{option: field for field, option in ENGINE_OPTIONS.items()}}
"""The options that are also fields of Config, and the names of these fields."""


def new(
    config: Config | None = None,
    tools: AnyTools = (),
    *,
    store: ConversationStore | None = None,
    **options: Unpack[ChatOptions],
) -> ChatClient:
    """Create a client from a configuration: the given one, or that of files and environment (`load_config`).

    Further arguments override it field by field: `options=ModelOptions(seed=1)` keeps the configured temperature. A
    field counts as set if it differs from its default.
    """
    config, merged = _merge(config, options)
    return ChatClient(config.model_names, tools, store=store, transport=config.transport, **merged)


def new_async(
    config: Config | None = None,
    tools: AnyTools = (),
    *,
    store: AsyncConversationStore | None = None,
    **options: Unpack[ChatOptions],
) -> AsyncChatClient:
    """`new` for a program on an event loop."""
    config, merged = _merge(config, options)
    return AsyncChatClient(config.model_names, tools, store=store, transport=config.async_transport, **merged)


def _merge(config: Config | None, options: ChatOptions) -> tuple[Config, ChatOptions]:
    arguments: dict[str, Any] = {_FIELDS[name]: value for name, value in options.items() if name in _FIELDS}
    config = load_config(**arguments).config if config is None else change_config(config, arguments)
    merged: ChatOptions = {**config.for_engine(), "tool_config": config.for_tools()}
    if config.system_prompt:
        merged["system"] = config.system_prompt
    if config.response_schema is not None:
        merged["answer"] = answer_type(
            config.response_schema, name=config.schema_name or None, description=config.schema_description
        )
    merged |= cast("ChatOptions", {name: value for name, value in options.items() if name not in _FIELDS})
    if (limits := options.get("limits")) is not None:
        merged["limits"] = overlay(limits, Limits(steps=config.max_steps))
    return config, merged
