"""Conversations and helpers for the tests of all stores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from msgspec import Raw

from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult, ToolSpec
from dragoman.stores import ConversationStore, Page, Snapshot, SnapshotSummary
from tests.processes import may_fork

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
        Conversation("Be brief.", messages), provider=provider, model=model, title=title, created_at=at
    )


def after(snapshot: Snapshot, *texts: str, at: datetime | None = None) -> Snapshot:
    """The next snapshot, with more messages."""
    longer = snapshot.conversation.plus(*[Message.user(text) for text in texts])
    return snapshot.next(longer, created_at=at or snapshot.created_at + timedelta(minutes=1))


def chain(store: ConversationStore, length: int, *, said: str = "hello") -> list[Snapshot]:
    """Save a conversation of this many snapshots."""
    points = [first(said)]
    store.save(points[0])
    for number in range(1, length):
        points.append(after(points[-1], f"turn {number}"))
        store.save(points[-1])
    return points


def pages(ask: Callable[[str | None], Page]) -> list[SnapshotSummary]:
    """The items of all pages of a list; fails if a cursor never ends."""
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


def goes_on(store: ConversationStore, points: list[Snapshot]) -> None:
    """Check that all snapshots are there, and that the conversation can continue."""
    for point in points:
        assert store.load(point.id) == point
    last = store.latest(points[0].id)
    assert last == points[-1]
    store.save(after(last, "on"), after=store.journal(last.id).position)
    assert len(store.history(last.id).items) == len(points) + 1
    assert not store.list().unreadable


def in_child(work: Callable[[], object]) -> int:
    """Run this in a forked child and return its exit code."""
    with may_fork():
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - shown, and told by the status
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- texts that are no ids -------------------------------------------------------------------------------------------

_GOOD = "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"
HOSTILE_IDS = [
    *("", ".", "..", "/", "\n", _GOOD + "\n", "\n" + _GOOD, _GOOD + " ", _GOOD.upper(), "{" + _GOOD + "}"),
    *("urn:uuid:" + _GOOD, _GOOD.replace("-", ""), _GOOD[:-1], _GOOD + "0", _GOOD + "\x00", "../" + _GOOD),
    *(_GOOD + "/../" + _GOOD, "/etc/passwd", "x" * 100_000, _GOOD.replace("0", "\uff10"), "\ud800", "%", "*"),
    *(_GOOD.replace("c", "\u0441"), _GOOD + ".json", "'; DROP TABLE chain; --", "\x1b[2J", "$(x)"),
]
"""None of these is a canonical UUID in lower case."""
