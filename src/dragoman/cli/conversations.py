"""The conversations that the command keeps: where they are, and finding one by a part of its id, and one as a document.

Lists show the end of an id, because the beginning is a time that neighbours share. Either end will do where it names
one conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dragoman.conversation import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.directories import data_directory
from dragoman.errors import DragomanError
from dragoman.stores import ConversationStore, Snapshot, SnapshotSummary, SqliteStore, snapshot_to_json

from .arguments import UsageError, expand_path

Format: TypeAlias = Literal["markdown", "json"]


_SHORTEST: Final = 4
_SHORT: Final = 8
_PAGE: Final = 200
_UUID: Final = 36


def store_path() -> Path:
    """The file that holds them."""
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
    """How lists show an id."""
    return id[-_SHORT:]


def list_conversations(store: ConversationStore) -> Iterator[SnapshotSummary]:
    """All of them, newest first; those in which nothing was said are left out."""
    cursor: str | None = None
    while True:
        page = store.list(limit=_PAGE, cursor=cursor)
        yield from [item for item in page.items if item.message_count]
        if page.cursor is None:
            return
        cursor = page.cursor


def find_latest(store: ConversationStore) -> SnapshotSummary:
    """The one that something was said in last."""
    found = next(list_conversations(store), None)
    if found is None:
        raise UsageError("There is no conversation to continue.", hint='Begin one: dragoman "question"')
    return found


def find_conversation(store: ConversationStore, part: str) -> SnapshotSummary:
    """The conversation whose id is this, or begins or ends so."""
    wanted = part.strip().lower()
    if len(wanted) < _SHORTEST:
        message = f"{part!r} is too short for the id of a conversation."
        raise UsageError(message, hint=f"Give at least {_SHORTEST} characters; see dragoman history list.")
    found: list[SnapshotSummary] = []
    for each in list_conversations(store):
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


# --- documents --------------------------------------------------------------------------------------------------------

_WHO: Final = {"user": "You", "assistant": "Model", "tool": "Tools"}


def format_document(snapshot: Snapshot, format: Format) -> str:
    """The conversation as Markdown, which stands as it was said, or as the stored JSON."""
    return _format_markdown(snapshot) if format == "markdown" else snapshot_to_json(snapshot).decode() + "\n"


def write_document(snapshot: Snapshot, name: str, format: Format | None = None) -> Path:
    """Write the conversation to a file, in the format that its name asks for."""
    path = expand_path(name)
    wanted = format or ("json" if path.suffix.lower() == ".json" else "markdown")
    try:
        path.write_text(format_document(snapshot, wanted), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error.strerror}.", hint="Name another file.") from None
    return path


def _format_markdown(snapshot: Snapshot) -> str:
    head = [
        f"# {' '.join(snapshot.title.split()) or 'Conversation'}",
        f"{snapshot.provider}:{snapshot.model} · {snapshot.created_at:%Y-%m-%d %H:%M} UTC · {snapshot.root}",
    ]
    if snapshot.system_prompt:
        head += ["## System", snapshot.system_prompt]
    parts = [part for message in snapshot.messages for part in _format_message(message)]
    return "\n\n".join([*head, *parts]) + "\n"


def _format_message(message: Message) -> list[str]:
    parts = [f"## {_WHO[message.role]}"]
    for block in message.blocks:
        match block:
            case Text():
                parts.append(block.text)
            case Thinking():
                if block.text:
                    parts.append(f"<details><summary>Thinking</summary>\n\n{_fence(block.text)}\n\n</details>")
            case ToolCall():
                parts += [f"**{block.name}** is called:", _fence(block.arguments or "{}", "json")]
            case ToolResult():
                verb = "failed" if block.is_error else "gave"
                parts += [f"**{block.name}** {verb}:", _fence(block.text)]
            case Media():
                parts.append(_format_media(block))
            case Opaque():
                parts.append(f"*(something that only {block.provider} understands)*")
    if message.interrupted:
        parts.append("*(interrupted)*")
    return parts


def _format_media(media: Media) -> str:
    where = media.name or media.url or media.path or f"{len(media.data or b''):,} bytes"
    return f"*({media.kind}: {where})*"


def _fence(text: str, language: str = "") -> str:
    """A code block around a text that may hold fences of its own."""
    longest = max([len(run) for run in re.findall(r"`+", text)], default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
