"""A run under somebody's eyes.

Owns: what the streams of both colours can tell of their run.
Must not know: how events come.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.conversation import Conversation
from dragoman.errors import ConfigurationError

from .run import LoopRun, RunResult

__all__ = ["Watched"]


class Watched:
    """What can be asked about a run while it happens."""

    def __init__(self, begun: Sequence[LoopRun]) -> None:
        self._begun: Sequence[LoopRun] = begun
        """The run, once there is one."""

    @property
    def conversation(self) -> Conversation:
        """As far as it has got; complete and valid once the block is left."""
        return self._run.conversation

    @property
    def result(self) -> RunResult:
        """What came of it, once it has ended."""
        return self._run.result

    def cancel(self) -> None:
        """Stop, from any thread; what was said and done stays in the conversation."""
        self._run.cancel()

    @property
    def _run(self) -> LoopRun:
        if not self._begun:
            message = "The turn has not begun."
            raise ConfigurationError(message, hint="Iterate the stream first.")
        return self._begun[0]
