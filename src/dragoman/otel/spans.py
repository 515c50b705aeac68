"""What the library does, as spans and metrics of OpenTelemetry.

Owns: the span of each operation, its attributes at the start and at the end, and what is measured.
Must not know: exporters. The program chooses them, with OpenTelemetry's own SDK.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast

from opentelemetry import context as contexts
from opentelemetry.metrics import Counter, Histogram, MeterProvider, get_meter
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dragoman._crashes import log_crash
from dragoman._observer import Observed
from dragoman._version import __version__
from dragoman.conversation import Conversation, Message, ToolCall, ToolSpec, Usage
from dragoman.engines import AsyncHttpEngine, BaseEngine, HttpEngine, Reply
from dragoman.loop import ENDINGS, LoopRun
from dragoman.providers import ModelOptions
from dragoman.tools import AnyTool, Outcome
from dragoman.transport import AttemptRecord, host_of, port_of

from . import names
from .content import Content, finish_reason

Attributes: TypeAlias = dict[str, str | bool | int | float | Sequence[str]]
Result = TypeVar("Result")

_LOGGER: Final = logging.getLogger("dragoman.otel")
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_RUN: Final = contexts.create_key("dragoman-run")
"""The key of the current run in a context."""


class OtelObserver:
    """Reports everything that the library does to OpenTelemetry."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, content: Content | None
    ) -> None:
        self.tracer: Tracer = get_tracer(
            "dragoman", __version__, tracer_provider=tracer_provider, schema_url=names.SCHEMA_URL
        )
        meter = get_meter("dragoman", __version__, meter_provider=meter_provider, schema_url=names.SCHEMA_URL)
        self.content: Content | None = content
        self._histograms: dict[str, Histogram] = {
            name: meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)
            for name, (unit, description, buckets) in names.HISTOGRAMS.items()
        }
        self.retries: Counter = meter.create_counter(
            "dragoman.client.retries", "{attempt}", "Attempts after the first one of a model call."
        )

    def record(self, name: str, value: float, attributes: Attributes, context: contexts.Context) -> None:
        self._histograms[name].record(value, attributes, context)

    def run(self, run: LoopRun, engine: BaseEngine, id: Callable[[], str | None]) -> Observed[LoopRun]:
        return _Run(self, run, engine, id)

    def model_call(
        self,
        engine: BaseEngine,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions | None,
        *,
        stream: bool,
    ) -> Observed[Reply]:
        return _ModelCall(self, engine, conversation, tools, options or engine.options, stream=stream)

    def tool_call(self, call: ToolCall, tool: AnyTool | None) -> Observed[Outcome]:
        return _ToolCall(self, call, tool)

    def save(self, id: str) -> Observed[None]:
        return _Save(self, id)


# --- an operation -----------------------------------------------------------------------------------------------------


class _Operation(Generic[Result]):
    """An operation as a span. Subclasses provide the attributes and the metrics."""

    kind: ClassVar[SpanKind] = SpanKind.INTERNAL

    def __init__(self, observer: OtelObserver, name: str) -> None:
        self._observer: OtelObserver = observer
        self._name: str = name
        self._span: Span | None = None
        self._context: contexts.Context = contexts.Context()
        self._ended: bool = False
        self.began: float = 0.0
        self.first: float | None = None
        """Seconds until the first part of the result arrived."""

    # --- as Observed ---

    def enter(self) -> contexts.Context:
        if self._span is None:
            self._begin()
        before = contexts.get_current()
        contexts.attach(self._context)
        return before

    def leave(self, before: object) -> None:
        # Attached, not detached: a stream may be left in another context than the one in which it was entered.
        contexts.attach(cast("contexts.Context", before))

    def mark(self) -> None:
        self.first = time.perf_counter() - self.began

    def reference(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context)
        return carrier

    def end(self, result: Result | None, error: BaseException | None = None, *, ago: float = 0.0) -> None:
        if self._ended:
            return
        self._ended = True
        span = self._begin() if self._span is None else self._span
        took = max(0.0, time.perf_counter() - self.began - ago)
        over = time.time_ns() - int(ago * 1e9) if ago else None
        try:
            problem = self.problem(result, None if isinstance(error, GeneratorExit) else error)
            if span.is_recording():
                span.set_attributes(self.attributes_after(result))
                if problem is not None:
                    span.set_attribute("error.type", problem)
                    content = self._observer.content  # the error's message may repeat content
                    text = None if content is None else content.text(str(error or problem))
                    span.set_status(Status(StatusCode.ERROR, text))
                self.add_events(span, result)
            self.measure(result, took, problem)
        except Exception as failure:  # noqa: BLE001 -- the observed operation must not fail
            log_crash(_LOGGER, "a span of %s could not be completed", self._name, error=failure)
        span.end(over)

    def _begin(self) -> Span:
        self.began = time.perf_counter()
        self._span, self._context = INVALID_SPAN, contexts.get_current()
        try:
            known, links = self.attributes_before(contexts.get_value(_RUN)), self.links()
            self._span = self._observer.tracer.start_span(self._name, kind=self.kind, attributes=known, links=links)
            self._context = set_span_in_context(self._span)
        except Exception as failure:  # noqa: BLE001 -- the observed operation must not fail
            log_crash(_LOGGER, "a span of %s could not be started", self._name, error=failure)
        return self._span

    # --- for subclasses ---

    def attributes_before(self, run: object) -> Attributes:
        """The attributes known at the start, which samplers see; `run` is the current run, if any."""
        raise NotImplementedError

    def attributes_after(self, result: Result | None) -> Attributes:
        """The attributes known at the end."""
        return {}

    def links(self) -> Sequence[Link]:
        return ()

    def add_events(self, span: Span, result: Result | None) -> None:
        """Add what happened in between."""

    def problem(self, result: Result | None, error: BaseException | None) -> str | None:
        """The kind of error, if there was one."""
        return None if error is None else type(error).__qualname__

    def measure(self, result: Result | None, took: float, problem: str | None) -> None:
        """Record the metrics."""


def _known(attributes: Mapping[str, str | bool | int | float | Sequence[str] | None]) -> Attributes:
    """Without the unknown ones."""
    return {name: value for name, value in attributes.items() if value is not None}


def _with_problem(attributes: Attributes, problem: str | None) -> Attributes:
    return attributes | _known({"error.type": problem})


# --- a run ------------------------------------------------------------------------------------------------------------


class _Run(_Operation[LoopRun]):
    """A turn: `invoke_agent`."""

    def __init__(self, observer: OtelObserver, run: LoopRun, engine: BaseEngine, id: Callable[[], str | None]) -> None:
        super().__init__(observer, "invoke_agent")
        self._at_first: Conversation = run.conversation
        self._model: Attributes = _model_attributes(engine.name)
        self.id: Callable[[], str | None] = id

    def _begin(self) -> Span:
        span = super()._begin()
        self._context = contexts.set_value(_RUN, self, self._context)
        return span

    def attributes_before(self, run: object) -> Attributes:
        return {"gen_ai.operation.name": "invoke_agent", **self._model, **_conversation_attributes(self)}

    def links(self) -> Sequence[Link]:
        """The run that this one continues: it paused for an approval, perhaps in another process."""
        if not self._at_first.pending_tool_calls:
            return ()
        carrier = {key: value for key, value in self._at_first.metadata.items() if isinstance(value, str)}
        found = get_current_span(_PROPAGATOR.extract(carrier, contexts.Context())).get_span_context()
        return (Link(found),) if found.is_valid else ()

    def attributes_after(self, result: LoopRun | None) -> Attributes:
        if result is None:
            return {}
        replies = result.replies
        counted = [reply.message.usage for reply in replies if reply.message.usage is not None]
        passed_over = {attempt.model for reply in replies for attempt in reply.attempts if not attempt.number}
        attributes = _conversation_attributes(self) | _known(
            {
                "dragoman.run.steps": len(replies),
                "dragoman.run.ending": None if result.ending is None else ENDINGS[type(result.ending)],
                "dragoman.run.passed_over": sorted(passed_over) or None,
            }
        )
        if counted:
            attributes |= _usage_attributes(Usage.total_of(counted))
        if (content := self._observer.content) is not None:
            if result.conversation.system is not None:
                attributes["gen_ai.system_instructions"] = content.system(result.conversation.system)
            new = result.conversation.messages[len(self._at_first.messages) :]
            prompts = [message for message in new if message.role == "user"]
            if prompts:
                attributes["gen_ai.input.messages"], _ = content.messages(prompts)
            if replies:
                attributes["gen_ai.output.messages"], _ = content.messages([replies[-1].message], answer=True)
        return attributes

    def measure(self, result: LoopRun | None, took: float, problem: str | None) -> None:
        model = {"gen_ai.request.model": self._model["gen_ai.request.model"]}
        self._observer.record("gen_ai.invoke_agent.duration", took, _with_problem(model, problem), self._context)


def _conversation_attributes(run: object) -> Attributes:
    return _known({"gen_ai.conversation.id": run.id()}) if isinstance(run, _Run) else {}


# --- a model call -----------------------------------------------------------------------------------------------------


class _ModelCall(_Operation[Reply]):
    """A model call with all its attempts: `chat MODEL`."""

    kind = SpanKind.CLIENT

    def __init__(
        self,
        observer: OtelObserver,
        engine: BaseEngine,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        *,
        stream: bool,
    ) -> None:
        self._model: Attributes = {"gen_ai.operation.name": "chat", **_model_attributes(engine.name)}
        if isinstance(engine, HttpEngine | AsyncHttpEngine):
            self._model |= _server_attributes(engine.connection.base_url)
        super().__init__(observer, f"chat {self._model['gen_ai.request.model']}")
        self._conversation: Conversation = conversation
        self._tools: Sequence[ToolSpec] = tools
        self._options: ModelOptions = options
        self._stream: bool = stream
        self._engine: BaseEngine = engine
        self._at: int = 0

    def mark(self) -> None:
        if self._stream:  # a whole reply has no first chunk
            super().mark()

    def _begin(self) -> Span:
        self._at = time.time_ns()
        return super()._begin()

    def attributes_before(self, run: object) -> Attributes:
        if self._observer.content is not None:
            self._observer.content.take_key(self._engine)
        options = self._options
        asked = {
            "gen_ai.request.stream": self._stream or None,
            "gen_ai.request.max_tokens": options.max_tokens,
            "gen_ai.request.temperature": options.temperature,
            "gen_ai.request.top_p": options.top_p,
            "gen_ai.request.top_k": options.top_k,
            "gen_ai.request.seed": options.seed,
            "gen_ai.request.choice.count": options.choices,
            "gen_ai.request.stop_sequences": options.stop or None,
            # From the new repository:
            "gen_ai.request.reasoning.level": None if options.reasoning is None else options.reasoning.effort,
            "gen_ai.output.type": None if options.response_format is None else "json",
        }
        return self._model | _conversation_attributes(run) | _known(asked)

    def attributes_after(self, result: Reply | None) -> Attributes:
        attributes = _known({"gen_ai.response.time_to_first_chunk": self.first})
        if result is not None:
            losses = sorted({loss.what for loss in result.losses})
            attributes |= _reply_attributes(result.message) | _known({"dragoman.losses": losses or None})
            attributes |= _known(
                {"operation.cost": result.cost}
            )  # pydantic-ai's name for US dollars, which Logfire reads
        if (content := self._observer.content) is not None:
            content.take_key(self._engine)  # it may have been generated by the call
            attributes["gen_ai.input.messages"], left_out = content.messages(self._conversation.messages)
            if left_out:
                attributes["dragoman.content.left_out"] = left_out
            if self._conversation.system is not None:
                attributes["gen_ai.system_instructions"] = content.system(self._conversation.system)
            if self._tools:
                attributes["gen_ai.tool.definitions"] = content.tools(self._tools)
            if result is not None and result.message.blocks:
                attributes["gen_ai.output.messages"], _ = content.messages([result.message], answer=True)
        return attributes

    def add_events(self, span: Span, result: Reply | None) -> None:
        at = self._at
        for attempt in () if result is None else result.attempts:
            at += int((attempt.waited + attempt.queued + attempt.duration) * 1e9)
            span.add_event("dragoman.attempt", _attempt_attributes(attempt), at)

    def measure(self, result: Reply | None, took: float, problem: str | None) -> None:
        observer, context, attributes = self._observer, self._context, self._model
        if result is not None:
            if result.message.model is not None:
                attributes = {**attributes, "gen_ai.response.model": result.message.model}
            usage = result.message.usage or Usage()
            for kind, count in _known({"input": usage.input, "output": usage.output}).items():
                observer.record(
                    "gen_ai.client.token.usage", cast("int", count), {**attributes, "gen_ai.token.type": kind}, context
                )
            for attempt in result.attempts:
                if attempt.number > 1:
                    observer.retries.add(1, attributes, context)
                if attempt.waited:
                    observer.record("dragoman.client.wait", attempt.waited, attributes, context)
                if attempt.queued:
                    observer.record("dragoman.client.queue", attempt.queued, attributes, context)
        if self.first is not None:
            observer.record("gen_ai.client.operation.time_to_first_chunk", self.first, attributes, context)
        observer.record("gen_ai.client.operation.duration", took, _with_problem(attributes, problem), context)


@lru_cache(256)
def _model_attributes(name: str) -> Attributes:
    provider, _, model = name.partition(":")
    return {"gen_ai.provider.name": names.PROVIDERS.get(provider, provider), "gen_ai.request.model": model}


@lru_cache(256)
def _server_attributes(base_url: str) -> Attributes:
    host = host_of(base_url)
    return _known({"server.address": host, "server.port": port_of(base_url)}) if host else {}


def _usage_attributes(usage: Usage) -> Attributes:
    return _known(
        {
            "gen_ai.usage.input_tokens": usage.input,
            "gen_ai.usage.output_tokens": usage.output,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        }
    )


def _reply_attributes(message: Message) -> Attributes:
    ended = message.stop_reason is not None and (message.blocks or not message.interrupted)
    return _usage_attributes(message.usage or Usage()) | _known(
        {
            "gen_ai.response.model": message.model,
            "gen_ai.response.id": message.id,
            "gen_ai.response.finish_reasons": (finish_reason(message),) if ended else None,
        }
    )


def _attempt_attributes(attempt: AttemptRecord) -> Attributes:
    return _known(
        {
            "dragoman.attempt.number": attempt.number,
            "dragoman.attempt.outcome": attempt.outcome,
            "dragoman.attempt.waited": attempt.waited,
            "dragoman.attempt.duration": attempt.duration,
            "dragoman.attempt.queued": attempt.queued or None,
            "http.response.status_code": attempt.status,
            "dragoman.attempt.request_id": attempt.request_id,
        }
    )


# --- a tool call, and saving a snapshot -------------------------------------------------------------------------------


class _ToolCall(_Operation[Outcome]):
    """A tool call with all its attempts: `execute_tool NAME`."""

    def __init__(self, observer: OtelObserver, call: ToolCall, tool: AnyTool | None) -> None:
        super().__init__(observer, f"execute_tool {call.name}")
        self._call: ToolCall = call
        self._tool: AnyTool | None = tool

    def attributes_before(self, run: object) -> Attributes:
        call, tool = self._call, self._tool
        content = self._observer.content
        return _conversation_attributes(run) | _known(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call.id or None,
                "gen_ai.tool.description": None if tool is None else tool.description or None,
                "gen_ai.tool.call.arguments": None if content is None else content.text(call.arguments),
            }
        )

    def attributes_after(self, result: Outcome | None) -> Attributes:
        if result is None:
            return {}
        content = self._observer.content
        text = None if content is None else content.text(result.result.text)
        return _known({"dragoman.tool.retries": result.result.retries or None, "gen_ai.tool.call.result": text})

    def problem(self, result: Outcome | None, error: BaseException | None) -> str | None:
        if result is None or not result.result.is_error:
            return super().problem(result, error)
        return result.result.error_type or "execution"

    def measure(self, result: Outcome | None, took: float, problem: str | None) -> None:
        about: Attributes = {"gen_ai.tool.name": self._call.name, "gen_ai.tool.type": "function"}
        self._observer.record("gen_ai.execute_tool.duration", took, _with_problem(about, problem), self._context)


class _Save(_Operation[None]):
    """Saving a snapshot: `dragoman.save`."""

    def __init__(self, observer: OtelObserver, id: str) -> None:
        super().__init__(observer, "dragoman.save")
        self._id: str = id

    def attributes_before(self, run: object) -> Attributes:
        return {"gen_ai.conversation.id": self._id}

    def measure(self, result: None, took: float, problem: str | None) -> None:
        self._observer.record("dragoman.store.save.duration", took, _with_problem({}, problem), self._context)
