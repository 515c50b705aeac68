"""Which reply comes next: from a list that is played once, or from a function. Also scripts in files."""

from __future__ import annotations

import runpy
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.conversation import StopReason, Text, Thinking, ToolCall, Usage
from dragoman.errors import ConfigurationError

from .exchange import Part, Reply, Request
from .faults import Fault, read_fault

Item: TypeAlias = str | Reply | Fault
"""A text is a reply of that text; a fault alone is one that befalls a short text."""

Function: TypeAlias = Callable[[Request], Item] | Callable[[Request], Awaitable[Item]]
"""Called in the simulator's own thread, so it must not block; write it with `async def` where it has to wait."""

Script: TypeAlias = Item | Sequence[Item] | Function
"""One reply, replies in order, or a function that is asked for each."""


class ScriptError(Exception):
    """The script has no reply for this request."""


def echo(request: Request) -> str:
    """The script where none is given: says what the user said."""
    return f"You said: {request.last_user_text}"


class Player:
    """A script that is being played."""

    def __init__(self, script: Script | None) -> None:
        self._function: Function | None = echo if script is None else None
        self._replies: list[Reply] = []
        self._asked = 0
        if isinstance(script, str | Reply | Fault):
            self._replies = [_reply(script)]
        elif isinstance(script, Sequence):
            self._replies = [_reply(item) for item in cast("Sequence[Item]", script)]
        elif callable(script):
            self._function = script
        elif script is not None:
            message = f"a script is a list of replies or a function, not {type(script).__name__}"
            raise TypeError(message)

    @property
    def unplayed(self) -> int:
        """How many replies of a list are left."""
        return max(len(self._replies) - self._asked, 0)

    async def next(self, request: Request) -> Reply:
        """The reply to this request. Raises ScriptError, or whatever the script's own function raises."""
        if self._function is not None:
            given = self._function(request)
            return _reply(await given if isawaitable(given) else given)
        self._asked += 1
        if self._asked > len(self._replies):
            message = (
                f"The simulator's script is exhausted: it has {len(self._replies)} replies, and this is request "
                f"{self._asked}. Add replies to the list, or give a function."
            )
            raise ScriptError(message)
        return self._replies[self._asked - 1]


def _reply(item: object) -> Reply:
    """The reply that an item stands for. A script is somebody else's code, so its types are looked at."""
    match item:
        case str():
            return Reply(item)
        case Fault():
            return Reply("A short text that something happens to.", faults=[item])
        case Reply():
            return item
        case _:
            message = f"a script gives texts, replies and faults, not {type(item).__name__}"
            raise TypeError(message)


# --- files -----------------------------------------------------------------------------------------------------------


class _Call(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, object] | str = {}
    id: str = ""


class _Entry(Struct, forbid_unknown_fields=True):
    thinking: str = ""
    text: str = ""
    tool_calls: list[_Call] = []
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    faults: list[object] = []
    headers: dict[str, str] = {}
    model: str | None = None


def load_script(path: str | Path) -> Script:
    """The script in a file: JSON, or Python whose name `script` is one. Raises ConfigurationError."""
    file = Path(path)
    try:
        if file.suffix == ".py":
            names = runpy.run_path(str(file))
            if "script" not in names:
                message = "it has no name `script`"
                raise ValueError(message)
            return cast("Script", names["script"])
        return [_read_item(entry) for entry in msgspec.json.decode(file.read_bytes(), type=list[str | _Entry])]
    except (OSError, UnicodeError, msgspec.MsgspecError, ValueError) as error:
        message = f"The script {str(path)!r} cannot be used: {error}."
        raise ConfigurationError(message) from None


def _read_item(entry: str | _Entry) -> Item:
    if isinstance(entry, str):
        return entry
    blocks: list[Part] = [Thinking(entry.thinking, provider="")] if entry.thinking else []
    if entry.text:
        blocks.append(Text(entry.text))
    for call in entry.tool_calls:
        given = call.arguments
        arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
        blocks.append(ToolCall(call.id, call.name, arguments))
    return Reply(
        *blocks,
        usage=entry.usage,
        stop_reason=entry.stop_reason,
        faults=[read_fault(fault) for fault in entry.faults],
        headers=entry.headers,
        model=entry.model,
    )
