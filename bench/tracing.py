"""What tracing costs a turn: `python bench/tracing.py`, with the environment of the checks (.dev/env).

One program, one turn (a question and an answer from a script, so that nothing but this library is at work), in
interleaved rounds: untraced, traced by OpenTelemetry's SDK with spans that go nowhere, with metrics beside them, with
the content of messages. Beside them the SDK alone, making as many spans with as many attributes as the turn has. The
figures are processor time, the least of all rounds, so that a busy machine does not matter.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, set_span_in_context

from dragoman import ChatClient, ScriptedEngine, ToolCall
from dragoman.conversation import Message, Usage
from dragoman.otel import instrument, uninstrument

ROUNDS, TURNS = 25, 200


class Kept(SpanProcessor):
    """Takes spans, and keeps the last ones to look at."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans = [*self.spans[-9:], span]


def turns(*, stream: bool = False, tools: bool = False) -> Callable[[], object]:
    """One turn on a client without a history."""
    answer = Message(role="assistant", blocks=Message.assistant("Hello. " * 20).blocks, usage=Usage(100, 40))
    calls = Message.assistant(ToolCall("1", "add", '{"a": 1, "b": 2}'), ToolCall("2", "add", '{"a": 3, "b": 4}'))
    replies = itertools.cycle([calls, answer] if tools else [answer])
    client = ChatClient(ScriptedEngine(replies, piece=2 if stream else None), [add] if tools else [], stateless=True)
    if stream:
        return lambda: client.stream_chat("Hello", lambda _: None)
    return lambda: client.chat("Hello")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def cost(work: Callable[[], object]) -> float:
    """Microseconds of processor time."""
    begin = time.process_time()
    for _ in range(TURNS):
        work()
    return (time.process_time() - begin) / TURNS * 1e6


def main() -> None:
    kept = Kept()
    tracers = TracerProvider()
    tracers.add_span_processor(kept)
    meters = MeterProvider([InMemoryMetricReader()])
    tracer = tracers.get_tracer("alone")

    def switch(how: str) -> None:
        if how == "off":
            uninstrument()
        elif how == "spans":
            instrument(tracer_provider=tracers)
        else:
            instrument(tracer_provider=tracers, meter_provider=meters, content=how == "spans, metrics, content")

    hows = ("off", "spans", "spans, metrics", "spans, metrics, content")
    print(f"{'turn':24}{'':26}{'µs':>8}{'more':>8}{'SDK alone':>11}")
    for name, work in (
        ("question and answer", turns()),
        ("two tools", turns(tools=True)),
        ("streamed, 70 events", turns(stream=True)),
    ):
        switch("spans")
        kept.spans = []
        work()
        made = list(kept.spans)

        def alone(made: list[ReadableSpan] = made) -> None:
            context = None
            for span in reversed(made):
                begun = tracer.start_span(span.name, context, span.kind or SpanKind.INTERNAL, {})
                begun.set_attributes(dict(span.attributes or {}))
                for event in span.events:
                    begun.add_event(event.name, event.attributes)
                context = set_span_in_context(begun)
                begun.end()

        least: dict[str, float] = {}
        for _ in range(ROUNDS):
            for how in hows:
                switch(how)
                least[how] = min(least.get(how, 1e9), cost(work))
            uninstrument()
            least["SDK"] = min(least.get("SDK", 1e9), cost(alone))
        for how in hows:
            more = f"{least[how] - least['off']:8.0f}" if how != "off" else " " * 8
            sdk = f"{least['SDK']:7.0f} ({len(made)})" if how == "spans" else ""
            print(f"{name if how == 'off' else '':24}{how:26}{least[how]:8.0f}{more}{sdk:>11}")


if __name__ == "__main__":
    main()
