"""A conversation as one HTML page.

Owns: the form of the page. It loads nothing, and what was said in the conversation is text in it, never markup.
Must not know: where it goes.
"""

from __future__ import annotations

from html import escape
from typing import Final

from dragoman.conversation import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.stores.snapshot import Snapshot

from .markdown import media_line

__all__ = ["to_html"]

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
:root { color-scheme: light dark; }
section { margin: 1rem 0; padding: .5rem 1rem; border-left: 4px solid #8888; }
section.user { border-color: #47c; } section.assistant { border-color: #4a6; }
h2 { font-size: .9rem; margin: 0; opacity: .7; } p { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8882; padding: .5rem; }
"""
_WHO: Final = {"user": "You", "assistant": "Model", "tool": "Tools"}


def to_html(snapshot: Snapshot) -> str:
    """The whole conversation."""
    title = escape(snapshot.title or "Conversation")
    about = escape(f"{snapshot.provider}:{snapshot.model} · {snapshot.created_at:%Y-%m-%d %H:%M} UTC · {snapshot.root}")
    system = f"<section><h2>System</h2>{_text(snapshot.system_prompt)}</section>\n" if snapshot.system_prompt else ""
    messages = "\n".join([_message(message) for message in snapshot.messages])
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<p>{about}</p>\n"
        f"{system}{messages}\n</body>\n</html>\n"
    )


def _message(message: Message) -> str:
    parts = "\n".join([_block(block) for block in message.blocks])
    interrupted = "<p><em>(interrupted)</em></p>" if message.interrupted else ""
    return f"<section class='{message.role}'><h2>{_WHO[message.role]}</h2>\n{parts}{interrupted}</section>"


def _block(block: Text | Thinking | ToolCall | ToolResult | Media | Opaque) -> str:
    match block:
        case Text():
            return _text(block.text)
        case Thinking():
            return f"<details><summary>Thinking</summary>{_text(block.text)}</details>" if block.text else ""
        case ToolCall():
            return f"<p><strong>{escape(block.name)}</strong> is called:</p><pre>{escape(block.arguments)}</pre>"
        case ToolResult():
            verb = "failed" if block.is_error else "gave"
            return f"<p><strong>{escape(block.name)}</strong> {verb}:</p><pre>{escape(block.text)}</pre>"
        case Media():
            return f"<p><em>{escape(media_line(block).strip('*'))}</em></p>"
        case Opaque():
            return f"<p><em>(something that only {escape(block.provider)} understands)</em></p>"


def _text(text: str) -> str:
    return f"<p>{escape(text)}</p>"
