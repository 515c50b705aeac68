"""A conversation as Markdown.

Owns: the form of the document.
Must not know: where it goes.

What was said stands as it is, since most of it is Markdown; what tools got and gave stands in code blocks whose fences
no content can close.
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.conversation import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.stores.snapshot import Snapshot

__all__ = ["media_line", "to_markdown"]

_WHO: Final = {"user": "You", "assistant": "Model", "tool": "Tools"}


def to_markdown(snapshot: Snapshot) -> str:
    """The whole conversation."""
    head = [
        f"# {' '.join(snapshot.title.split()) or 'Conversation'}",
        f"{snapshot.provider}:{snapshot.model} · {snapshot.created_at:%Y-%m-%d %H:%M} UTC · {snapshot.root}",
    ]
    if snapshot.system_prompt:
        head += ["## System", snapshot.system_prompt]
    parts = [part for message in snapshot.messages for part in _message(message)]
    return "\n\n".join([*head, *parts]) + "\n"


def _message(message: Message) -> list[str]:
    parts = [f"## {_WHO[message.role]}"]
    for block in message.blocks:
        match block:
            case Text():
                parts.append(block.text)
            case Thinking():
                if block.text:
                    parts.append(f"<details><summary>Thinking</summary>\n\n{fenced(block.text)}\n\n</details>")
            case ToolCall():
                parts += [f"**{block.name}** is called:", fenced(block.arguments or "{}", "json")]
            case ToolResult():
                verb = "failed" if block.is_error else "gave"
                parts += [f"**{block.name}** {verb}:", fenced(block.text)]
            case Media():
                parts.append(media_line(block))
            case Opaque():
                parts.append(f"*(something that only {block.provider} understands)*")
    if message.interrupted:
        parts.append("*(interrupted)*")
    return parts


def media_line(media: Media) -> str:
    """What a document says of a picture, recording or film."""
    where = media.name or media.url or media.path or f"{len(media.data or b''):,} bytes"
    return f"*({media.kind}: {where})*"


def fenced(text: str, language: str = "") -> str:
    """A code block around a text that may hold fences of its own."""
    longest = max([len(run) for run in re.findall(r"`+", text)], default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
