"""A script that was written into a file.

Owns: the JSON form of scripts, and Python files that hold one.
Must not know: the simulator.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.conversation import Block, StopReason, Text, Thinking, ToolCall, Usage
from dragoman.errors import ConfigurationError

from .faults import FAULTS, AnyFault, Fault
from .reply import Reply
from .script import Item, Script

__all__ = ["load_script"]


class _Call(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, object] | str = {}
    id: str = ""


class _Entry(Struct, forbid_unknown_fields=True):
    thinking: str = ""
    text: str = ""
    tool_calls: list[_Call] = []
    blocks: tuple[Block, ...] = ()
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    raw_stop_reason: str | None = None
    faults: list[str | AnyFault] = []
    headers: dict[str, str] = {}
    model: str | None = None


_List: TypeAlias = list[str | _Entry]
_DECODER: Final[msgspec.json.Decoder[_List | dict[str, _List]]] = msgspec.json.Decoder(_List | dict[str, _List])


def load_script(path: str | Path) -> Script:
    """The script in a file: JSON, or Python whose name `script` is one. Raises ConfigurationError."""
    file = Path(path)
    try:
        if file.suffix == ".py":
            return _from_python(file)
        found: _List | dict[str, _List] = _DECODER.decode(file.read_bytes())
        if isinstance(found, list):
            return [_item(entry) for entry in found]
        return {key: [_item(entry) for entry in entries] for key, entries in found.items()}
    except (OSError, UnicodeError, msgspec.MsgspecError, ValueError) as error:
        message = f"The script {str(path)!r} cannot be used: {error}."
        raise ConfigurationError(message) from None


def _from_python(file: Path) -> Script:
    names = runpy.run_path(str(file))
    if "script" not in names:
        message = "it has no name `script`"
        raise ValueError(message)
    return cast("Script", names["script"])


def _item(entry: str | _Entry) -> Item:
    if isinstance(entry, str):
        return entry
    blocks: list[Block] = [*entry.blocks]
    if entry.thinking:
        blocks.append(Thinking(entry.thinking, provider=""))
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
        raw_stop_reason=entry.raw_stop_reason,
        faults=[_fault(fault) for fault in entry.faults],
        headers=entry.headers,
        model=entry.model,
    )


def _fault(fault: str | AnyFault) -> Fault:
    if not isinstance(fault, str):
        return fault
    if fault not in FAULTS:
        message = f"there is no fault {fault!r}; there are {', '.join(FAULTS)}"
        raise ValueError(message)
    return FAULTS[fault]
