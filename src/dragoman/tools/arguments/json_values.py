"""JSON values: what kind they are, and how to show them.

Owns: JSON's names for types, and the short form in which a value appears in a message.
Must not know: anything else.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from json import JSONEncoder

__all__ = ["cut", "deeper_than", "is_array", "is_object", "kind_of", "shown"]

SHOWN_LENGTH = 60

_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


@cache
def _encoder() -> JSONEncoder:
    from json import JSONEncoder  # only what is wrong is shown

    return JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Whether a decoded value is an array."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a decoded value is an object."""
    return isinstance(value, dict)


def kind_of(value: object) -> str:
    """JSON's name for the type of a decoded value."""
    return _KINDS.get(type(value)) or type(value).__name__


def deeper_than(limit: int, value: object) -> bool:
    """Whether arrays and objects are nested more than `limit` deep; found without recursion."""
    level: list[object] = [value]
    for _ in range(limit + 1):
        arrays = [item for parent in level if is_array(parent) for item in parent]
        level = arrays + [item for parent in level if is_object(parent) for item in parent.values()]
        if not level:
            return False
    return True


def shown(value: object) -> str:
    """The value as JSON, cut to a length that fits a message."""
    if isinstance(value, str):
        value = value[: SHOWN_LENGTH + 1]
    # Chunk by chunk: a message about a value of many megabytes must not cost many megabytes.
    text = ""
    for chunk in _encoder().iterencode(value):
        text += chunk[: SHOWN_LENGTH + 1]
        if len(text) > SHOWN_LENGTH:
            break
    return cut(text)


def cut(text: str) -> str:
    """A text cut to a length that fits a message."""
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"
