"""The conversations that the command keeps.

Owns: where they are kept, finding one by a part of its id, and changing one that was kept.
Must not know: who talks in them.

Lists show the end of an id, because the beginning is a time that neighbours share. Either end will do where it names
one conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from dragoman.chat.client import ChatClient
from dragoman.conversation import Conversation
from dragoman.directories import data_directory
from dragoman.errors import ConfigurationError, DragomanError
from dragoman.stores.protocol import ConversationStore
from dragoman.stores.sqlite import SqliteStore
from dragoman.stores.summary import SnapshotSummary

from .arguments import UsageError

__all__ = ["all_conversations", "find", "latest", "open_store", "rewrite", "short_id", "store_path"]

_FILE: Final = "conversations.db"
_SHORTEST: Final = 4
_SHORT: Final = 8
_PAGE: Final = 200
_UUID: Final = 36


def store_path(environ: Mapping[str, str] | None = None) -> Path:
    """The file that holds them."""
    return data_directory(environ) / _FILE


def open_store(environ: Mapping[str, str] | None = None) -> SqliteStore:
    """The store; raises a DragomanError if it cannot be used."""
    store = SqliteStore(store_path(environ))
    try:
        store.list(limit=1)
    except DragomanError:
        store.close()
        raise
    return store


def short_id(id: str) -> str:
    """How lists show an id."""
    return id[-_SHORT:]


def all_conversations(store: ConversationStore) -> Iterator[SnapshotSummary]:
    """All of them, newest first; those in which nothing was said are left out."""
    cursor: str | None = None
    while True:
        page = store.list(limit=_PAGE, cursor=cursor)
        yield from [item for item in page.items if item.message_count]
        if page.cursor is None:
            return
        cursor = page.cursor


def latest(store: ConversationStore) -> SnapshotSummary:
    """The one that something was said in last."""
    found = next(all_conversations(store), None)
    if found is None:
        raise UsageError("There is no conversation to continue.", hint='Begin one: dragoman "question"')
    return found


def find(store: ConversationStore, part: str) -> SnapshotSummary:
    """The conversation whose id is this, or begins or ends so."""
    wanted = part.strip().lower()
    if len(wanted) < _SHORTEST:
        message = f"{part!r} is too short for the id of a conversation."
        raise UsageError(message, hint=f"Give at least {_SHORTEST} characters; see dragoman history list.")
    found: list[SnapshotSummary] = []
    for each in all_conversations(store):
        if wanted in (each.root, each.id):
            return each
        if len(wanted) < _UUID and (each.root.startswith(wanted) or each.root.endswith(wanted)):
            found.append(each)
    if not found:
        raise UsageError(f"There is no conversation {part!r}.", hint="See dragoman history list.")
    if len(found) > 1:
        shown = ", ".join([each.root for each in found[:3]])
        raise UsageError(f"Several conversations have {part!r}: {shown}.", hint="Give more of the id.")
    return found[0]


def rewrite(
    client: ChatClient, store: ConversationStore | None, change: Callable[[Conversation], Conversation]
) -> None:
    """Change what was said, such as the system prompt or the last turn; what was before stays in the chain."""
    if client.uncertain:
        message = "A tool call was under way when the program was stopped, and waits for your answer."
        raise ConfigurationError(message, hint="Continue first, and answer; then change the conversation.")
    snapshot = client.save()
    changed = change(snapshot.conversation)
    if changed == snapshot.conversation:
        return
    following = snapshot.next(changed)
    if store is not None:
        store.save(following)
    client.restore(following)
