"""`dragoman history`: the stored conversations, and finding one by a part of its id; `dragoman usage`: their cost.

Lists show the end of an id, because the beginning is a time that neighbours share. Either end can be used to name a
conversation, if it is unique.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from dragoman.conversation import Message, Usage
from dragoman.directories import data_directory
from dragoman.errors import DragomanError, SnapshotError
from dragoman.providers import cost_of, price_table, total_cost
from dragoman.stores import (
    ConversationStore,
    DocumentFormat,
    Snapshot,
    SnapshotSummary,
    SqliteStore,
    format_document,
    is_inner,
    resume,
)

from .arguments import Parser, UsageError, add_json, expand_path
from .output import format_cost, print_json, print_list
from .terminal import Terminal

_SHORTEST: Final = 4
_BAR: Final = 24


def store_path() -> Path:
    return data_directory() / "conversations.db"


def open_store() -> SqliteStore:
    """Open the store; raises a DragomanError if it cannot be used."""
    store = SqliteStore(store_path())
    try:
        store.list(limit=1)
    except DragomanError:
        store.close()
        raise
    return store


def shorten_id(id: str) -> str:
    return id[-8:]


def list_conversations(store: ConversationStore) -> Iterator[SnapshotSummary]:
    """All conversations, newest first, without empty ones and those of agents behind tools."""
    cursor: str | None = None
    while True:
        page = store.list(limit=200, cursor=cursor)
        yield from [item for item in page.items if item.message_count and not is_inner(item.root)]
        if (cursor := page.cursor) is None:
            return


def find_conversation(store: ConversationStore, part: str | None = None) -> SnapshotSummary:
    """The conversation whose id starts or ends with this; by default the latest."""
    if part is None:
        found = next(list_conversations(store), None)
        if found is None:
            raise UsageError("There is no conversation to continue.", hint='Start one: dragoman "question"')
        return found
    wanted = part.strip().lower()
    if len(wanted) < _SHORTEST:
        message = f"{part!r} is too short for the id of a conversation."
        raise UsageError(message, hint=f"Give at least {_SHORTEST} characters; see dragoman history list.")
    fitting = [
        each
        for each in list_conversations(store)
        if wanted == each.id or each.root.startswith(wanted) or each.root.endswith(wanted)
    ]
    if not fitting:
        raise UsageError(f"There is no conversation {part!r}.", hint="See dragoman history list.")
    if len(fitting) > 1:
        shown = ", ".join([each.root for each in fitting[:3]])
        raise UsageError(f"Several conversations have {part!r}: {shown}.", hint="Give more of the id.")
    return fitting[0]


# --- documents --------------------------------------------------------------------------------------------------------


def write_document(snapshot: Snapshot, name: str, format: DocumentFormat | None = None) -> Path:
    """Write the conversation to a file, by default in the format of its suffix."""
    path = expand_path(name)
    wanted = format or ("json" if path.suffix.lower() == ".json" else "markdown")
    try:
        path.write_text(format_document(snapshot, wanted), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error.strerror}.", hint="Name another file.") from None
    return path


# --- the command ---------------------------------------------------------------------------------------------------


def declare_history(parser: Parser) -> None:
    parser.default = "list"
    listing = parser.add_command("list", _list, "List conversations, newest first.", "dragoman history list -n 5")
    show = parser.add_command("show", _export, "Show a conversation.", "dragoman history show")
    show.set_defaults(format=None, output=None)
    about = "List conversations in which words occur."
    search = parser.add_command("search", _search, about, "dragoman history search capital france")
    search.add_argument("words", nargs="*", metavar="WORD", help="all of them must occur in one message")
    for each in (listing, search):
        each.add_argument("-n", "--number", type=int, default=20, metavar="N", help="how many (20)")
        add_json(each)
    examples = ("dragoman history export -o talk.md", "dragoman history export --format json")
    export = parser.add_command("export", _export, "Write a conversation as Markdown or JSON.", *examples)
    for each in (show, export):
        each.add_argument("id", nargs="?", help="its id, or either end of it; by default the latest")
    formats = ("markdown", "json")
    export.add_argument("-f", "--format", choices=formats, help="by default as the file's name says")
    export.add_argument("-o", "--output", metavar="FILE", help="by default standard output")
    about = "Delete conversations for good."
    delete = parser.add_command("delete", _delete, about, "dragoman history delete 1f2e3d4c --yes")
    delete.add_argument("ids", nargs="*", metavar="ID", help="its id, or either end of it")
    delete.add_argument("--all", action="store_true", help="all conversations")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> None:
    with open_store() as store:
        _print(islice(list_conversations(store), max(0, arguments.number)), arguments, terminal)


def _search(arguments: argparse.Namespace, terminal: Terminal) -> None:
    if not arguments.words:
        raise UsageError("There is nothing to search for.", hint="dragoman history search WORDS")
    with open_store() as store:
        found = store.search(" ".join(arguments.words), limit=min(1000, max(1, arguments.number))).items
        _print([each for each in found if not is_inner(each.root)], arguments, terminal)


def _print(found: Iterable[SnapshotSummary], arguments: argparse.Namespace, terminal: Terminal) -> None:
    print_list(terminal, list(found), _summarise, as_json=arguments.json, otherwise="There are no conversations.")


def _summarise(each: SnapshotSummary) -> dict[str, object]:
    return {
        "id": shorten_id(each.root),
        "when": f"{each.created_at.astimezone():%Y-%m-%d %H:%M}",
        "messages": each.message_count,
        "cost": format_cost(each.cost),
        "model": f"{each.provider}:{each.model}",
        "about": each.title,
    }


def _load(store: ConversationStore, part: str | None) -> Snapshot:
    """The conversation, complete even if its program was killed."""
    recovered = resume(store, find_conversation(store, part).root)
    return structs.replace(recovered.snapshot, conversation=recovered.conversation)


def _export(arguments: argparse.Namespace, terminal: Terminal) -> None:
    with open_store() as store:
        snapshot = _load(store, arguments.id)
    if arguments.output is None:
        terminal.answer(format_document(snapshot, arguments.format or "markdown"))
    else:
        terminal.say(f"Written to {write_document(snapshot, arguments.output, arguments.format)}.")


def _delete(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if bool(arguments.ids) == arguments.all:
        raise UsageError("Which conversations?", hint="Name them, or use --all.")
    if not arguments.yes and not terminal.in_is_tty:
        raise UsageError("Deleting needs your confirmation, and standard input is not a terminal.", hint="Use --yes.")
    with open_store() as store:
        found = [find_conversation(store, part) for part in arguments.ids] or list(list_conversations(store))
        if not arguments.yes:
            for each in found[:10]:
                terminal.say(f"  {each.root}  {each.title}")
            answer = terminal.ask(f"Delete {len(found)} for good? [y/N] ") or ""
            if answer.strip().lower() not in ("y", "yes"):
                terminal.say("Nothing was deleted.")
                return 1
        for each in found:
            store.delete(each.root)
        if found:
            store.compact()
    terminal.say(f"{len(found)} deleted.")
    return 0


# --- usage ------------------------------------------------------------------------------------------------------------


class Counted(Struct, frozen=True):
    """A reply and its conversation."""

    message: Message
    conversation: SnapshotSummary

    @property
    def when(self) -> datetime:
        """In the time zone of this machine."""
        return (self.message.time or self.conversation.created_at).astimezone()


class Row(Struct, frozen=True):
    """The tokens and the cost of a group of replies."""

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
    parser.describe(_usage, "Show the tokens and cost of your conversations, by day, model or conversation.", *examples)
    parser.add_argument("--by", choices=tuple(_GROUPS), default="day", help="how to group (day)")
    parser.add_argument("--since", metavar="DAY", help="only replies from this date on, such as 2026-11-01")
    add_json(parser)


def _usage(arguments: argparse.Namespace, terminal: Terminal) -> None:
    since = None if arguments.since is None else _parse_day(arguments.since)
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
        total = structs.replace(total, cost=None)
    if arguments.json:
        prices = {"source": table.source, "date": table.date}
        named = [_describe_row(row, arguments.by) for row in rows]
        parts = {"rows": named, "total": _describe_row(total), "left_out": left_out, "prices": prices}
        return print_json(terminal, {"by": arguments.by, **parts})
    largest = max([_length(row, total) for row in rows], default=0.0)
    print_list(
        terminal,
        [*rows, total] if rows else [],
        lambda row: _show_row(row, arguments.by, "" if row is total else _bar(_length(row, total), largest)),
        as_json=False,
        otherwise="There are no replies.",
    )
    known = [cost for each in found if (cost := cost_of(each.message)) is not None]
    if rows and total.cost is None:
        terminal.note(f"The cost is known for {len(known)} of {len(found)} replies: {format_cost(sum(known))}.")
    return terminal.note(f"Prices: {table.source}, {table.date}; without batches, service tiers and fees for tools.")


def _parse_day(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d").astimezone()
    except ValueError:
        raise UsageError(f"{text!r} is not a date.", hint="Write it like 2026-11-01.") from None


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
    """The messages, and one with the usage of each agent behind a tool."""
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


def _describe_row(row: Row, by: str | None = None) -> dict[str, object]:
    named = {} if by is None else {by: row.name}
    return {**named, "replies": row.replies, "usage": msgspec.to_builtins(row.usage), "cost": row.cost}


def _show_row(row: Row, by: str, bar: str) -> dict[str, object]:
    at_least = "≥ " if row.usage.partial else ""
    counts = {"in": row.usage.input, "cached": row.usage.cache_read, "out": row.usage.output}
    shown = {name: f"{at_least}{count or 0:,}" for name, count in counts.items()}
    return {by: row.name[: _BAR * 2], "replies": row.replies, **shown, "cost": format_cost(row.cost), "": bar}


def _length(row: Row, total: Row) -> float:
    """What the bar shows: the cost, or the tokens if a cost is not known."""
    return float(row.usage.tokens or 0) if total.cost is None else row.cost or 0.0


def _bar(length: float, largest: float) -> str:
    eighths = round(8 * _BAR * length / largest) if largest else 0
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
