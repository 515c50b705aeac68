"""Conversations and stores for the suite that every store must pass."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from msgspec import Raw

from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult, ToolSpec
from dragoman.stores import ConversationStore, Page, Snapshot, SnapshotSummary

Opener: TypeAlias = Callable[[], ConversationStore]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOOL = ToolSpec(name="weather", description="The weather.", parameters=Raw(b'{"type": "object",  "properties": {}}'))
CALL = ToolCall("call_1", "weather", '{"city": "Lyon"}')
RESULT = ToolResult("call_1", "weather", (Text("21 degrees"),))


def first(
    *texts: str, provider: str = "openai", model: str = "gpt-5", at: datetime = NOON, title: str | None = None
) -> Snapshot:
    messages = tuple([Message.user(text) for text in texts])
    return Snapshot.first(
        Conversation("Be brief.", messages), provider=provider, model=model, title=title, clock=lambda: at
    )


def after(snapshot: Snapshot, *texts: str, at: datetime | None = None) -> Snapshot:
    """The next snapshot, with more said."""
    longer = snapshot.conversation.plus(*[Message.user(text) for text in texts])
    return snapshot.next(longer, clock=lambda: at or snapshot.created_at + timedelta(minutes=1))


def chain(store: ConversationStore, length: int, *, said: str = "hello") -> list[Snapshot]:
    """A conversation of so many snapshots, saved."""
    points = [first(said)]
    store.save(points[0])
    for number in range(1, length):
        points.append(after(points[-1], f"turn {number}"))
        store.save(points[-1])
    return points


def pages(ask: Callable[[str | None], Page]) -> list[SnapshotSummary]:
    """All pages of a list; bounded, since a cursor that leads nowhere would go on for ever."""
    items: list[SnapshotSummary] = []
    cursor: str | None = None
    for _ in range(10_000):
        page = ask(cursor)
        assert not page.unreadable
        items += page.items
        cursor = page.cursor
        if cursor is None:
            return items
    raise AssertionError("the cursor leads nowhere")
