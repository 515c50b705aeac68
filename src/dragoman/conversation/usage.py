"""Token counts of replies."""

from __future__ import annotations

from collections.abc import Iterable

from .values import Value


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else a + b


class Usage(Value, frozen=True):
    """Tokens of one reply, or the sum of several. `None` means that the provider did not report it.

    `input` counts everything the model read, including cached parts; `cache_read`, `cache_write` and `audio_input` are
    parts of `input`, `reasoning` and `audio_output` are parts of `output`.
    """

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    total: int | None = None
    cache_write_1h: int | None = None
    """The part of `cache_write` that is cached for an hour, which costs more."""
    audio_input: int | None = None
    audio_output: int | None = None
    audio_cache_read: int | None = None
    """The part of `audio_input` that was read from the cache."""
    charged: float | None = None
    """The cost in US dollars, if the provider reported it or you set your own prices."""
    partial: bool = False
    """Whether this is a sum with unreported usage: the counts are lower bounds."""

    @property
    def known(self) -> bool:
        """Whether the provider reported what was read and written."""
        return self.input is not None and self.output is not None

    @property
    def tokens(self) -> int | None:
        """The reported total, else input + output if both are known."""
        if self.total is not None:
            return self.total
        if self.input is None or self.output is None:
            return None
        return self.input + self.output

    @classmethod
    def total_of(cls, usages: Iterable[Usage | None]) -> Usage:
        """The sum; None stands for a reply whose usage was not reported."""
        return sum([each or cls() for each in usages], cls(input=0, output=0))

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=_sum(self.input, other.input),
            output=_sum(self.output, other.output),
            cache_read=_sum(self.cache_read, other.cache_read),
            cache_write=_sum(self.cache_write, other.cache_write),
            reasoning=_sum(self.reasoning, other.reasoning),
            total=_sum(self.tokens, other.tokens),
            cache_write_1h=_sum(self.cache_write_1h, other.cache_write_1h),
            audio_input=_sum(self.audio_input, other.audio_input),
            audio_output=_sum(self.audio_output, other.audio_output),
            audio_cache_read=_sum(self.audio_cache_read, other.audio_cache_read),
            partial=self.partial or other.partial or not (self.known and other.known),
        )
