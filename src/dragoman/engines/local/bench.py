"""How fast a local model is on this machine; how well it answers is measured by bench/local_quality.py."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from dragoman.conversation import Conversation, Message, TextDelta
from dragoman.providers.options import ModelOptions

from .factory import local_engine
from .progress import OnProgress

_PROMPT = "The quick brown fox jumps over the lazy dog. " * 40 + "How many dogs are in this text?"


class Figures(Struct, frozen=True, kw_only=True):
    """What was measured."""

    model: str
    load_seconds: float
    """Until the first word of an answer to a word: fetching not included, loading included if it was not loaded."""
    prompt_tokens: int
    read_per_second: float
    """Tokens of a prompt."""
    written_tokens: int
    written_per_second: float
    """Tokens of an answer."""

    def __str__(self) -> str:
        return (
            f"{self.model}: ready in {self.load_seconds:.1f} s, reads {self.read_per_second:.0f} tokens a second, "
            f"writes {self.written_per_second:.1f}"
        )


def bench(
    name: str = "",
    *,
    tokens: int = 64,
    progress: OnProgress | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Figures:
    """Measure a model. Other work on the machine makes it look slower than it is."""
    with local_engine(name, progress=progress) as engine:
        began = clock()
        engine.reply(Conversation().plus(Message.user("Hi")), options=ModelOptions(max_tokens=1))
        loaded = clock()
        # An answer may end early; asking for no end makes the figure comparable.
        options = ModelOptions(
            max_tokens=tokens, temperature=0.0, extra_body={"ignore_eos": True, "cache_prompt": False}
        )
        first: float | None = None
        with engine.stream(Conversation().plus(Message.user(_PROMPT)), options=options) as stream:
            for event in stream:
                if first is None and isinstance(event, TextDelta):
                    first = clock()
        ended = clock()
        usage = stream.message.usage
        read, wrote = (usage.input or 0, usage.output or 0) if usage is not None else (0, 0)
        first = ended if first is None else first
        return Figures(
            model=engine.name,
            load_seconds=loaded - began,
            prompt_tokens=read,
            read_per_second=read / max(first - loaded, 1e-9),
            written_tokens=wrote,
            written_per_second=max(wrote - 1, 0) / max(ended - first, 1e-9),
        )
