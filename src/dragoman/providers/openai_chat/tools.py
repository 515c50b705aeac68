"""Tools, and the schema of a structured reply, as the wire wants them.

Owns: a tool's wire form, computed once for each spec; when `strict` is sent; which tool must be called.
Must not know: how a schema is converted.
"""

from __future__ import annotations

import re
from typing import Final, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import OneTool, ToolChoice, ToolSpec
from dragoman.providers.codec import Adaptation, Call, remembered
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ResponseFormat
from dragoman.providers.parameters import refuse_or_adapt
from dragoman.providers.profile import Profile
from dragoman.providers.schema import NOT_STRICT, convert

__all__ = ["wire_choice", "wire_format", "wire_tools"]

_encode: Final = msgspec.json.encode
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'


def wire_tools(call: Call, names: ToolNames, adaptations: list[Adaptation], *, mark: bool) -> bytes | None:
    """All tools as one JSON array, the provider's own behind the caller's; None if there are none."""
    specs = call.tools
    if specs and not call.profile.tools:
        hint = "Use another model or another API of this provider, or send no tools."
        refuse_or_adapt(call, adaptations, "tools", "it calls no tools over this API", hint)
        specs = ()
    found: list[bytes] = []
    for spec in specs:
        name = names.wire(spec.name)
        wire, notes = _wire_tool(spec, name, call.profile)
        found.append(wire)
        if notes:
            adaptations += [Adaptation(f"schema of tool {spec.name!r}", note) for note in notes]
        if name != spec.name:
            adaptations.append(Adaptation(f"name of tool {spec.name!r}", f"sent as {name!r}"))
        if spec.strict and not call.profile.strict_tools:
            adaptations.append(Adaptation(f"strict of tool {spec.name!r}", "this model does not support it"))
    if found and mark:
        found[-1] = found[-1][:-1] + _MARK
    found += [bytes(raw) for raw in call.options.server_tools]
    return b"[" + b",".join(found) + b"]" if found else None


def _wire_tool(spec: ToolSpec, name: str, profile: Profile) -> tuple[bytes, tuple[str, ...]]:
    strict = spec.strict is True and profile.strict_tools

    def make() -> tuple[bytes, tuple[str, ...]]:
        schema, notes = convert(spec.schema, profile.tool_schema, strict=strict)
        function: dict[str, object] = {"name": name}
        if spec.description:
            function["description"] = spec.description
        function["parameters"] = schema
        if strict and not _not_strict(notes):
            function["strict"] = True
        return _encode({"type": "function", "function": function}), notes

    return remembered(spec, f"openai_chat {profile.tool_schema} {strict} {name}", make)


def wire_choice(choice: ToolChoice, names: ToolNames) -> object:
    """Which tool the model may or must call; None for what it does anyway."""
    if isinstance(choice, OneTool):
        return {"type": "function", "function": {"name": names.wire(choice.name)}}
    return None if choice == "auto" else choice


def wire_format(call: Call, wanted: ResponseFormat, adaptations: list[Adaptation]) -> object:
    """The schema that the reply must have."""
    given = cast("dict[str, object]", msgspec.json.decode(Raw(wanted.schema)))
    schema, notes = convert(given, call.profile.structured_schema, strict=wanted.strict)
    adaptations += [Adaptation("schema of the reply", note) for note in notes]
    name = _ILLEGAL.sub("_", wanted.name)[:64] or "answer"
    if name != wanted.name:
        adaptations.append(Adaptation(f"name of the reply's schema {wanted.name!r}", f"sent as {name!r}"))
    described: dict[str, object] = {"name": name, "schema": schema}
    if wanted.description:
        described["description"] = wanted.description
    if wanted.strict and not _not_strict(notes):
        described["strict"] = True
    return {"type": "json_schema", "json_schema": described}


def _not_strict(notes: tuple[str, ...]) -> bool:
    """Whether the schema has something that no strict one can say."""
    return any(note.startswith(NOT_STRICT) for note in notes)
