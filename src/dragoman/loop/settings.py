"""What a loop can be told beside its model, its tools and its conversation.

Owns: LoopOptions, as users give them, and LoopSettings, where everything is said: the defaults are here.
Must not know: how a run goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, TypedDict

from msgspec import Struct

from dragoman.providers.options import ModelOptions
from dragoman.tools.run import ToolConfig

from .context import ContextPolicy
from .hooks import LoopHooks
from .limits import Limits

OnLimit: TypeAlias = Literal["raise", "return"]


class LoopOptions(TypedDict, total=False):
    """What a loop can be given beside its model and its tools."""

    options: ModelOptions
    """What is asked of the model in every step; without it, what the engine was made with."""
    limits: Limits
    """How far a run may go; without it, as many steps as the tools' config says."""
    on_limit: OnLimit
    """`raise` an error when a limit is reached, or `return` the result so far."""
    repeat_tool_choice: bool
    """Whether a tool choice of `required`, or of one tool, holds for every step."""
    hooks: Iterable[LoopHooks]
    """Who is told of each phase of a run."""
    context: Iterable[ContextPolicy]
    """Who may shorten the history before the model is asked."""
    deps: object
    """What tools find in their context."""


class LoopSettings(Struct, frozen=True, kw_only=True):
    """Everything about a run but its model, its tools and its conversation."""

    options: ModelOptions = ModelOptions()
    limits: Limits = Limits()
    on_limit: OnLimit = "raise"
    repeat_tool_choice: bool = False
    """Whether a tool choice of `required`, or of one tool, holds for every step. It then ends only at a limit."""
    hooks: tuple[LoopHooks, ...] = ()
    context: tuple[ContextPolicy, ...] = ()
    """Asked one after the other before each call of the model."""
    deps: object = None
    """What tools find in their context."""
    clock: Callable[[], float] = time.monotonic


def settings_of(given: LoopOptions, model: ModelOptions, tools: ToolConfig) -> LoopSettings:
    """The settings that were given; what was not is as the engine and the tools' config have it."""
    limits = given.get("limits")
    return LoopSettings(
        options=given.get("options", model),
        limits=Limits(steps=tools.max_iterations) if limits is None else limits,
        on_limit=given.get("on_limit", "raise"),
        repeat_tool_choice=given.get("repeat_tool_choice", False),
        hooks=tuple(given.get("hooks", ())),
        context=tuple(given.get("context", ())),
        deps=given.get("deps"),
    )
