"""`dragoman history`: the conversations that were kept."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser, UsageError
from dragoman.cli.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.cli.terminal import Terminal
    from dragoman.stores.protocol import ConversationStore
    from dragoman.stores.snapshot import Snapshot
    from dragoman.stores.summary import SnapshotSummary

__all__ = ["GROUP"]


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-n", "--number", type=int, default=20, metavar="N", help="how many (20)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.conversations import all_conversations, open_store

    with open_store() as store:
        _print(islice(all_conversations(store), max(0, arguments.number)), terminal, as_json=arguments.json)
    return 0


def _search_arguments(parser: Parser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="all of them must occur in one message")
    _list_arguments(parser)


def _search(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.conversations import open_store

    if not arguments.words:
        raise UsageError("What is to be searched for?", hint="dragoman history search WORDS")
    with open_store() as store:
        found = store.search(" ".join(arguments.words), limit=min(1000, max(1, arguments.number))).items
    _print(found, terminal, as_json=arguments.json)
    return 0


def _print(found: Iterable[SnapshotSummary], terminal: Terminal, *, as_json: bool) -> None:
    from dragoman.cli.conversations import short_id
    from dragoman.cli.tables import print_json, print_table

    items = list(found)
    if as_json:
        print_json(terminal, items)
        return
    if not items:
        terminal.say("There are no conversations.")
        return
    rows = [
        (
            short_id(each.root),
            f"{each.created_at.astimezone():%Y-%m-%d %H:%M}",
            f"{each.message_count}",
            f"{each.provider}:{each.model}",
            each.title,
        )
        for each in items
    ]
    print_table(terminal, ("id", "when", "messages", "model", "about"), rows)


def _newest(store: ConversationStore, part: str | None) -> Snapshot:
    """The conversation as far as it came, also if the program that held it was killed."""
    from msgspec import structs

    from dragoman.cli.conversations import find, latest
    from dragoman.stores.journal import resume

    recovered = resume(store, (latest(store) if part is None else find(store, part)).root)
    return structs.replace(recovered.snapshot, conversation=recovered.conversation)


def _show_arguments(parser: Parser) -> None:
    parser.add_argument("id", nargs="?", help="its id, or either end of it; by default the latest")


def _show(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.conversations import open_store
    from dragoman.cli.export import export

    with open_store() as store:
        terminal.answer(export(_newest(store, arguments.id), "markdown"))
    return 0


def _export_arguments(parser: Parser) -> None:
    parser.add_argument("id", nargs="?", help="its id, or either end of it; by default the latest")
    parser.add_argument(
        "-f", "--format", choices=("markdown", "json", "html"), help="by default as the file's name says"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="by default standard output")


def _export(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.conversations import open_store
    from dragoman.cli.export import export, format_of

    path = None if arguments.output is None else user_path(arguments.output)
    wanted = arguments.format or ("markdown" if path is None else format_of(path))
    with open_store() as store:
        text = export(_newest(store, arguments.id), wanted)
    if path is None:
        terminal.answer(text)
        return 0
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", hint="Name another file.") from None
    terminal.say(f"Written to {path}.")
    return 0


def _delete_arguments(parser: Parser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="their ids, or either ends of them")
    parser.add_argument("--all", action="store_true", help="all conversations")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _delete(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.conversations import all_conversations, find, open_store

    if bool(arguments.ids) == arguments.all:
        raise UsageError("Which conversations?", hint="Name them, or say --all.")
    with open_store() as store:
        found = list(all_conversations(store)) if arguments.all else [find(store, part) for part in arguments.ids]
        if not arguments.yes and not _agreed(found, terminal):
            terminal.say("Nothing was deleted.")
            return 1
        for each in found:
            store.delete(each.root)
        if found:
            store.compact()
    terminal.say(f"{len(found)} deleted.")
    return 0


def _agreed(found: list[SnapshotSummary], terminal: Terminal) -> bool:
    if not terminal.in_is_tty:
        raise UsageError("Deleting needs your word, and standard input is no terminal.", hint="Say --yes.")
    for each in found[:10]:
        terminal.say(f"  {each.root}  {each.title}")
    said = terminal.ask(f"Delete {len(found)} for good? [y/N] ")
    return (said or "").strip().lower() in ("y", "yes")


GROUP: Final = Group(
    "history",
    {
        "list": Command("List conversations, newest first.", _list, _list_arguments, ("dragoman history list -n 5",)),
        "show": Command("Show a conversation.", _show, _show_arguments, ("dragoman history show",)),
        "search": Command(
            "List conversations in which words occur.",
            _search,
            _search_arguments,
            ("dragoman history search capital france",),
        ),
        "export": Command(
            "Write a conversation as Markdown, JSON or HTML.",
            _export,
            _export_arguments,
            ("dragoman history export -o talk.html", "dragoman history export --format json"),
        ),
        "delete": Command(
            "Delete conversations for good.", _delete, _delete_arguments, ("dragoman history delete 1f2e3d4c --yes",)
        ),
    },
    default="list",
)
