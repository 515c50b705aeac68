"""Tool definitions without their code, which codecs encode and snapshots store."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman._decoding import decode
from dragoman.errors import ToolDefinitionError

from .values import Value

_SCHEMA_WANTED: Final = 'Give a JSON Schema, such as {"type": "object", "properties": {}}.'


class ToolExample(Value, frozen=True):
    """One example of a call, for people and models."""

    input: dict[str, object]
    output: object = None
    description: str = ""


# dict=True: codecs keep a spec's wire form in its memory, since it never changes.
class ToolSpec(Value, frozen=True, dict=True, gc=True):
    """A tool's name, description and parameters, without its function."""

    name: str
    description: str = ""
    parameters: Raw = Raw(b'{"type":"object","properties":{}}')
    """A JSON Schema of type object, as raw JSON so that its bytes never change."""
    strict: bool | None = None
    """Whether the provider must enforce the schema exactly; None: as in the provider's profile."""
    examples: tuple[ToolExample, ...] = ()
    tags: tuple[str, ...] = ()
    version: str = ""
    deferred: bool = False
    """Not sent in full: a provider with tool search loads it when the model looks for it."""

    @property
    def schema(self) -> dict[str, object]:
        """The parameters as `parse_schema` reads them; a fresh dict each time."""
        return parse_schema(self.parameters)


def parse_schema(raw: Raw) -> dict[str, object]:
    """A JSON Schema as an object, which one without rules stands for where it is `true`, and one that nothing fits
    where it is `false`. Raises ToolDefinitionError for anything else."""
    try:
        schema: object = decode(raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        message = f"A schema cannot be read as JSON: {error}."
        raise ToolDefinitionError(message, hint=_SCHEMA_WANTED) from None
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        message = f"A JSON Schema is an object or a boolean, not {bytes(raw)[:60].decode(errors='replace')}."
        raise ToolDefinitionError(message, hint=_SCHEMA_WANTED)
    return cast("dict[str, object]", schema)


class OneTool(Value, frozen=True):
    """The model must call this tool."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | OneTool
"""Whether the model may (`auto`), must not (`none`) or must (`required`) call a tool, or which one it must call."""
