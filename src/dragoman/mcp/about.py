"""What MCP says of a tool beyond our own definition.

Owns: ToolAbout, and where it is found.
Must not know: the wire. `readOnlyHint` and `idempotentHint` come from the tool's own options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from dragoman.tools.definition import AnyTool

__all__ = ["ToolAbout", "about_of"]


class ToolAbout(Struct, frozen=True, kw_only=True):
    """What other programs are told of a tool, for people and as hints. None leaves a hint out."""

    title: str = ""
    """A name for people."""
    output_schema: dict[str, object] | None = None
    """JSON Schema of the structured result; where it is None it is taken from the function's return type."""
    destructive: bool | None = None
    """Whether it may destroy something, rather than only add."""
    open_world: bool | None = None
    """Whether it deals with the world outside, such as the web."""


NOTHING = ToolAbout()


def about_of(tool: AnyTool) -> ToolAbout:
    """What the tool's function carries with it; the tools of MCP servers do."""
    about: object = getattr(tool.function, "about", None)
    return about if isinstance(about, ToolAbout) else NOTHING
