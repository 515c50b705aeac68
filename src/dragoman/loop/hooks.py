"""Places in a run where a program may look on: for logs, metrics and keeping things safe.

Owns: the phases and what each of them is told.
Must not know: what anybody does there.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeAlias

from dragoman.conversation import Conversation, ToolCall, ToolResult
from dragoman.engines.reply import Reply

if TYPE_CHECKING:
    from .run import LoopRun


Hook: TypeAlias = Awaitable[None] | None
"""What a hook gives back: nothing, or, in an async run, something to be awaited."""


class LoopHooks:
    """Override what you want to see. In an async run the methods may be `async`.

    A hook that raises ends the run with its error; what was done until then is in `run.conversation`.
    """

    def before_model(self, run: LoopRun) -> Hook:
        """The model is about to be asked about `run.conversation`."""

    def after_model(self, run: LoopRun, reply: Reply) -> Hook:
        """The model has answered; its message is the last one of `run.conversation`."""

    def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> Hook:
        """These calls are about to be carried out."""

    def tool_started(self, run: LoopRun, call: ToolCall) -> Hook:
        """This call's function is started as soon as the hook returns."""

    def tool_finished(self, run: LoopRun, result: ToolResult) -> Hook:
        """A call has its result, which nobody else has seen yet."""

    def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> Hook:
        """The results are in `run.conversation`; calls that wait for a person are in `run.pending`."""

    def compacted(self, run: LoopRun, before: Conversation) -> Hook:
        """A context policy has shortened the history; `before` is the one it replaces."""
