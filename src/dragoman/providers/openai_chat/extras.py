"""What a reply carries beyond text, thinking and calls: kept as raw JSON.

Owns: the members that we do not know, of the reply, of its choice and of its message, put together over a stream.
Must not know: what they mean. They are decoration; the members of the message go back to the server that sent them.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Native
from dragoman.errors import ProtocolError

from .wire import elements, integer, is_nothing, joined, members, string

__all__ = ["Extras"]

# What is known and taken elsewhere, or says nothing: `obfuscation` is padding against eavesdroppers.
_KNOWN_OF_REPLY: Final = frozenset(["id", "object", "model", "choices", "obfuscation", "p", "error"])
_KNOWN_OF_CHOICE: Final = frozenset(["index", "delta", "message", "finish_reason", "usage", "error"])


class Extras:
    """Collects unknown members of one reply."""

    __slots__ = ("_choice", "_logprobs", "_message", "_reply")

    def __init__(self) -> None:
        self._reply: dict[str, Raw] = {}
        self._choice: dict[str, Raw] = {}
        self._message: dict[str, Raw] = {}
        self._logprobs: dict[str, list[bytes]] = {}

    def of_reply(self, fields: dict[str, Raw]) -> None:
        """Members beside `choices`; the newest stands, for most servers repeat them in every chunk."""
        for name, raw in fields.items():
            if name not in _KNOWN_OF_REPLY and not is_nothing(raw):
                self._reply[name] = raw

    def of_choice(self, fields: dict[str, Raw]) -> None:
        """Members beside `message`. Log probabilities come token by token and are put behind each other."""
        for name, raw in fields.items():
            if name in _KNOWN_OF_CHOICE or is_nothing(raw):
                continue
            if name == "logprobs" and bytes(raw).startswith(b"{"):
                for part, tokens in members(raw).items():
                    self._logprobs.setdefault(part, []).extend([bytes(token) for token in elements(tokens)])
            else:
                self._choice[name] = raw.copy()

    def of_message(self, name: str, raw: Raw) -> None:
        """A member of the message, or the next piece of it."""
        if is_nothing(raw):
            return
        before = self._message.get(name)
        self._message[name] = raw.copy() if before is None else Raw(_merged(bytes(before), bytes(raw)))

    def choice(self, name: str) -> str:
        """A string member of the choice, e.g. `native_finish_reason`; empty if there is none."""
        found = self._choice.get(name)
        return "" if found is None else string(found)

    def native(self, reader: str) -> Native | None:
        """Everything, as the reply's own fields: `choice` and `message` stand for members inside them."""
        fields = {name: raw.copy() for name, raw in self._reply.items()}
        logprobs = {name: Raw(b"[" + b",".join(tokens) + b"]") for name, tokens in self._logprobs.items() if tokens}
        if logprobs:
            self._choice["logprobs"] = Raw(joined(logprobs))
        for name, inner in (("choice", self._choice), ("message", self._message)):
            if inner:
                fields[name] = Raw(joined(inner))
        return Native(reader, fields) if fields else None


def _merged(before: bytes, after: bytes) -> bytes:
    """Two pieces of one member: arrays grow (or fill up, element by element, by `index`), strings grow, objects mix."""
    kind = before[:1]
    if before == after or kind != after[:1]:
        return after
    if kind == b'"':
        return msgspec.json.encode(string(Raw(before)) + string(Raw(after)))
    if kind == b"{":
        return joined({**members(before), **members(after)})
    return _merged_arrays(before, after) if kind == b"[" else after


def _merged_arrays(before: bytes, after: bytes) -> bytes:
    merged = [bytes(element) for element in elements(Raw(before))]
    places = {_index_of(element): place for place, element in enumerate(merged)}
    for element in elements(Raw(after)):
        piece = bytes(element)
        index = _index_of(piece)
        if index is not None and index in places:
            merged[places[index]] = joined({**members(merged[places[index]]), **members(piece)})
        else:
            merged.append(piece)
    return b"[" + b",".join(merged) + b"]"


def _index_of(element: bytes) -> int | None:
    if not element.startswith(b"{"):
        return None
    try:
        return integer(members(element).get("index"))
    except ProtocolError:
        return None
