"""What the tests of all styles share."""

from __future__ import annotations

from typing import Any

from dragoman.providers import schema as schemas
from dragoman.providers.profile import SchemaStyle

STYLES: tuple[SchemaStyle, ...] = ("json_schema", "openai_strict", "anthropic_strict")


def convert(schema: Any, style: SchemaStyle, *, strict: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The converted schema, and what was said about it."""
    done = schemas.convert(schema, style, strict=strict)
    return done.schema, done.lines


def one(style: SchemaStyle, schema: Any, **root: Any) -> tuple[Any, tuple[str, ...]]:
    """How a schema comes out as the one required property `x` of an object."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], **root}
    done, lines = convert(whole, style, strict=True)
    return done["properties"]["x"], tuple(line.replace("/properties/x", "x") for line in lines)
