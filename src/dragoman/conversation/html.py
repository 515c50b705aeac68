"""Values as HTML for notebooks: everything is escaped, nothing runs, and no style depends on the page around it.

What a model said stands as it was said, as text: a notebook keeps its outputs, and is opened by others.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from html import escape
from typing import Final

from .blocks import Block, Json, Media, Opaque, ServerToolUse, Text, Thinking, ToolCall, ToolResult, sources_of
from .message import Message

_WHO: Final = {"user": "You", "assistant": "Model", "tool": "Tools"}
_SHOWN_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_LONGEST: Final = 20_000
"""Characters of one text that a notebook keeps."""
_MOST_MESSAGES: Final = 200
_MOST_SOURCES: Final = 100
_SIGNS: Final = "\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\U000e0000-\U000e007f"
_HIDDEN: Final = re.compile(f"[{_SIGNS}]")
_UNSEEN: Final = re.compile(f"[{_SIGNS}\u200b-\u200f\u2060-\u2064\u061c\u00ad\ufeff]")
_BOX: Final = "margin:.4em 0;padding:.5em .75em;border-radius:.5em;border:1px solid rgba(128,128,128,.35)"
_PRE: Final = "margin:.25em 0;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;font-family:inherit"
_LIST: Final = "margin:.25em 0;padding-left:1.5em;font-size:.9em;overflow-wrap:anywhere"
_CODE: Final = "margin:.25em 0;white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace;font-size:.9em"


def harmless(text: str) -> str:
    """The text, escaped for HTML, with what could turn it around or hide in it made visible."""
    return _shown(text, _HIDDEN)


def _exact(text: str) -> str:
    """The same for names and arguments, where a sign that nobody sees makes another word; in prose it joins emoji."""
    return _shown(text, _UNSEEN)


def _shown(text: str, hidden: re.Pattern[str]) -> str:
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"
    return escape(hidden.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", shown))


def messages_to_html(messages: Iterable[Message], *, system: str | None = None, note: str = "") -> str:
    """Messages, one below the other; of very many the last ones."""
    shown = list(messages)
    parts = [f'<div style="{_BOX}"><small>System</small>{_pre(system)}</div>'] if system else []
    if len(shown) > _MOST_MESSAGES:
        parts.append(f"<p><small>{len(shown) - _MOST_MESSAGES:,} earlier messages</small></p>")
    parts += [message_to_html(message) for message in shown[-_MOST_MESSAGES:]]
    if note:
        parts.append(f"<p><small>{harmless(note)}</small></p>")
    return f'<div class="dragoman">{"".join(parts)}</div>'


def message_to_html(message: Message) -> str:
    """One message: who says it, its blocks, and what is known of the reply."""
    facts = [_WHO[message.role], message.model or ""]
    if message.usage is not None and message.usage.tokens is not None:
        facts.append(f"{message.usage.tokens:,} tokens")
    if message.interrupted:
        facts.append("interrupted")
    head = " · ".join([harmless(fact) for fact in facts if fact])
    tint = ";background:rgba(15,118,110,.1)" if message.role == "user" else ""
    body = "".join(map(_block, message.blocks)) + _sources(message)
    return f'<div style="{_BOX}{tint}"><small>{head}</small>{body}</div>'


def _sources(message: Message) -> str:
    """A numbered list. A link says where it leads, whatever it is called."""
    shown: list[str] = []
    for name, link in sources_of(message.citations)[:_MOST_SOURCES]:
        host = link.partition("//")[2].partition("/")[0]
        leads = f" <small>{_exact(host)}</small>" if host and host not in name else ""
        address = escape(_UNSEEN.sub("", link))
        opened = f'<a href="{address}" rel="noopener noreferrer" target="_blank">' if link else ""
        shown.append(f"<li>{opened}{_exact(name)}{'</a>' if link else ''}{leads}</li>")
    return f'<ol style="{_LIST}">{"".join(shown)}</ol>' if shown else ""


def _pre(text: str) -> str:
    return f'<pre dir="auto" style="{_PRE}">{harmless(text)}</pre>'


def _block(block: Block) -> str:
    match block:
        case Text():
            return _pre(block.text)
        case Thinking():
            return f"<details><summary>Thinking</summary>{_pre(block.text)}</details>" if block.text else ""
        case ToolCall():
            name, arguments = _exact(block.name), _exact(block.arguments or "{}")
            return f'<div><b>{name}</b> is called:<pre style="{_CODE}">{arguments}</pre></div>'
        case ToolResult():
            return _result(block)
        case Media():
            return _media(block)
        case Opaque() if block.used is not None:
            return _used(block.used)
        case Opaque():
            return f"<p><i>something that only {harmless(block.provider)} understands</i></p>"


def _used(used: ServerToolUse) -> str:
    said = [part for part in (used.input, used.output, "\n".join(used.sources)) if part]
    body = "".join([f'<pre style="{_CODE}">{_exact(part)}</pre>' for part in said])
    return f"<details><summary><b>At the provider</b> · {_exact(str(used))}</summary>{body}</details>"


def _result(result: ToolResult) -> str:
    verb = "failed" if result.is_error else "gave"
    took = f" <small>{result.duration:.2f} s</small>" if result.duration is not None else ""
    body = "".join(
        [
            _media(part) if isinstance(part, Media) else f'<pre style="{_CODE}">{harmless(_text(part))}</pre>'
            for part in result.content
        ]
    )
    return f"<details><summary><b>{_exact(result.name)}</b> {verb}{took}</summary>{body}</details>"


def _text(part: Text | Json) -> str:
    return part.text


def _media(media: Media) -> str:
    name = harmless(media.name or media.url or media.path or media.mime_type)
    if media.mime_type in _SHOWN_IMAGES and media.data is not None:
        data = base64.b64encode(media.data).decode()
        return f'<img alt="{name}" style="max-width:24em;max-height:24em" src="data:{media.mime_type};base64,{data}">'
    return f"<p><i>{media.kind}: {name}</i></p>"
