"""Chat clients from a configuration.

Owns: from a Config to a client, in both colours.
Must not know: where a configuration comes from.
"""

from __future__ import annotations

from typing import Any, Final, Unpack

from dragoman._checks import overlay
from dragoman.engines import EngineOptions
from dragoman.loop import Limits
from dragoman.stores import AsyncConversationStore, ConversationStore
from dragoman.tools import AnyTools

from .answers import answer_type
from .client import AsyncChatClient, ChatClient
from .config import Config
from .config_sources import change_config, load_config
from .options import ChatOptions

_NAMES: Final = {"key": "token", "profile": "model_profile"}
_MERGED: Final = frozenset(EngineOptions.__annotations__) | {"tool_config"}
"""Options that a Config has, too, most of them under the same name."""


def new(
    config: Config | None = None,
    tools: AnyTools = (),
    *,
    store: ConversationStore | None = None,
    **options: Unpack[ChatOptions],
) -> ChatClient:
    """A client as the configuration says: the given one, or the one that files and environment say (`load_config`).

    What is said here as an argument wins field by field: `options=ModelOptions(seed=1)` leaves the configuration's
    temperature as it is. Whatever differs from its default counts as said.
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
    arguments: dict[str, Any] = {_NAMES.get(name, name): value for name, value in options.items() if name in _MERGED}
    config = load_config(**arguments).config if config is None else change_config(config, arguments)
    merged: ChatOptions = {**config.for_engine(), "tool_config": config.for_tools()}
    if config.system_prompt:
        merged["system"] = config.system_prompt
    if config.response_schema is not None:
        merged["answer"] = answer_type(
            config.response_schema, name=config.schema_name or None, description=config.schema_description
        )
    for name, value in options.items():
        if name not in _MERGED:
            merged[name] = value
    if (limits := options.get("limits")) is not None:
        merged["limits"] = overlay(limits, Limits(steps=config.max_steps))
    return config, merged
