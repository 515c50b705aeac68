"""Values as HTML for notebooks: everything is escaped, nothing runs, and no style depends on the page.

The texts of a model are shown as plain text: a notebook keeps its outputs, and other people open it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from html import escape
from typing import Final

from .blocks import Block, Media, Opaque, ServerToolUse, Text, Thinking, ToolCall, ToolResult, sources_of
from .message import Message

_WHO: Final = {"user": "You", "assistant": "Model", "tool": "Tools"}
_IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_TEXT: Final = 20_000
"""Characters of one text."""
_MAX_MESSAGES: Final = 200
_MAX_SOURCES: Final = 100
_CONTROLS: Final = "\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\U000e0000-\U000e007f"
_UNSAFE: Final = re.compile(f"[{_CONTROLS}]")
_INVISIBLE: Final = re.compile(f"[{_CONTROLS}\u200b-\u200f\u2060-\u2064\u061c\u00ad\ufeff]")
_BOX: Final = "margin:.4em 0;padding:.5em .75em;border-radius:.5em;border:1px solid rgba(128,128,128,.35)"
_PRE: Final = "margin:.25em 0;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;font-family:inherit"
_LIST: Final = "margin:.25em 0;padding-left:1.5em;font-size:.9em;overflow-wrap:anywhere"
_CODE: Final = "margin:.25em 0;white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace;font-size:.9em"


def escape_text(text: str, hidden: re.Pattern[str] = _UNSAFE) -> str:
    """The text, escaped for HTML; characters that could reorder or hide parts of it are made visible."""
    shown = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text) - _MAX_TEXT:,} more characters)"
    return escape(hidden.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", shown))


def _escape_name(text: str) -> str:
    """The same for names and arguments, where an invisible character makes another word; in prose it joins emoji."""
    return escape_text(text, _INVISIBLE)


def messages_to_html(messages: Iterable[Message], *, system: str | None = None, note: str = "") -> str:
    """Messages, one below the other; if there are very many, the last ones."""
    shown = list(messages)
    parts = [f'<div style="{_BOX}"><small>System</small>{_pre(system)}</div>'] if system else []
    if len(shown) > _MAX_MESSAGES:
        parts.append(f"<p><small>{len(shown) - _MAX_MESSAGES:,} earlier messages</small></p>")
    parts += [message_to_html(message) for message in shown[-_MAX_MESSAGES:]]
    if note:
        parts.append(f"<p><small>{escape_text(note)}</small></p>")
    return f'<div class="dragoman">{"".join(parts)}</div>'


def message_to_html(message: Message) -> str:
    """One message: its author, its blocks, and facts about the reply."""
    facts = [_WHO[message.role], message.model or ""]
    if message.usage is not None and message.usage.tokens is not None:
        facts.append(f"{message.usage.tokens:,} tokens")
    if message.interrupted:
        facts.append("interrupted")
    head = " · ".join([escape_text(fact) for fact in facts if fact])
    tint = ";background:rgba(15,118,110,.1)" if message.role == "user" else ""
    body = "".join(map(_block, message.blocks)) + _sources(message)
    return f'<div style="{_BOX}{tint}"><small>{head}</small>{body}</div>'


def _sources(message: Message) -> str:
    """A numbered list. A link shows its host, whatever its name is."""
    shown: list[str] = []
    for name, link in sources_of(message.citations)[:_MAX_SOURCES]:
        host = link.partition("//")[2].partition("/")[0]
        target = f" <small>{_escape_name(host)}</small>" if host and host not in name else ""
        address = escape(_INVISIBLE.sub("", link))
        opened = f'<a href="{address}" rel="noopener noreferrer" target="_blank">' if link else ""
        shown.append(f"<li>{opened}{_escape_name(name)}{'</a>' if link else ''}{target}</li>")
    return f'<ol style="{_LIST}">{"".join(shown)}</ol>' if shown else ""


def _pre(text: str) -> str:
    return f'<pre dir="auto" style="{_PRE}">{escape_text(text)}</pre>'


def _block(block: Block) -> str:
    match block:
        case Text():
            return _pre(block.text)
        case Thinking():
            return f"<details><summary>Thinking</summary>{_pre(block.text)}</details>" if block.text else ""
        case ToolCall():
            name, arguments = _escape_name(block.name), _escape_name(block.arguments or "{}")
            return f'<div><b>{name}</b> is called:<pre style="{_CODE}">{arguments}</pre></div>'
        case ToolResult():
            return _result(block)
        case Media():
            return _media(block)
        case Opaque() if block.used is not None:
            return _used(block.used)
        case Opaque():
            return f"<p><i>something that only {escape_text(block.provider)} understands</i></p>"


def _used(used: ServerToolUse) -> str:
    parts = [part for part in (used.input, used.output, "\n".join(used.sources)) if part]
    body = "".join([f'<pre style="{_CODE}">{_escape_name(part)}</pre>' for part in parts])
    return f"<details><summary><b>At the provider</b> · {_escape_name(str(used))}</summary>{body}</details>"


def _result(result: ToolResult) -> str:
    verb = "failed" if result.is_error else "gave"
    took = f" <small>{result.duration:.2f} s</small>" if result.duration is not None else ""
    body = "".join(
        [
            _media(part) if isinstance(part, Media) else f'<pre style="{_CODE}">{escape_text(part.text)}</pre>'
            for part in result.content
        ]
    )
    return f"<details><summary><b>{_escape_name(result.name)}</b> {verb}{took}</summary>{body}</details>"


def _media(media: Media) -> str:
    name = escape_text(media.name or media.url or media.path or media.mime_type)
    if media.mime_type in _IMAGE_TYPES and media.data is not None:
        data = base64.b64encode(media.data).decode()
        return f'<img alt="{name}" style="max-width:24em;max-height:24em" src="data:{media.mime_type};base64,{data}">'
    return f"<p><i>{media.kind}: {name}</i></p>"
