"""Looking into JSON that somebody else wrote, without trusting its shape.

Owns: the three views that the readers of requests use.
Must not know: any dialect.
"""

from __future__ import annotations

from typing import TypeAlias, cast

__all__ = ["JsonObject", "items", "members", "string"]

JsonObject: TypeAlias = dict[str, object]


def members(value: object) -> JsonObject:
    """The value as an object; an empty one if it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """The value as an array; an empty one if it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    """The value as a text; an empty one if it is something else."""
    return value if isinstance(value, str) else ""
