"""The content of messages, as JSON in the form of the conventions: of limited size, and without keys.

A long text is cut, and the oldest messages are left out first. Media are named, not included.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dragoman._decoding import decode
from dragoman.conversation import Block, Media, Message, Text, Thinking, ToolCall, ToolResult, ToolSpec
from dragoman.engines import AsyncHttpEngine, BaseEngine, HttpEngine, Secret
from dragoman.providers import PROVIDERS

from .names import FINISH

_SHORTEST_KEY: Final = 8
"""A shorter one is no key, and would match everywhere."""
_KEY: Final = "[key]"
_CUT: Final = "…"


class Content:
    """Writes content; each result has at most `limit` characters of it."""

    def __init__(self, limit: int) -> None:
        self._limit: int = limit
        names = [name for provider in PROVIDERS.values() for name in provider.key_variables]
        self._keys: frozenset[str] = frozenset()
        """The keys to remove: those in the usual variables, and those of the engines seen so far."""
        self._take(os.environ.get(name, "") for name in names)

    def take_key(self, engine: BaseEngine) -> None:
        """Remove the engine's key from now on; a generated one is known once it was used."""
        if isinstance(engine, HttpEngine | AsyncHttpEngine) and (key := engine.connection.key) is not None:
            self._take((key.reveal(),) if isinstance(key, Secret) else key.reveal())

    def _take(self, keys: Iterable[str]) -> None:
        found = {key for key in keys if len(key) >= _SHORTEST_KEY}
        if not found <= self._keys:
            self._keys |= found  # a new set, since other threads read the old one

    def text(self, text: str) -> str:
        """A single text."""
        return self._shortened(text, self._limit)

    def system(self, text: str) -> str:
        """A system prompt."""
        return _json([{"type": "text", "content": self.text(text)}])

    def messages(self, messages: Sequence[Message], *, answer: bool = False) -> tuple[str, int]:
        """The messages, and how many of the oldest were left out. An `answer` has a finish reason."""
        room, kept = self._limit, list[list[dict[str, object]]]()
        for message in reversed(messages):
            if room <= 0:
                break
            parts = list[dict[str, object]]()
            for block in message.blocks:
                part, used = self._part(block, room)
                room -= used
                parts.append(part)
            # A message for each result: some readers take only one from a message.
            groups = [[part] for part in parts] if message.role == "tool" else [parts]
            kept.append([{"role": message.role, "parts": group} for group in groups])
        written = [each for group in reversed(kept) for each in group]
        if answer and written:
            written[-1]["finish_reason"] = finish_reason(messages[-1])
        return _json(written), len(messages) - len(kept)

    def tools(self, specs: Iterable[ToolSpec]) -> str:
        """The definitions of tools, with their schemas as long as there is room."""
        room, written = self._limit, list[dict[str, object]]()
        for spec in specs:
            tool: dict[str, object] = {"type": "function", "name": spec.name}
            size = len(spec.description) + memoryview(spec.parameters).nbytes
            if size <= room:
                tool |= {"description": self._shortened(spec.description, room), "parameters": spec.parameters}
                room -= size
            written.append(tool)
        return _json(written)

    def _part(self, block: Block, room: int) -> tuple[dict[str, object], int]:
        """A block in the form of the conventions, and its size."""
        if isinstance(block, Text | Thinking):
            text = self._shortened(block.text, room)
            return {"type": "text" if isinstance(block, Text) else "reasoning", "content": text}, len(text)
        if isinstance(block, ToolCall):
            text = self._shortened(block.arguments, room)
            arguments = _parsed(text)
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": arguments}, len(text)
        if isinstance(block, ToolResult):
            text = self._shortened(block.text, room)
            return {"type": "tool_call_response", "id": block.call_id, "response": text}, len(text)
        if isinstance(block, Media):
            size = len(block.data or b"")
            return {"type": "media", "modality": block.kind, "mime_type": block.mime_type, "size": size}, 0
        return {"type": "opaque", "provider": block.provider}, 0

    def _shortened(self, text: str, room: int) -> str:
        for key in self._keys:
            text = text.replace(key, _KEY)
        if not text.isascii():  # half a surrogate pair cannot be written
            text = text.encode("utf-8", "replace").decode()
        return text if len(text) <= room else text[: max(0, room)] + _CUT


def finish_reason(message: Message) -> str:
    """Why a reply ended, by the names of the conventions."""
    reason = "" if message.stop_reason is None else message.stop_reason.value
    return FINISH.get(reason, reason)


def _parsed(arguments: str) -> object:
    try:
        return decode(arguments)
    except (msgspec.DecodeError, UnicodeError):  # not JSON, or cut
        return arguments


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
