"""What a model can do, as data. A codec asks the profile; it never looks at a model's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import MediaKind
from dragoman.errors import ConfigurationError

StructuredStyle: TypeAlias = Literal["native", "tool", "prompt"]
"""How a structured reply is requested: the provider's feature, a forced tool call, or the prompt."""

SchemaStyle: TypeAlias = Literal["json_schema", "openai_strict", "anthropic_strict"]
"""Which JSON Schema a model takes: all of it, or OpenAI's or Anthropic's strict subset."""

ReasoningStyle: TypeAlias = Literal["none", "effort", "budget", "adaptive"]
"""How thinking is requested: not at all, by an effort, by a number of tokens, or by an effort that the model adapts."""


class ToolLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider's limits on tools."""

    max_tools: int | None = None
    name_pattern: str = r"[a-zA-Z0-9_-]{1,64}"
    """A regular expression that the whole name must match."""
    max_name_length: int = 64
    max_description_length: int | None = None


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Abilities and limits of one model at one provider. Users may pass one or change fields of it."""

    provider: str
    """The name of the provider, as in `provider:model`."""
    dialect: str
    """The name of its codec."""
    # --- input ---
    media: frozenset[MediaKind] = frozenset(["image"])
    """Kinds of media that it takes in user messages."""
    media_urls: frozenset[MediaKind] = frozenset(["image"])
    """Kinds that may be given by URL; the others are sent as bytes."""
    tool_result_media: frozenset[MediaKind] = frozenset()
    """Kinds that may be in a tool's result."""
    system_role: Literal["system", "developer", "user"] = "system"
    # --- tools ---
    tools: bool = True
    tool_limits: ToolLimits = ToolLimits()
    tool_choices: frozenset[str] = frozenset(["auto", "none", "required", "tool"])
    """Which tool choices it takes; "tool" stands for naming one."""
    forced_while_reasoning: bool = True
    """Whether a call can be forced while it reasons; if not, it reasons unless it is told not to."""
    parallel_tool_calls: bool = True
    """Whether it may call several tools in one reply."""
    single_tool_calls: bool = True
    """Whether it can be limited to one call in a reply."""
    tool_examples: bool = False
    """Whether tools have a field for examples; otherwise they are put into the description."""
    strict_tools: bool = False
    """Whether it supports `strict` on a tool."""
    tool_schema: SchemaStyle = "json_schema"
    tool_search: int = 0
    """How many tools the provider's own tool search can handle; 0: it has none."""
    needs_tools_of_history: bool = False
    """Whether a history with tool calls is refused in a request that declares no tools."""
    # --- structured replies ---
    structured: StructuredStyle = "native"
    native_beside_tools: bool = True
    """Whether "native" works together with tools; otherwise a request with tools uses "tool"."""
    structured_schema: SchemaStyle = "json_schema"
    # --- thinking ---
    reasoning: ReasoningStyle = "none"
    efforts: frozenset[str] = frozenset()
    """The efforts that it takes."""
    reasoning_replayed: bool = True
    """Whether its thinking is sent back to it in later turns."""
    # --- parameters ---
    unsupported: frozenset[str] = frozenset()
    """Names of ModelOptions fields that it does not take."""
    renamed: Mapping[str, str] = {}
    """Parameters with another name than the dialect's usual one, e.g. {"max_tokens": "max_completion_tokens"}."""
    default_max_tokens: int | None = None
    """Sent as max_tokens if the caller gives none; None sends nothing."""
    # --- sizes ---
    counts_tokens: bool = False
    """Whether the provider has its dialect's endpoint for counting tokens; otherwise they are estimated."""
    context_window: int | None = None
    max_output: int | None = None
    """The most tokens of one reply, including thinking, if known."""
    quirks: frozenset[str] = frozenset()
    """Peculiarities that the codec of the dialect knows by name."""

    def with_changes(self, **changes: Any) -> Profile:
        return msgspec.structs.replace(self, **changes)


def profile_with(known: Profile, given: Profile | Mapping[str, Any]) -> Profile:
    """The given profile, or the known one with the given fields changed."""
    if isinstance(given, Profile):
        return given
    unknown = [name for name in given if name not in Profile.__struct_fields__]
    if unknown:
        message = f"A profile has no field {unknown[0]!r}."
        raise ConfigurationError(message, hint=f"Its fields are: {', '.join(Profile.__struct_fields__)}.")
    return msgspec.structs.replace(known, **given) if given else known


class ProfileRow(Struct, frozen=True, kw_only=True):
    """Fields for the models of a provider whose names match one of the patterns (`*` and `?` as in file names)."""

    provider: str
    models: tuple[str, ...] = ("*",)
    fields: Mapping[str, Any]


def row(provider: str, models: str = "*", **fields: Any) -> ProfileRow:
    """A row; `models` are patterns, separated by spaces."""
    return ProfileRow(provider=provider, models=tuple(models.split()), fields=fields)


def words(text: str = "") -> frozenset[Any]:
    return frozenset(text.split())


def apply_rows(base: Profile, rows: Iterable[ProfileRow], model: str) -> Profile:
    """The base profile with the fields of every matching row; later rows win."""
    changes: dict[str, Any] = {}
    for row in rows:
        if row.provider == base.provider and any(fnmatchcase(model, pattern) for pattern in row.models):
            changes.update(row.fields)
    return msgspec.structs.replace(base, **changes) if changes else base
