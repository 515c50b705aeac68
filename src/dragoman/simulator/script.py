"""Which reply comes next: lists that are played once, functions, one script for each of several conversations.

Scripts come from a program, or from a file (JSON, or Python that has one).
"""

from __future__ import annotations

import runpy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.conversation import Block, StopReason, Text, Thinking, ToolCall, Usage
from dragoman.errors import ConfigurationError

from .exchange import Reply, Request
from .faults import Fault, read_fault

Item: TypeAlias = str | Reply | Fault
"""A text is a reply of that text; a fault alone is one that befalls a short text."""

Function: TypeAlias = Callable[[Request], Item] | Callable[[Request], Awaitable[Item]]
"""Called in the simulator's own thread, so it must not block; write it with `async def` where it has to wait."""

OneScript: TypeAlias = Item | Sequence[Item] | Function
"""One reply, replies in order, or a function that is asked for each."""

Script: TypeAlias = OneScript | Mapping[str, OneScript]
"""A mapping has a script for each conversation: by the first key that occurs in a user message, else under ""."""


class ScriptError(Exception):
    """The script has no reply for this request."""


def echo(request: Request) -> str:
    """The script where none is given: says what the user said."""
    return f"You said: {request.last_user_text}"


class Player:
    """A script that is being played."""

    def __init__(self, script: Script | None) -> None:
        self._scripts: dict[str | None, _List | Function] = {}
        if isinstance(script, Mapping):
            for key, one in cast("Mapping[str, OneScript]", script).items():
                self._scripts[key] = _prepare(one)
        else:
            self._scripts[None] = _prepare(echo if script is None else script)

    @property
    def unplayed(self) -> int:
        """How many replies of lists are left."""
        return sum(one.left for one in self._scripts.values() if isinstance(one, _List))

    async def next(self, request: Request) -> Reply:
        """The reply to this request. Raises ScriptError, or whatever the script's own function raises."""
        script = self._scripts[self._key(request)]
        if isinstance(script, _List):
            return script.next()
        given = script(request)
        return _reply(await given if isawaitable(given) else given)

    def _key(self, request: Request) -> str | None:
        if None in self._scripts:
            return None
        keys = [key for key in self._scripts if key]
        if found := [key for key in keys if any(key in text for text in request.user_texts)]:
            return found[0]
        if "" in self._scripts:
            return ""
        message = f"The simulator's script has no replies for this conversation. It has some for: {', '.join(keys)}."
        raise ScriptError(message)


class _List:
    """Replies that are given one after the other."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._replies = [_reply(item) for item in items]
        self._asked = 0

    @property
    def left(self) -> int:
        return max(len(self._replies) - self._asked, 0)

    def next(self) -> Reply:
        self._asked += 1
        if self._asked > len(self._replies):
            message = (
                f"The simulator's script is exhausted: it has {len(self._replies)} replies, and this is request "
                f"{self._asked}. Add replies to the list, or give a function."
            )
            raise ScriptError(message)
        return self._replies[self._asked - 1]


def _prepare(script: OneScript) -> _List | Function:
    if isinstance(script, str | Reply | Fault):
        return _List([script])
    if isinstance(script, Sequence):
        return _List(cast("Sequence[Item]", script))
    if callable(script):
        return script
    message = f"a script is a list of replies, a function or a mapping of these, not {type(script).__name__}"
    raise TypeError(message)


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


_Entries: TypeAlias = list[str | _Entry]


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
        found: _Entries | dict[str, _Entries] = msgspec.json.decode(
            file.read_bytes(), type=_Entries | dict[str, _Entries]
        )
        if isinstance(found, list):
            return [_read_item(entry) for entry in found]
        return {key: [_read_item(entry) for entry in entries] for key, entries in found.items()}
    except (OSError, UnicodeError, msgspec.MsgspecError, ValueError) as error:
        message = f"The script {str(path)!r} cannot be used: {error}."
        raise ConfigurationError(message) from None


def _read_item(entry: str | _Entry) -> Item:
    if isinstance(entry, str):
        return entry
    blocks: list[Block] = [Thinking(entry.thinking, provider="")] if entry.thinking else []
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
