"""What the tests of all styles share."""

from __future__ import annotations

from typing import Any

from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import convert

STYLES: tuple[SchemaStyle, ...] = ("json_schema", "openai_strict", "anthropic_strict", "gemini")


def one(style: SchemaStyle, schema: Any, **root: Any) -> tuple[Any, tuple[str, ...]]:
    """How a schema comes out as the one required property `x` of an object."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], **root}
    done, lines = convert(whole, style, strict=True)
    return done["properties"]["x"], tuple(line.replace("/properties/x", "x") for line in lines)  # type: ignore[index]
