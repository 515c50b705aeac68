"""Tools and the schema of a structured reply as the wire wants them.

Owns: a tool's wire form, computed once for each spec; when `strict` is sent.
Must not know: how a schema is converted.
"""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec import Raw

from dragoman.conversation import ToolSpec
from dragoman.providers.codec import Adaptation, Call, remembered
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ModelOptions
from dragoman.providers.parameters import refuse_or_adapt
from dragoman.providers.profile import Profile
from dragoman.providers.schema import NOT_STRICT, convert

from .wire import READER, written

__all__ = ["format_schema", "wire_tools"]


def wire_tools(call: Call, names: ToolNames, adaptations: list[Adaptation]) -> list[bytes]:
    """The caller's tools, in the given order."""
    found: list[bytes] = []
    for spec in call.tools:
        name = names.wire(spec.name)
        wire, notes = _wire_tool(spec, name, call.profile)
        found.append(wire)
        adaptations += [Adaptation(f"schema of tool {spec.name!r}", note) for note in notes]
        if name != spec.name:
            adaptations.append(Adaptation(f"name of tool {spec.name!r}", f"sent as {name!r}"))
        if spec.strict and not call.profile.strict_tools:
            adaptations.append(Adaptation(f"strict of tool {spec.name!r}", "this model does not support it"))
    return found


def _wire_tool(spec: ToolSpec, name: str, profile: Profile) -> tuple[bytes, tuple[str, ...]]:
    strict = spec.strict is True and profile.strict_tools

    def make() -> tuple[bytes, tuple[str, ...]]:
        schema, notes = convert(spec.schema, profile.tool_schema, strict=strict)
        tool: dict[str, object] = {"name": name}
        if spec.description:
            tool["description"] = spec.description
        tool["input_schema"] = schema
        if strict and not any(note.startswith(NOT_STRICT) for note in notes):
            tool["strict"] = True
        return written(tool), notes

    return remembered(spec, f"{READER} {profile.tool_schema} {strict} {name}", make)


def format_schema(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object] | None:
    """The schema that the reply must have, if one is asked for. The provider always enforces it."""
    wanted = options.response_format
    if wanted is None:
        return None
    given = cast("dict[str, object]", msgspec.json.decode(Raw(wanted.schema)))
    schema, notes = convert(given, call.profile.structured_schema, strict=True)
    if refusal := next((note for note in notes if note.startswith(NOT_STRICT)), None):
        why = refusal.removeprefix(NOT_STRICT)
        refuse_or_adapt(call, adaptations, "response_format", why, "Change the schema, or ask for the reply by a tool.")
        return None
    adaptations += [Adaptation("schema of the reply", note) for note in notes]
    return schema
