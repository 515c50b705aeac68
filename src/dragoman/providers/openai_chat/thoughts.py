"""Reasoning, in the four forms that servers give it.

Owns: which form a piece has, and what must go with it when it is sent back: the name of the field it came in, and for
`reasoning_details` (OpenRouter) the type, format, id and index of the detail.
Must not know: text and calls.

The forms: a string in `reasoning_content` (DeepSeek, Z.ai, vLLM, …) or in `reasoning` (Groq, Cerebras, Ollama, …); a
list of `reasoning_details`; chunks of type `thinking` among the content (Mistral), under the field name `content`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Native, ReplyEvent, ThinkingDelta, ThinkingEnded, ThinkingStarted

from .wire import elements, is_nothing, string

__all__ = ["FIELD", "Thought", "thinking_text"]

FIELD: Final = "field"
"""Under this name a thought's native fields keep the name of the wire's field that it came in."""

# Members of a detail that have a place of their own in a Thinking block.
_TEXTS: Final = ("text", "summary")
_OWN: Final = frozenset([*_TEXTS, "data", "signature"])


class Thought:
    """One piece of reasoning while it grows."""

    __slots__ = ("_encrypted", "_fields", "_signature", "index", "key")

    def __init__(self, index: int, key: tuple[str, ...], reader: str, events: list[ReplyEvent]) -> None:
        self.index = index
        self.key = key
        """What a further piece must have in common with this one to belong to it; the field's name comes first."""
        self._fields: dict[str, Raw] = {FIELD: Raw(msgspec.json.encode(key[0]))}
        self._signature: str = ""
        self._encrypted: str = ""
        events.append(ThinkingStarted(index, "", reader))

    def grow(self, text: str, events: list[ReplyEvent]) -> None:
        if text:
            events.append(ThinkingDelta(self.index, "", text))

    def detail(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        """Take in a piece of `reasoning_details`, or a chunk of type `thinking` without its text."""
        for name in _TEXTS:
            self.grow(string(fields.get(name)), events)
        self._signature = string(fields.get("signature")) or self._signature
        self._encrypted += string(fields.get("data"))
        for name, raw in fields.items():
            if name not in _OWN and not is_nothing(raw):
                self._fields[name] = raw.copy()

    def end(self, reader: str, events: list[ReplyEvent]) -> None:
        native = Native(reader, self._fields)
        events.append(ThinkingEnded(self.index, "", self._signature or None, self._encrypted or None, native))


def thinking_text(raw: Raw | None) -> str:
    """The text of a chunk's `thinking`: chunks of text, or in some versions plain text."""
    if raw is None:
        return ""
    return string(raw) or "".join([_text(part) for part in elements(raw)])


def _text(part: Raw) -> str:
    try:
        return string(msgspec.json.decode(part, type=dict[str, Raw]).get("text"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
