"""Which version of a tool was approved.

Owns: a tool's fingerprint, what was approved, and what differs from it.
Must not know: connections.

A server may change what a tool says of itself after somebody has looked at it: text that goes to the model, and a
schema that asks for other data. The fingerprint covers all that was looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.conversation import ToolSpec
from dragoman.errors import ConfigurationError

__all__ = ["ChangeOfTool", "Pins", "ToolChange", "fingerprint"]

ChangeOfTool: TypeAlias = Literal["added", "changed", "removed"]


class ToolChange(Struct, frozen=True, kw_only=True):
    """A tool that is not, or no longer, what was approved."""

    server: str
    tool: str
    """By the server's own name."""
    kind: ChangeOfTool
    before: ToolSpec | None = None
    """What was approved, where it is known."""
    after: ToolSpec | None = None
    """What the server says now."""


class Pins(Struct, frozen=True, forbid_unknown_fields=True):
    """What was approved: for each server and tool a fingerprint. Keep it to compare at the next start."""

    servers: dict[str, dict[str, str]] = {}

    def to_json(self) -> bytes:
        """To be stored."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @staticmethod
    def from_json(data: bytes | str) -> Pins:
        """What was stored; raises ConfigurationError."""
        try:
            return msgspec.json.decode(data, type=Pins)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ConfigurationError(f"These are no pins of MCP servers: {error}.") from None


def fingerprint(definition: Mapping[str, object]) -> str:
    """A hash of all that a server says of a tool, the same for the same content in another order."""
    return hashlib.sha256(msgspec.json.encode(_sorted(definition), order="deterministic")).hexdigest()


def _sorted(value: object) -> object:
    """Without members that say nothing: absent and null are the same in what servers send."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return {key: _sorted(member) for key, member in members.items() if member is not None}
    if isinstance(value, list):
        return [_sorted(item) for item in cast("list[object]", value)]
    return value
