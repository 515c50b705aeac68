"""Chat clients from a configuration.

Owns: from a Config to a client, in both colours.
Must not know: where a configuration comes from.
"""

from __future__ import annotations

from typing import Unpack

from dragoman.stores import AsyncConversationStore, ConversationStore
from dragoman.tools import AnyTools

from .answers import answer_type
from .async_client import AsyncChatClient
from .client import ChatClient
from .config import Config, load_config
from .options import ChatOptions


def new(
    config: Config | None = None,
    tools: AnyTools = (),
    *,
    store: ConversationStore | None = None,
    **options: Unpack[ChatOptions],
) -> ChatClient:
    """A client as the configuration says: the given one, or the one that files and environment say (`load_config`).

    What is said here as an argument wins.
    """
    config = load_config().config if config is None else config
    merged: ChatOptions = {**_read_options(config), **options}
    return ChatClient(config.model_name, tools, store=store, transport=config.transport, **merged)


def new_async(
    config: Config | None = None,
    tools: AnyTools = (),
    *,
    store: AsyncConversationStore | None = None,
    **options: Unpack[ChatOptions],
) -> AsyncChatClient:
    """`new` for a program on an event loop."""
    config = load_config().config if config is None else config
    merged: ChatOptions = {**_read_options(config), **options}
    return AsyncChatClient(config.model_name, tools, store=store, transport=config.async_transport, **merged)


def _read_options(config: Config) -> ChatOptions:
    said: ChatOptions = {**config.for_engine(), "tool_config": config.for_tools()}
    if config.system_prompt:
        said["system"] = config.system_prompt
    if config.response_schema is not None:
        said["answer"] = answer_type(
            config.response_schema, name=config.schema_name or None, description=config.schema_description
        )
    return said
