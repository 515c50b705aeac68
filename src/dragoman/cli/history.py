"""`dragoman history`: the conversations that were kept."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import islice

from msgspec import structs

from dragoman.stores import ConversationStore, Snapshot, SnapshotSummary, resume

from .arguments import Parser, UsageError, add_json
from .conversations import (
    find_conversation,
    find_latest,
    format_document,
    list_conversations,
    open_store,
    shorten_id,
    write_document,
)
from .output import print_json, print_table
from .terminal import Terminal


def declare(parser: Parser) -> None:
    """The commands about conversations."""
    parser.default = "list"
    listing = parser.add_command("list", _list, "List conversations, newest first.", "dragoman history list -n 5")
    show = parser.add_command("show", _show, "Show a conversation.", "dragoman history show")
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
    delete.add_argument("ids", nargs="*", metavar="ID", help="their ids, or either ends of them")
    delete.add_argument("--all", action="store_true", help="all conversations")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    with open_store() as store:
        found = islice(list_conversations(store), max(0, arguments.number))
        _print(found, terminal, as_json=arguments.json)
    return 0


def _search(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if not arguments.words:
        raise UsageError("What is to be searched for?", hint="dragoman history search WORDS")
    with open_store() as store:
        found = store.search(" ".join(arguments.words), limit=min(1000, max(1, arguments.number))).items
    _print(found, terminal, as_json=arguments.json)
    return 0


def _print(found: Iterable[SnapshotSummary], terminal: Terminal, *, as_json: bool) -> None:
    items = list(found)
    if as_json:
        print_json(terminal, items)
        return
    if not items:
        terminal.say("There are no conversations.")
        return
    rows: list[tuple[str, ...]] = []
    for each in items:
        when, model = f"{each.created_at.astimezone():%Y-%m-%d %H:%M}", f"{each.provider}:{each.model}"
        rows.append((shorten_id(each.root), when, f"{each.message_count}", model, each.title))
    print_table(terminal, ("id", "when", "messages", "model", "about"), rows)


def _load(store: ConversationStore, part: str | None) -> Snapshot:
    """The conversation as far as it came, also if the program that held it was killed."""
    recovered = resume(store, (find_latest(store) if part is None else find_conversation(store, part)).root)
    return structs.replace(recovered.snapshot, conversation=recovered.conversation)


def _show(arguments: argparse.Namespace, terminal: Terminal) -> int:
    with open_store() as store:
        terminal.answer(format_document(_load(store, arguments.id), "markdown"))
    return 0


def _export(arguments: argparse.Namespace, terminal: Terminal) -> int:
    with open_store() as store:
        snapshot = _load(store, arguments.id)
    if arguments.output is None:
        terminal.answer(format_document(snapshot, arguments.format or "markdown"))
    else:
        terminal.say(f"Written to {write_document(snapshot, arguments.output, arguments.format)}.")
    return 0


def _delete(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if bool(arguments.ids) == arguments.all:
        raise UsageError("Which conversations?", hint="Name them, or say --all.")
    with open_store() as store:
        named = [find_conversation(store, part) for part in arguments.ids]
        found = list(list_conversations(store)) if arguments.all else named
        if not arguments.yes and not _confirm(found, terminal):
            terminal.say("Nothing was deleted.")
            return 1
        for each in found:
            store.delete(each.root)
        if found:
            store.compact()
    terminal.say(f"{len(found)} deleted.")
    return 0


def _confirm(found: list[SnapshotSummary], terminal: Terminal) -> bool:
    if not terminal.in_is_tty:
        raise UsageError("Deleting needs your word, and standard input is no terminal.", hint="Say --yes.")
    for each in found[:10]:
        terminal.say(f"  {each.root}  {each.title}")
    said = terminal.ask(f"Delete {len(found)} for good? [y/N] ")
    return (said or "").strip().lower() in ("y", "yes")
