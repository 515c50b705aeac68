"""The options of a model call, the same for all providers.

A codec writes each option in its dialect, or refuses it, or reports how it adapted it; nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._checks import CheckedMeta, Count, Positive
from dragoman.conversation import ToolChoice

from .server_tools import AnyServerTool, HostedMcp, as_server_tool

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Reasoning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much the model may think before it answers: an effort or a budget, which is converted where necessary."""

    effort: Effort | None = None
    budget: int | None = None
    """Tokens for thinking."""
    summary: bool = True
    """Whether readable thoughts (or a summary of them) are wanted, where the provider gives a choice."""

    @property
    def is_off(self) -> bool:
        """Whether the model is told not to think."""
        return self.effort == "none" or (self.effort is None and self.budget == 0)


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """The reply must be JSON of this schema."""

    schema: Raw
    name: str = "answer"
    description: str = ""
    strict: bool = True


class ModelOptions(
    Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The options of a model call. None means the provider's default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    """False: at most one call in a reply. None or True: as many as the model likes."""
    reasoning: Reasoning | None = None
    response_format: ResponseFormat | None = None
    cache: bool | Literal["1h"] = False
    """Mark the prompt (system prompt, tools, history) for the provider's cache, where marks are needed; "1h": for an
    hour instead of a few minutes, at a higher price."""
    logprobs: Count | None = None
    """Report log probabilities, with so many alternatives for each token (0: none); see `reply.logprobs`."""
    choices: Positive | None = None
    """How many answers to generate. The first is the reply, `reply.choices` has all, and all are charged."""
    user: str | None = None
    """An opaque id of the end user, for the provider's abuse detection."""
    server_tools: tuple[AnyServerTool, ...] = ()
    """Tools that the provider runs: values such as WebSearch(), or the provider's JSON, which is sent unchanged."""
    extra_body: Mapping[str, object] = {}
    """More members for the request's JSON body; they override ours."""
    extra_headers: Mapping[str, str] = {}
    adapt: bool = False
    """For what the model cannot take: False raises ConfigurationError, True leaves it out and reports an Adaptation."""

    def __post_init__(self) -> None:
        """Copy what the caller could change later: options are immutable."""
        if self.server_tools:
            tools = tuple([as_server_tool(each) for each in self.server_tools])
            msgspec.structs.force_setattr(self, "server_tools", tools)
        if self.extra_body:
            from copy import deepcopy  # few programs need it

            msgspec.structs.force_setattr(self, "extra_body", deepcopy(self.extra_body))

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What differs from the defaults, without the headers, which may hold keys."""
        fields = [(name, getattr(self, name)) for name in self.__struct_fields__]
        changed = [(name, value) for name, value in fields if value != getattr(_PLAIN, name)]
        return [(name, "…" if name == "extra_headers" else value) for name, value in changed]

    def __repr__(self) -> str:
        return f"ModelOptions({', '.join([f'{name}={value!r}' for name, value in self.__rich_repr__()])})"


def without_secrets(options: ModelOptions) -> ModelOptions:
    """The options without headers and tokens of MCP servers, to be stored."""
    tools = [
        msgspec.structs.replace(tool, token=None) if isinstance(tool, HostedMcp) else tool
        for tool in options.server_tools
    ]
    return msgspec.structs.replace(options, extra_headers={}, server_tools=tuple(tools))


_PLAIN: Final = ModelOptions()
