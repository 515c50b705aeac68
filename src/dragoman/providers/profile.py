"""What a model can do, as data.

Owns: Profile, its parts, and how rows are laid over each other. A codec asks the profile; it never looks at a model's
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import MediaKind
from dragoman.errors import ConfigurationError

StructuredStyle: TypeAlias = Literal["native", "tool", "prompt"]
"""How a reply of a given schema is had: the provider's own feature, a forced tool call, or by asking nicely."""

SchemaStyle: TypeAlias = Literal["json_schema", "openai_strict", "anthropic_strict"]
"""Which JSON Schema a dialect takes: all of it, or OpenAI's or Anthropic's strict subset."""

ReasoningStyle: TypeAlias = Literal["none", "effort", "budget", "adaptive"]
"""How thinking is asked for: not at all, by a word, by a number of tokens, or by a word that the model may adapt."""


class ToolLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a provider allows of tools."""

    max_tools: int | None = None
    name_pattern: str = r"[a-zA-Z0-9_-]{1,64}"
    """A regular expression that the whole name must match."""
    max_name_length: int = 64
    max_description_length: int | None = None


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Abilities, limits and names of one model at one provider. A user may pass one or change fields of it."""

    provider: str
    """The name of the provider, as in `provider:model`."""
    dialect: str
    """The name of the codec that speaks to it."""
    # --- what it takes in ---
    media: frozenset[MediaKind] = frozenset(["image"])
    """Kinds of media that it takes in messages of the user."""
    media_urls: frozenset[MediaKind] = frozenset(["image"])
    """Kinds that may be given by URL; the others are sent as bytes."""
    tool_result_media: frozenset[MediaKind] = frozenset()
    """Kinds that may stand in a tool's result."""
    system_role: Literal["system", "developer", "user"] = "system"
    # --- tools ---
    tools: bool = True
    tool_limits: ToolLimits = ToolLimits()
    tool_choices: frozenset[str] = frozenset(["auto", "none", "required", "tool"])
    """Which tool choices it takes; "tool" stands for naming one."""
    parallel_tool_calls: bool = True
    """Whether it may call several tools in one reply."""
    single_tool_calls: bool = True
    """Whether it can be held to at most one call in a reply."""
    tool_examples: bool = False
    """Whether a tool has a place for examples; otherwise its description has them."""
    strict_tools: bool = False
    """Whether `strict` on a tool means something to it."""
    tool_schema: SchemaStyle = "json_schema"
    tool_search: int = 0
    """Among how many tools the provider itself finds those that the model looks for; 0: it does not."""
    needs_tools_of_history: bool = False
    """Whether a history with tool calls is refused in a request that declares no tools."""
    # --- structured replies ---
    structured: StructuredStyle = "native"
    native_beside_tools: bool = True
    """Whether "native" goes together with tools; where it does not, a request with tools asks by a tool."""
    structured_schema: SchemaStyle = "json_schema"
    # --- thinking ---
    reasoning: ReasoningStyle = "none"
    efforts: frozenset[str] = frozenset()
    """The efforts that it knows by name."""
    reasoning_replayed: bool = True
    """Whether its thinking is sent back to it in later turns."""
    # --- parameters ---
    unsupported: frozenset[str] = frozenset()
    """Names of ModelOptions fields that it does not take."""
    renamed: Mapping[str, str] = {}
    """Names of parameters that differ from the dialect's usual ones, e.g. {"max_tokens": "max_completion_tokens"}."""
    default_max_tokens: int | None = None
    """What is sent as max_tokens where the caller says nothing; None sends nothing."""
    # --- sizes ---
    counts_tokens: bool = False
    """Whether the provider has its dialect's endpoint for counting tokens; elsewhere they are estimated."""
    context_window: int | None = None
    max_output: int | None = None
    """The most tokens of one reply, thinking included, where it is known."""
    # --- further ways of particular servers, understood by the codec of the dialect ---
    quirks: frozenset[str] = frozenset()

    def with_changes(self, **changes: Any) -> Profile:
        return msgspec.structs.replace(self, **changes)


def profile_with(known: Profile, given: Profile | Mapping[str, Any]) -> Profile:
    """A whole profile that is given, or the known one with some fields changed."""
    if isinstance(given, Profile):
        return given
    unknown = [name for name in given if name not in Profile.__struct_fields__]
    if unknown:
        message = f"A profile has no field {unknown[0]!r}."
        raise ConfigurationError(message, hint=f"Its fields are: {', '.join(Profile.__struct_fields__)}.")
    return msgspec.structs.replace(known, **given) if given else known


class ProfileRow(Struct, frozen=True, kw_only=True):
    """Fields that hold for the models of a provider whose names match one of the patterns (`*` and `?` as in files)."""

    provider: str
    models: tuple[str, ...] = ("*",)
    fields: Mapping[str, Any]


def row(provider: str, models: str = "*", **fields: Any) -> ProfileRow:
    """A row; the patterns of its models are given in one text."""
    return ProfileRow(provider=provider, models=tuple(models.split()), fields=fields)


def words(text: str = "") -> frozenset[Any]:
    return frozenset(text.split())


def apply_rows(base: Profile, rows: Iterable[ProfileRow], model: str) -> Profile:
    """The base profile with the fields of every row that fits, in order; later rows win."""
    changes: dict[str, Any] = {}
    for row in rows:
        if row.provider == base.provider and any(fnmatchcase(model, pattern) for pattern in row.models):
            changes.update(row.fields)
    return msgspec.structs.replace(base, **changes) if changes else base
