"""Spans as plain data, and as a tree of text that tests compare."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman.otel import instrument, uninstrument

VOLATILE = {
    "dragoman.attempt.duration",
    "dragoman.attempt.queued",
    "dragoman.attempt.request_id",
    "dragoman.attempt.waited",
    "gen_ai.conversation.id",
    "gen_ai.response.id",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "jsonrpc.request.id",
    "operation.cost",
    "server.port",
}
"""Attributes whose values differ between runs, and are not compared."""


class Recorded(NamedTuple):
    """A span, as JSON can hold it."""

    trace: str
    id: str
    parent: str | None
    name: str
    kind: str
    status: str
    started: int
    attributes: Mapping[str, Any]
    events: list[tuple[str, Mapping[str, Any]]]
    links: list[str]
    """The ids of the spans that are linked to."""


def recorded(span: ReadableSpan) -> Recorded:
    assert span.context is not None
    return Recorded(
        trace=f"{span.context.trace_id:032x}",
        id=f"{span.context.span_id:016x}",
        parent=None if span.parent is None else f"{span.parent.span_id:016x}",
        name=span.name,
        kind=span.kind.name,
        status=span.status.status_code.name,
        started=span.start_time or 0,
        attributes=dict(span.attributes or {}),
        events=[(event.name, dict(event.attributes or {})) for event in span.events],
        links=[f"{link.context.span_id:016x}" for link in span.links],
    )


class Recorder:
    """Records what the library reports to OpenTelemetry."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    @property
    def spans(self) -> list[Recorded]:
        return [recorded(span) for span in self.exporter.get_finished_spans()]

    @property
    def tree(self) -> str:
        return tree(self.spans)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.spans), encoding="utf-8")

    @property
    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Of every metric the attributes and the data of its points."""
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return {
            each.name: [(dict(point.attributes or {}), point) for point in each.data.data_points] for each in metrics
        }


def read(path: Path) -> list[Recorded]:
    return [Recorded(*each) for each in json.loads(path.read_text(encoding="utf-8"))]


@contextmanager
def recording(**options: Any) -> Generator[Recorder]:
    """Inside the block, the library is traced."""
    recorder = Recorder()
    instrument(tracer_provider=recorder.tracers, meter_provider=recorder.meters, **options)
    try:
        yield recorder
    finally:
        uninstrument()
        recorder.tracers.shutdown()
        recorder.meters.shutdown()


def tree(spans: Iterable[Recorded]) -> str:
    """All spans, a block of lines each, children below and to the right of their parents.

    Attributes whose names begin alike stand in one line.
    """
    spans = sorted(spans, key=lambda span: span.started)
    names = {span.id: span.name for span in spans}
    lines: list[str] = []

    def tell(span: Recorded, indent: str) -> None:
        failed = " failed" if span.status == "ERROR" else ""
        links = "".join([f" → {names.get(each, '?')}" for each in span.links])
        lines.append(f"{indent}{span.name} ({span.kind.lower()}){failed}{links}")
        groups: dict[str, list[str]] = {}
        for said in _told(span.attributes):
            parts = said.partition("=")[0].split(".")
            group = ".".join(parts[:2]) if len(parts) > 2 else parts[0]
            groups.setdefault(group, []).append(said.removeprefix(f"{group}."))
        lines.extend([f"{indent}  {group}: {', '.join(told)}" for group, told in groups.items()])
        for name, attributes in span.events:
            told = [said.removeprefix(f"{name}.").replace("http.response.", "") for said in _told(attributes)]
            lines.append(f"{indent}  * {name}: {', '.join(told)}")
        below = [each for each in spans if each.parent == span.id and each.trace == span.trace]
        for each in _in_time(below):
            tell(each, indent + "    ")

    for span in spans:
        if span.parent not in names:
            tell(span, "")
    return "\n".join(lines)


def _is_tool(span: Recorded) -> bool:
    return span.name.startswith("execute_tool")


def _in_time(spans: list[Recorded]) -> list[Recorded]:
    """By time, but neighbours that are tool calls by the ids of the calls."""
    ordered: list[Recorded] = []
    group: list[Recorded] = []
    for span in [*sorted(spans, key=lambda each: each.started), None]:
        if span is not None and _is_tool(span):
            group.append(span)
            continue
        ordered += sorted(group, key=lambda each: str(each.attributes.get("gen_ai.tool.call.id")))
        group = []
        if span is not None:
            ordered.append(span)
    return ordered


def _told(attributes: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}={'…' if _is_volatile(name, value) else _flat(value)}" for name, value in sorted(attributes.items())
    ]


def _is_volatile(name: str, value: Any) -> bool:
    return name in VOLATILE or (name == "gen_ai.tool.call.id" and value.startswith("mcp_"))


def _flat(value: Any) -> Any:
    return ",".join(map(str, cast("list[Any]", value))) if isinstance(value, list | tuple) else value
