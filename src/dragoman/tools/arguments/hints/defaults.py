"""Defaults, as the model is shown them.

Owns: the JSON form of a Python default, where it has one that the node would read back.
Must not know: how defaults reach the function; it gets the object itself.
"""

from __future__ import annotations

import enum
import pathlib
from typing import Any, cast

import msgspec

from .choices import json_of_member
from .node import Node

__all__ = ["MISSING", "json_default"]

MISSING = object()
"""No default, or none that can be shown."""


def json_default(value: object, node: Node) -> object:
    """The JSON form of a default; MISSING if it has none, or if the model could not send it back."""
    try:
        plain = _plain(value)
        msgspec.json.encode(plain)
        return plain if node.read(plain, False) == value else MISSING
    except Exception:  # noqa: BLE001 -- a default is any object; what cannot be shown is not shown
        return MISSING


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Flag):
        return [member.name for member in type(value) if member in value]
    if isinstance(value, enum.Enum):
        return json_of_member(value)
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if hasattr(value, "_asdict"):  # a NamedTuple
        return {name: _plain(item) for name, item in value._asdict().items()}
    if hasattr(value, "model_dump"):  # a pydantic model
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, set | frozenset):  # in an order that does not change from run to run
        return sorted((_plain(item) for item in cast("set[object]", value)), key=repr)
    return msgspec.to_builtins(value, enc_hook=_plain)
