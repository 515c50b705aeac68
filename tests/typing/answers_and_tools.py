"""What type checkers must see in users' code. Read by checkers, never run; `assert_type` states what they infer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic

from dragoman import AsyncChatClient, ChatClient, Message, RunContext, RunResult, Tool, tool
from dragoman.chat import AnswerType, AsyncTypedStream, TypedResult, TypedStream, answer_type
from dragoman.stores import Snapshot


@dataclass
class Invoice:
    total: float


class Row(TypedDict):
    name: str


class Point(msgspec.Struct):
    x: int


class Person(pydantic.BaseModel):
    name: str


@tool
def weather(city: str, days: int = 1) -> str:
    """What the weather is like."""
    return city * days


@tool(requires_approval=True, timeout=3)
async def delete(path: str) -> bool:
    """Delete a file."""
    return bool(path)


assert_type(weather("Lyon", days=2), str)
weather(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
weather("Lyon", day=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def is_paid(invoice: Invoice) -> Invoice:
    return invoice


async def is_ours(run: RunContext[set[float]], invoice: Invoice) -> Invoice | None:
    return invoice if invoice.total in run.deps else None


def plain(client: ChatClient, snapshot: Snapshot) -> None:
    assert_type(client.ask("?", Invoice), Invoice)
    assert_type(client.ask("?", Row), Row)
    assert_type(client.ask("?", Point), Point)
    assert_type(client.ask("?", Person), Person)
    assert_type(client.ask("?", int), int)
    assert_type(client.ask("?", list[Invoice]), list[Invoice])
    assert_type(client.ask("?", {"type": "object"}), Any)
    assert_type(client.chat("Hello"), RunResult)
    assert_type(client.stream_chat("Hello", print), RunResult)
    assert_type(client.chat("Hello", answer=Invoice), TypedResult[Invoice])
    assert_type(client.chat("Hello", answer=list[Invoice]).answer, list[Invoice])
    assert_type(client.chat(answer=Invoice | Point).answer, Any)
    assert_type(client.stream_chat("Hello", print, answer=Invoice).answer, Invoice)
    assert_type(client.stream_chat("Hello", answer=Row), TypedStream[Row])
    assert_type(answer_type(Invoice, check=is_paid), AnswerType[Invoice])
    assert_type(client.chat("Hello", answer=answer_type(Invoice, check=[is_paid, is_ours])).answer, Invoice)
    assert_type(client.history, tuple[Message, ...])
    client.restore(snapshot)
    repr(client.ask("?", Invoice).totle)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


async def on_a_loop(client: AsyncChatClient) -> None:
    assert_type(await client.ask("?", Invoice), Invoice)
    assert_type(await client.ask("?", list[int]), list[int])
    assert_type(await client.chat("Hello"), RunResult)
    assert_type(await client.stream_chat("Hello", print), RunResult)
    assert_type((await client.chat("Hello", answer=Invoice)).answer, Invoice)
    assert_type((await client.stream_chat("Hello", print, answer=Invoice)).answer, Invoice)
    assert_type(client.stream_chat("Hello", answer=Invoice), AsyncTypedStream[Invoice])
    assert_type(await delete("x"), bool)
    async with client.stream_chat("Hello") as stream:
        async for _ in stream:
            pass
    assert_type(stream.result, RunResult)


def tools() -> list[Tool[..., Any]]:
    return [weather, delete]


def remind(run: RunContext[Invoice]) -> str | None:
    assert_type(run.deps, Invoice)
    return f"{run.deps.total} {run.model}" if run.conversation.messages else None


async def offer(run: RunContext[Invoice]) -> list[Tool[..., Any]]:
    return tools() if run.deps.total else []


def wrong(run: RunContext[Invoice]) -> int:
    return len(run.model)


def of_the_moment() -> None:
    client = ChatClient("m", offer, system=["Be brief.", remind], deps=Invoice(3.0))
    client.system = remind
    client.set_tools(lambda run: [weather] if run.model else [])
    ChatClient("m", system=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ChatClient("m", wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
