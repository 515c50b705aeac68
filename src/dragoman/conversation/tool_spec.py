"""Tool definitions without their code, which codecs encode and snapshots store."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Raw

from .values import Value


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
        """The parameters, parsed; a fresh dict each time."""
        return cast("dict[str, object]", msgspec.json.decode(self.parameters))


class OneTool(Value, frozen=True):
    """The model must call this tool."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | OneTool
"""Whether the model may (`auto`), must not (`none`) or must (`required`) call a tool, or which one it must call."""
