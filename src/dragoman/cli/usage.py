"""`dragoman usage`: what the conversations that are kept took and cost, by day, model or conversation.

A reply that several conversations share, since one was forked from the other, counts once. What is not known is called
unknown, and so is every sum that it is a part of.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.conversation import Message, Usage
from dragoman.errors import SnapshotError
from dragoman.providers import cost_of, price_table, total_cost
from dragoman.stores import ConversationStore, SnapshotSummary, resume

from .arguments import Parser, UsageError, add_json
from .history import list_conversations, open_store, shorten_id
from .output import format_cost, print_json, print_list
from .terminal import Terminal

_BAR: Final = 24


class Counted(Struct, frozen=True):
    """A reply, and the conversation that it stands in."""

    message: Message
    conversation: SnapshotSummary

    @property
    def when(self) -> datetime:
        """In the time zone of this machine."""
        return (self.message.time or self.conversation.created_at).astimezone()


class Row(Struct, frozen=True):
    """What some replies took and cost together."""

    name: str
    replies: int
    usage: Usage
    cost: float | None


_GROUPS: Final[dict[str, Callable[[Counted], str]]] = {
    "day": lambda each: f"{each.when:%Y-%m-%d}",
    "model": lambda each: f"{each.message.provider or 'unknown'}:{each.message.model or 'unknown'}",
    "conversation": lambda each: f"{shorten_id(each.conversation.root)} {each.conversation.title}".rstrip(),
}


def declare_usage(parser: Parser) -> None:
    examples = ("dragoman usage", "dragoman usage --by model --since 2026-11-01", "dragoman usage --json")
    parser.describe(_usage, "Show what conversations took and cost, by day, model or conversation.", *examples)
    parser.add_argument("--by", choices=tuple(_GROUPS), default="day", help="what is added up (day)")
    parser.add_argument("--since", metavar="DAY", help="only replies of this day and later, such as 2026-11-01")
    add_json(parser)


def _usage(arguments: argparse.Namespace, terminal: Terminal) -> None:
    since = _read_day(arguments.since)
    with open_store() as store:
        replies, left_out = _list_replies(store, terminal)
    found = [each for each in replies if since is None or each.when >= since]
    groups: dict[str, list[Counted]] = {}
    for each in found:
        groups.setdefault(_GROUPS[arguments.by](each), []).append(each)
    rows = [_add_up(name, members) for name, members in groups.items()]
    rows.sort(key=lambda row: row.name if arguments.by == "day" else (-(row.cost or 0.0), -(row.usage.tokens or 0)))
    total, table = _add_up("total", found), price_table()
    if left_out:
        total = msgspec.structs.replace(total, cost=None)
    if arguments.json:
        prices = {"source": table.source, "date": table.date}
        named = [_describe(row, arguments.by) for row in rows]
        said = {"by": arguments.by, "rows": named, "total": _describe(total), "left_out": left_out, "prices": prices}
        print_json(terminal, said)
        return
    largest = max([_length(row, total) for row in rows], default=0.0)
    print_list(
        terminal,
        [*rows, total] if rows else [],
        lambda row: _show(row, arguments.by, "" if row is total else _bar(_length(row, total), largest)),
        as_json=False,
        otherwise="There are no replies.",
    )
    known = [cost for each in found if (cost := cost_of(each.message)) is not None]
    if rows and total.cost is None:
        terminal.note(f"Known is the cost of {len(known)} of {len(found)} replies: {format_cost(sum(known))}.")
    terminal.note(f"Prices: {table.source}, {table.date}; batches, other service tiers and fees for tools left out.")


def _read_day(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").astimezone()
    except ValueError:
        raise UsageError(f"{text!r} is no day.", hint="Write it as in 2026-11-01.") from None


def _list_replies(store: ConversationStore, terminal: Terminal) -> tuple[list[Counted], int]:
    """All replies, and how many conversations could not be read."""
    found, left_out, seen = list[Counted](), 0, set[tuple[object, ...]]()
    for summary in list_conversations(store):
        try:
            messages = resume(store, summary.root).conversation.messages
        except SnapshotError as error:
            terminal.note(f"dragoman: conversation {summary.root} is left out: {error}", "yellow")
            left_out += 1
            continue
        for message in _with_agents(messages):
            which = (message.provider, message.id, message.time)
            if message.role != "assistant" or not (message.provider or message.usage) or which in seen:
                continue
            if message.id is not None or message.time is not None:
                seen.add(which)
            found.append(Counted(message, summary))
    return found, left_out


def _with_agents(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages, and for each call of an agent one that has what it used."""
    for message in messages:
        yield message
        for result in message.tool_results:
            if result.usage is not None:
                yield Message(
                    role="assistant",
                    provider="agent",
                    model=result.name,
                    id=result.call_id,
                    usage=result.usage,
                    time=result.began,
                )


def _add_up(name: str, replies: list[Counted]) -> Row:
    usage = Usage.total_of([each.message.usage for each in replies])
    return Row(name, len(replies), usage, total_cost([cost_of(each.message) for each in replies]))


def _describe(row: Row, by: str | None = None) -> dict[str, object]:
    named = {} if by is None else {by: row.name}
    return {**named, "replies": row.replies, "usage": msgspec.to_builtins(row.usage), "cost": row.cost}


def _show(row: Row, by: str, bar: str) -> dict[str, object]:
    at_least = "≥ " if row.usage.partial else ""
    counts = {"in": row.usage.input, "cached": row.usage.cache_read, "out": row.usage.output}
    shown = {name: f"{at_least}{count or 0:,}" for name, count in counts.items()}
    return {by: row.name[: _BAR * 2], "replies": row.replies, **shown, "cost": format_cost(row.cost), "": bar}


def _length(row: Row, total: Row) -> float:
    """What the picture shows: costs; or tokens, where a cost is not known."""
    return float(row.usage.tokens or 0) if total.cost is None else row.cost or 0.0


def _bar(length: float, largest: float) -> str:
    eighths = round(8 * _BAR * length / largest) if largest else 0
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
