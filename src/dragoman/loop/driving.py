"""What both drivers do with a run: ask for its next effect, and tell how that went.

Owns: Driven.
Must not know: how effects are carried out.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Self

from msgspec import Struct

from dragoman.engines.reply import Reply

from .effects import Effect
from .run import LoopRun

__all__ = ["Driven"]


# A struct, because one is made for every run, and a struct is made at a third of the cost.
class Driven(Struct, eq=False):
    """A run while it is carried out. Use it in a `with` block: however that is left, the conversation is complete."""

    _run: LoopRun
    _effects: Generator[Effect, Any, None]
    answer: Reply | None = None
    """What the model said to the last effect."""
    failure: Exception | None = None
    """What went wrong with it. The run has its say first; then it is raised to the caller."""

    def next(self) -> Effect | None:
        """The next effect; None if the run has ended. Raises what ended it, if something did."""
        answer, failure = self.answer, self.failure
        self.answer = self.failure = None
        try:
            return self._effects.send(answer) if failure is None else self._effects.throw(failure)
        except StopIteration:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._effects.close()
        self._run.settle()
