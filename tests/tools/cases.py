"""Tools and calls that many tests of the executor use."""

from __future__ import annotations

import asyncio

from dragoman.conversation import ToolCall
from dragoman.tools import RetryConfig, tool
from dragoman.tools.arguments.reader import Arguments

NO_WAIT = RetryConfig(backoff_base=0)


@tool
def echo(text: str) -> str:
    return text


@tool
async def aecho(text: str) -> str:
    await asyncio.sleep(0)
    return text


@tool
def boom() -> None:
    raise ValueError("no luck")


@tool
async def aboom() -> None:
    raise ValueError("no luck")


def call(name: str, arguments: str = "", id: str = "1") -> ToolCall:
    return ToolCall(id, name, arguments)


def values_of(arguments: Arguments, text: str) -> tuple[object, ...]:
    """What a call with this JSON gives to the function, in the order of its parameters."""
    positional, keywords = arguments.bind(arguments.decode(text))
    return (*positional, *keywords.values())
