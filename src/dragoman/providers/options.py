"""What can be asked of a model, in one vocabulary for all providers.

Owns: ModelOptions. A codec turns each option into its dialect's field, or refuses it, or reports how it adapted it;
nothing is dropped without a word.
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
    """How much the model may think before it answers. Say one of the two; a profile knows which one a model takes."""

    effort: Effort | None = None
    budget: int | None = None
    """Tokens for thinking."""
    summary: bool = True
    """Whether readable thoughts (or a summary of them) are wanted, where the provider gives a choice."""


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """The reply must be JSON of this schema."""

    schema: Raw
    name: str = "answer"
    description: str = ""
    strict: bool = True


class ModelOptions(
    Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Everything that can be asked of a model. None means: as the provider does by default."""

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
    """Mark the prompt (system prompt, tools, history) for the provider's cache, where marks are needed; "1h": to be
    kept for an hour, at a higher price, instead of the usual few minutes."""
    logprobs: Count | None = None
    """How likely each token of the answer was, and so many alternatives to it (0: none); `reply.logprobs` has them."""
    choices: Positive | None = None
    """How many answers are wanted. The first one is the reply, `reply.choices` has all, and all are paid for."""
    user: str | None = None
    """An opaque id of the end user, for the provider's abuse detection."""
    server_tools: tuple[AnyServerTool, ...] = ()
    """Tools that the provider runs itself: values such as WebSearch(), or its own JSON, passed through as it is."""
    extra_body: Mapping[str, object] = {}
    """Further members of the request's JSON body, in the provider's own words; they win over ours."""
    extra_headers: Mapping[str, str] = {}
    adapt: bool = False
    """What the model cannot take: False raises ConfigurationError, True leaves it out and reports an Adaptation."""

    def __post_init__(self) -> None:
        """Take a copy of what its owner could change later, also deep inside: options are a value like any other."""
        if self.server_tools:
            tools = tuple([as_server_tool(each) for each in self.server_tools])
            msgspec.structs.force_setattr(self, "server_tools", tools)
        if self.extra_body:
            from copy import deepcopy  # few programs need it

            msgspec.structs.force_setattr(self, "extra_body", deepcopy(self.extra_body))

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What differs from the defaults, without the headers, which may hold keys."""
        said = [(name, getattr(self, name)) for name in self.__struct_fields__]
        changed = [(name, value) for name, value in said if value != getattr(_PLAIN, name)]
        return [(name, "…" if name == "extra_headers" else value) for name, value in changed]

    def __repr__(self) -> str:
        return f"ModelOptions({', '.join([f'{name}={value!r}' for name, value in self.__rich_repr__()])})"


def without_secrets(options: ModelOptions) -> ModelOptions:
    """The options as they may be written down: no headers, and no tokens of MCP servers."""
    tools = [
        msgspec.structs.replace(tool, token=None) if isinstance(tool, HostedMcp) else tool
        for tool in options.server_tools
    ]
    return msgspec.structs.replace(options, extra_headers={}, server_tools=tuple(tools))


_PLAIN: Final = ModelOptions()
