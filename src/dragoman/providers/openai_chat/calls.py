"""Tool calls, put together from the pieces that servers send.

Owns: which piece belongs to which call, when ids are missing, an index is always 0, or the name stands in every piece.
Must not know: JSON framing, text and thinking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Native, ReplyEvent, ToolCallDelta, ToolCallEnded, ToolCallStarted
from dragoman.errors import ProtocolError

__all__ = ["Calls", "made_up_id"]


def made_up_id(reply_id: str | None, position: int, number: int) -> str:
    """An id for a call that came without one: the same for the same reply, and another one in every other reply.

    `position` is the reply's place in the conversation, since a server without ids for calls may have none for replies.
    """
    from hashlib import blake2s

    digest = blake2s(f"{reply_id}/{position}".encode(), digest_size=8).hexdigest()
    return f"call_{digest}_{number}"


class _Call:
    """One call while it grows."""

    __slots__ = ("fields", "id", "index", "name", "pieces", "wire_id", "wire_index")

    def __init__(self, wire_id: str, wire_index: int | None) -> None:
        self.wire_id = wire_id
        self.wire_index = wire_index
        self.id: str = ""
        self.name: str = ""
        self.index: int = -1
        """Which part of the reply; -1 until the name is known and the part has started."""
        self.pieces: list[str] = []
        self.fields: dict[str, Raw] = {}

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def looks_complete(self) -> bool:
        """Whether the arguments so far are a whole JSON value; cheap to ask, since most of them are not."""
        text = self.arguments
        return text.rstrip().endswith("}") and _is_json(text)


class Calls:
    """All calls of one reply."""

    __slots__ = ("_all", "_by_index", "_ids", "_new_id", "_new_part", "_reader", "_to_own")

    def __init__(
        self,
        reader: str,
        to_own: Mapping[str, str],
        new_part: Callable[[list[ReplyEvent]], int],
        new_id: Callable[[int], str],
    ) -> None:
        self._reader = reader
        self._to_own: Final = to_own
        self._new_part = new_part
        """Ends the text before it and gives the next index of a part of the reply."""
        self._new_id = new_id
        self._all: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        """The newest call of each index of the wire."""
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._all)

    def piece(
        self, events: list[ReplyEvent], index: int | None, call_id: str, name: str, arguments: str
    ) -> dict[str, Raw]:
        """Take in one piece; gives the place for members of the call that have none of their own."""
        call = self._find(index, call_id, name, arguments)
        if call is None:
            call = _Call(call_id, index)
            self._all.append(call)
        if index is not None:
            self._by_index[index] = call
        if arguments:
            call.pieces.append(arguments)
        if call.index < 0:
            if name:
                self._start(call, name, events)
        elif arguments:
            events.append(ToolCallDelta(call.index, call.id, arguments))
        return call.fields

    def end(self, events: list[ReplyEvent], *, cut: bool) -> None:
        """The reply is complete. With `cut` it was stopped by a limit, and the last call may be a part of one only."""
        for call in self._all:
            if call.index < 0:
                message = (
                    f"The model called a tool without saying which one (call {call.wire_id or call.wire_index!r})."
                )
                raise ProtocolError(message)
        for call in self._all:
            if cut and call is self._all[-1] and not _is_json(call.arguments):
                continue  # without an end it counts as partial and is never run
            native = Native(self._reader, call.fields) if call.fields else None
            events.append(ToolCallEnded(call.index, call.id, native))

    def _start(self, call: _Call, name: str, events: list[ReplyEvent]) -> None:
        call.name = self._to_own.get(name, name)
        call.index = self._new_part(events)
        number = len(self._ids)
        call.id = call.wire_id or self._new_id(number)
        if call.id in self._ids:  # two calls of one id could not be told apart in their results
            call.id = f"{call.id}_{number}"
        self._ids.add(call.id)
        events.append(ToolCallStarted(call.index, call.id, call.name))
        if call.pieces:
            events.append(ToolCallDelta(call.index, call.id, call.arguments))

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> _Call | None:
        """The call that this piece continues; None if it begins a new one."""
        if index is None:
            known = [call for call in self._all if call_id and call.wire_id == call_id]
            last = self._all[-1:] if not call_id else []
            call = (known or last or [None])[0]
        else:
            call = self._by_index.get(index)
        if call is None or (call_id and call_id == call.wire_id):
            return call
        if name and call.name and self._to_own.get(name, name) != call.name:
            return None
        if not call_id or not call.wire_id:
            # A server that gives neither ids nor indexes sends each call whole.
            fresh = name and arguments.lstrip().startswith("{") and call.looks_complete()
            return None if fresh else call
        # Another id under the same index: a new call, if it names a tool and the one before it is done. Some servers
        # make up a new id for every piece, but not a name.
        return None if name and (not call.pieces or call.looks_complete()) else call


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
