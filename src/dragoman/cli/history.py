"""The conversations that the command keeps: where they are, finding one by a part of its id, one as a document; and
`dragoman history`, which shows them.

Lists show the end of an id, because the beginning is a time that neighbours share. Either end will do where it names
one conversation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import structs

from dragoman.directories import data_directory
from dragoman.errors import DragomanError
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
from .output import format_cost, print_list
from .terminal import Terminal

_SHORTEST: Final = 4


def store_path() -> Path:
    return data_directory() / "conversations.db"


def open_store() -> SqliteStore:
    """The store; raises a DragomanError if it cannot be used."""
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
    """All of them, newest first; those in which nothing was said are left out, and turns of agents under way."""
    cursor: str | None = None
    while True:
        page = store.list(limit=200, cursor=cursor)
        yield from [item for item in page.items if item.message_count and not is_inner(item.root)]
        if (cursor := page.cursor) is None:
            return


def find_conversation(store: ConversationStore, part: str | None = None) -> SnapshotSummary:
    """The conversation whose id is this, or begins or ends so; by default the one in which something was said last."""
    if part is None:
        found = next(list_conversations(store), None)
        if found is None:
            raise UsageError("There is no conversation to continue.", hint='Begin one: dragoman "question"')
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
    """Write the conversation to a file, in the format that its name asks for."""
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
    delete.add_argument("ids", nargs="*", metavar="ID", help="their ids, or either ends of them")
    delete.add_argument("--all", action="store_true", help="all conversations")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> None:
    with open_store() as store:
        _print(islice(list_conversations(store), max(0, arguments.number)), arguments, terminal)


def _search(arguments: argparse.Namespace, terminal: Terminal) -> None:
    if not arguments.words:
        raise UsageError("What is to be searched for?", hint="dragoman history search WORDS")
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
    """The conversation as far as it came, also if the program that held it was killed."""
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
        raise UsageError("Which conversations?", hint="Name them, or say --all.")
    if not arguments.yes and not terminal.in_is_tty:
        raise UsageError("Deleting needs your word, and standard input is no terminal.", hint="Say --yes.")
    with open_store() as store:
        found = [find_conversation(store, part) for part in arguments.ids] or list(list_conversations(store))
        if not arguments.yes:
            for each in found[:10]:
                terminal.say(f"  {each.root}  {each.title}")
            said = terminal.ask(f"Delete {len(found)} for good? [y/N] ") or ""
            if said.strip().lower() not in ("y", "yes"):
                terminal.say("Nothing was deleted.")
                return 1
        for each in found:
            store.delete(each.root)
        if found:
            store.compact()
    terminal.say(f"{len(found)} deleted.")
    return 0
