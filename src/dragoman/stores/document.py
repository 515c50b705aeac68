"""A conversation as a document: Markdown for people, or the stored JSON."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from dragoman.conversation import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, sources_of

from .snapshot import Snapshot, snapshot_to_json

DocumentFormat: TypeAlias = Literal["markdown", "json"]

_WHO: Final = {"user": "You", "assistant": "Model", "tool": "Tools"}


def format_document(snapshot: Snapshot, format: DocumentFormat) -> str:
    """The conversation as Markdown, with the texts unchanged, or as the stored JSON."""
    if format == "json":
        return snapshot_to_json(snapshot).decode() + "\n"
    parts = [
        f"# {' '.join(snapshot.title.split()) or 'Conversation'}",
        f"{snapshot.provider}:{snapshot.model} · {snapshot.created_at:%Y-%m-%d %H:%M} UTC · {snapshot.root}",
    ]
    if snapshot.system_prompt:
        parts += ["## System", snapshot.system_prompt]
    for message in snapshot.messages:
        parts += _format_message(message)
    return "\n\n".join(parts) + "\n"


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
                parts += [f"**{_escape(block.name)}** is called:", _fence(block.arguments or "{}", "json")]
            case ToolResult():
                verb = "failed" if block.is_error else "gave"
                parts += [f"**{_escape(block.name)}** {verb}:", _fence(block.text)]
            case Media():
                where = block.name or block.url or block.path or f"{len(block.data or b''):,} bytes"
                parts.append(f"*({block.kind}: {where})*")
            case Opaque() if block.used is not None:
                parts += ["*At the provider:*", _fence(str(block.used))]
            case Opaque():
                parts.append(f"*(something that only {block.provider} understands)*")
    if sources := sources_of(message.citations):
        shown = [_escape(name) * (name != link) + f" <{link}>" * bool(link) for name, link in sources]
        parts.append("\n".join(["Sources:", "", *[f"{at}. {line.strip()}" for at, line in enumerate(shown, 1)]]))
    if message.interrupted:
        parts.append("*(interrupted)*")
    return parts


def _escape(name: str) -> str:
    """Escape a foreign name, such as the title of a web page: one line without markup."""
    return re.sub(r"[\\`*\[\]<>&!#|~]", r"\\\g<0>", " ".join(name.split()))


def _fence(text: str, language: str = "") -> str:
    longest = max([len(run) for run in re.findall(r"`+", text)], default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
