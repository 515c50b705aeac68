"""Token counts of a reply, and their sum over many.

Owns: the meaning of each count, the same for all providers.
Must not know: how a provider names or splits them.
"""

from __future__ import annotations

from .values import Value

__all__ = ["Usage"]


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else a + b


class Usage(Value, frozen=True):
    """Tokens of one reply, or of several added up. `None` means that the provider did not say.

    `input` counts everything the model read, cached parts included; `cache_read` and `cache_write` are parts of
    `input`, `reasoning` is a part of `output`.
    """

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    total: int | None = None
    partial: bool = False
    """True for a sum in which some reply did not report its usage: the counts are lower bounds."""

    @property
    def known(self) -> bool:
        """Whether the provider reported what was read and written."""
        return self.input is not None and self.output is not None

    @property
    def tokens(self) -> int | None:
        """The total as reported, else input + output where both are known."""
        if self.total is not None:
            return self.total
        if self.input is None or self.output is None:
            return None
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=_sum(self.input, other.input),
            output=_sum(self.output, other.output),
            cache_read=_sum(self.cache_read, other.cache_read),
            cache_write=_sum(self.cache_write, other.cache_write),
            reasoning=_sum(self.reasoning, other.reasoning),
            total=_sum(self.tokens, other.tokens),
            partial=self.partial or other.partial or not (self.known and other.known),
        )
