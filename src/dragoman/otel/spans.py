"""What the library does, as spans and metrics of OpenTelemetry.

Owns: which operation is which span, what it says of itself at its beginning and its end, and what is counted.
Must not know: exporters. The program sets up where spans and metrics go, with OpenTelemetry's own SDK.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast

from opentelemetry import context as contexts
from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider, get_meter
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
Came = TypeVar("Came")

_LOGGER: Final = logging.getLogger("dragoman.otel")
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_RUN: Final = contexts.create_key("dragoman-run")
"""Under this key a context has the run that work is done for."""


class OtelObserver:
    """Tells OpenTelemetry of everything that the library does."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, content: Content | None
    ) -> None:
        self.tracer: Tracer = get_tracer(
            names.SCOPE, __version__, tracer_provider=tracer_provider, schema_url=names.SCHEMA_URL
        )
        meter = get_meter(names.SCOPE, __version__, meter_provider=meter_provider, schema_url=names.SCHEMA_URL)
        self.content: Content | None = content
        self.tokens: Histogram = _histogram(meter, *names.TOKEN_USAGE_METRIC)
        self.duration: Histogram = _histogram(meter, *names.DURATION_METRIC)
        self.first_chunk: Histogram = _histogram(meter, *names.FIRST_CHUNK_METRIC)
        self.run_duration: Histogram = _histogram(meter, *names.RUN_METRIC)
        self.tool_duration: Histogram = _histogram(meter, *names.TOOL_METRIC)
        self.save_duration: Histogram = _histogram(meter, *names.SAVE_METRIC)
        self.wait: Histogram = _histogram(meter, *names.WAIT_METRIC)
        self.queue: Histogram = _histogram(meter, *names.QUEUE_METRIC)
        name, unit, description = names.RETRIES_METRIC
        self.retries: Counter = meter.create_counter(name, unit, description)

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


def _histogram(meter: Meter, name: str, unit: str, description: str, buckets: Sequence[float]) -> Histogram:
    return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)


# --- an operation -----------------------------------------------------------------------------------------------------


class _Operation(Generic[Came]):
    """Something under way, as a span; a kind of it says what the span tells at its beginning and at its end."""

    kind: ClassVar[SpanKind] = SpanKind.INTERNAL

    def __init__(self, told: OtelObserver, name: str) -> None:
        self._told: OtelObserver = told
        self._name: str = name
        self._span: Span | None = None
        self._context: contexts.Context = contexts.Context()
        self._ended: bool = False
        self.began: float = 0.0
        self.first: float | None = None
        """Seconds until the first part of what is awaited had come."""

    # --- as Observed ---

    def enter(self) -> contexts.Context:
        if self._span is None:
            self._begin()
        before = contexts.get_current()
        contexts.attach(self._context)
        return before

    def leave(self, before: object) -> None:
        # Put back rather than detached: a stream may be left in another context than that which it was read in.
        contexts.attach(cast("contexts.Context", before))

    def mark(self) -> None:
        self.first = time.perf_counter() - self.began

    def reference(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context)
        return carrier

    def end(self, came: Came | None, error: BaseException | None = None, *, ago: float = 0.0) -> None:
        if self._ended:
            return
        self._ended = True
        span = self._begin() if self._span is None else self._span
        took = max(0.0, time.perf_counter() - self.began - ago)
        over = time.time_ns() - int(ago * 1e9) if ago else None
        try:
            problem = self.problem(came, None if isinstance(error, GeneratorExit) else error)
            if span.is_recording():
                span.set_attributes(self.attributes_after(came))
                if problem is not None:
                    span.set_attribute(names.ERROR_TYPE, problem)
                    # What an error says may repeat what was said to the model.
                    said = None if self._told.content is None else self._told.content.text(str(error or problem))
                    span.set_status(Status(StatusCode.ERROR, said))
                self.add_events(span, came)
            self.measure(came, took, problem)
        except Exception:  # whoever is observed must not fail because of it
            _LOGGER.exception("a span of %s could not be completed", self._name)
        span.end(over)

    def _begin(self) -> Span:
        self.began = time.perf_counter()
        self._span, self._context = INVALID_SPAN, contexts.get_current()
        try:
            about = self.attributes_before(contexts.get_value(_RUN))
            self._span = self._told.tracer.start_span(self._name, kind=self.kind, attributes=about, links=self.links())
            self._context = set_span_in_context(self._span)
        except Exception:  # whoever is observed must not fail because of it
            _LOGGER.exception("a span of %s could not be begun", self._name)
        return self._span

    # --- for kinds ---

    def attributes_before(self, run: object) -> Attributes:
        """What is known at the beginning, which samplers may decide by; `run` is what it is done for, if anything."""
        raise NotImplementedError

    def attributes_after(self, came: Came | None) -> Attributes:
        """What is known at the end."""
        return {}

    def links(self) -> Sequence[Link]:
        return ()

    def add_events(self, span: Span, came: Came | None) -> None:
        """Tell what happened meanwhile."""

    def problem(self, came: Came | None, error: BaseException | None) -> str | None:
        """The class of what went wrong, if something did."""
        return None if error is None else type(error).__qualname__

    def measure(self, came: Came | None, took: float, problem: str | None) -> None:
        """Count it."""


def _known(attributes: Mapping[str, str | bool | int | float | Sequence[str] | None]) -> Attributes:
    """Those that there is something to say of."""
    return {name: value for name, value in attributes.items() if value is not None}


def _with_problem(attributes: Attributes, problem: str | None) -> Attributes:
    return attributes | _known({names.ERROR_TYPE: problem})


# --- a run ------------------------------------------------------------------------------------------------------------


class _Run(_Operation[LoopRun]):
    """A turn: `invoke_agent`."""

    def __init__(self, told: OtelObserver, run: LoopRun, engine: BaseEngine, id: Callable[[], str | None]) -> None:
        super().__init__(told, names.INVOKE_AGENT)
        self._at_first: Conversation = run.conversation
        self._model: Attributes = _model_attributes(engine.name)
        self.id: Callable[[], str | None] = id

    def _begin(self) -> Span:
        span = super()._begin()
        self._context = contexts.set_value(_RUN, self, self._context)
        return span

    def attributes_before(self, run: object) -> Attributes:
        return {names.OPERATION: names.INVOKE_AGENT, **self._model, **_conversation_attributes(self)}

    def links(self) -> Sequence[Link]:
        """The run that this one goes on with: it had paused for a person, perhaps in another process."""
        if not self._at_first.pending_tool_calls:
            return ()
        carrier = {key: value for key, value in self._at_first.metadata.items() if isinstance(value, str)}
        found = get_current_span(_PROPAGATOR.extract(carrier, contexts.Context())).get_span_context()
        return (Link(found),) if found.is_valid else ()

    def attributes_after(self, came: LoopRun | None) -> Attributes:
        if came is None:
            return {}
        replies = came.replies
        counted = [reply.message.usage for reply in replies if reply.message.usage is not None]
        passed_over = {attempt.model for reply in replies for attempt in reply.attempts if not attempt.number}
        told = _conversation_attributes(self) | _known(
            {
                names.STEPS: len(replies),
                names.ENDING: None if came.ending is None else ENDINGS[type(came.ending)],
                names.PASSED_OVER: sorted(passed_over) or None,
            }
        )
        if counted:
            told |= _usage_attributes(Usage.total_of(counted))
        if (content := self._told.content) is not None:
            if came.conversation.system is not None:
                told[names.SYSTEM_INSTRUCTIONS] = content.system(came.conversation.system)
            new = came.conversation.messages[len(self._at_first.messages) :]
            said = [message for message in new if message.role == "user"]
            if said:
                told[names.INPUT_MESSAGES], _ = content.messages(said)
            if replies:
                told[names.OUTPUT_MESSAGES], _ = content.messages([replies[-1].message], answer=True)
        return told

    def measure(self, came: LoopRun | None, took: float, problem: str | None) -> None:
        model = {names.REQUEST_MODEL: self._model[names.REQUEST_MODEL]}
        self._told.run_duration.record(took, _with_problem(model, problem), self._context)


def _conversation_attributes(run: object) -> Attributes:
    return _known({names.CONVERSATION: run.id()}) if isinstance(run, _Run) else {}


# --- a call of a model ------------------------------------------------------------------------------------------------


class _ModelCall(_Operation[Reply]):
    """A call of a model with all its attempts: `chat MODEL`."""

    kind = SpanKind.CLIENT

    def __init__(
        self,
        told: OtelObserver,
        engine: BaseEngine,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        *,
        stream: bool,
    ) -> None:
        self._model: Attributes = {names.OPERATION: names.CHAT, **_model_attributes(engine.name)}
        if isinstance(engine, HttpEngine | AsyncHttpEngine):
            self._model |= _server_attributes(engine.connection.base_url)
        super().__init__(told, f"{names.CHAT} {self._model[names.REQUEST_MODEL]}")
        self._conversation: Conversation = conversation
        self._tools: Sequence[ToolSpec] = tools
        self._options: ModelOptions = options
        self._stream: bool = stream
        self._engine: BaseEngine = engine
        self._at: int = 0

    def _begin(self) -> Span:
        self._at = time.time_ns()
        return super()._begin()

    def attributes_before(self, run: object) -> Attributes:
        if self._told.content is not None:
            self._told.content.take_key(self._engine)
        options = self._options
        asked = {
            names.STREAM: self._stream or None,
            names.MAX_TOKENS: options.max_tokens,
            names.TEMPERATURE: options.temperature,
            names.TOP_P: options.top_p,
            names.TOP_K: options.top_k,
            names.SEED: options.seed,
            names.CHOICES: options.choices,
            names.STOP_SEQUENCES: options.stop or None,
            names.REASONING_LEVEL: None if options.reasoning is None else options.reasoning.effort,
            names.OUTPUT_TYPE: None if options.response_format is None else "json",
        }
        return self._model | _conversation_attributes(run) | _known(asked)

    def attributes_after(self, came: Reply | None) -> Attributes:
        told = _known({names.TIME_TO_FIRST_CHUNK: self.first})
        if came is not None:
            losses = sorted({loss.what for loss in came.losses})
            told |= _reply_attributes(came.message) | _known({names.COST: came.cost, names.LOSSES: losses or None})
        if (content := self._told.content) is not None:
            content.take_key(self._engine)  # one that was made meanwhile
            told[names.INPUT_MESSAGES], left_out = content.messages(self._conversation.messages)
            if left_out:
                told[names.LEFT_OUT] = left_out
            if self._conversation.system is not None:
                told[names.SYSTEM_INSTRUCTIONS] = content.system(self._conversation.system)
            if self._tools:
                told[names.TOOL_DEFINITIONS] = content.tools(self._tools)
            if came is not None and came.message.blocks:
                told[names.OUTPUT_MESSAGES], _ = content.messages([came.message], answer=True)
        return told

    def add_events(self, span: Span, came: Reply | None) -> None:
        at = self._at
        for attempt in () if came is None else came.attempts:
            at += int((attempt.waited + attempt.queued + attempt.duration) * 1e9)
            span.add_event(names.ATTEMPT, _attempt_attributes(attempt), at)

    def measure(self, came: Reply | None, took: float, problem: str | None) -> None:
        told, context, attributes = self._told, self._context, self._model
        if came is not None:
            if came.message.model is not None:
                attributes = {**attributes, names.RESPONSE_MODEL: came.message.model}
            usage = came.message.usage or Usage()
            for kind, count in _known({"input": usage.input, "output": usage.output}).items():
                told.tokens.record(cast("int", count), {**attributes, names.TOKEN_TYPE: kind}, context)
            for attempt in came.attempts:
                if attempt.number > 1:
                    told.retries.add(1, attributes, context)
                if attempt.waited:
                    told.wait.record(attempt.waited, attributes, context)
                if attempt.queued:
                    told.queue.record(attempt.queued, attributes, context)
        if self.first is not None:
            told.first_chunk.record(self.first, attributes, context)
        told.duration.record(took, _with_problem(attributes, problem), context)


@lru_cache(256)
def _model_attributes(name: str) -> Attributes:
    provider, _, model = name.partition(":")
    return {names.PROVIDER: names.PROVIDERS.get(provider, provider), names.REQUEST_MODEL: model}


@lru_cache(256)
def _server_attributes(base_url: str) -> Attributes:
    host = host_of(base_url)
    return _known({names.SERVER_ADDRESS: host, names.SERVER_PORT: port_of(base_url)}) if host else {}


def _usage_attributes(usage: Usage) -> Attributes:
    return _known(
        {
            names.INPUT_TOKENS: usage.input,
            names.OUTPUT_TOKENS: usage.output,
            names.CACHE_READ_TOKENS: usage.cache_read,
            names.CACHE_WRITE_TOKENS: usage.cache_write,
            names.REASONING_TOKENS: usage.reasoning,
        }
    )


def _reply_attributes(message: Message) -> Attributes:
    ended = message.stop_reason is not None and (message.blocks or not message.interrupted)
    return _usage_attributes(message.usage or Usage()) | _known(
        {
            names.RESPONSE_MODEL: message.model,
            names.RESPONSE_ID: message.id,
            names.FINISH_REASONS: (finish_reason(message),) if ended else None,
        }
    )


def _attempt_attributes(attempt: AttemptRecord) -> Attributes:
    return _known(
        {
            names.ATTEMPT_NUMBER: attempt.number,
            names.ATTEMPT_OUTCOME: attempt.outcome,
            names.ATTEMPT_WAITED: attempt.waited,
            names.ATTEMPT_DURATION: attempt.duration,
            names.ATTEMPT_QUEUED: attempt.queued or None,
            names.HTTP_STATUS: attempt.status,
            names.ATTEMPT_REQUEST_ID: attempt.request_id,
        }
    )


# --- a call of a tool, and the saving of a snapshot -------------------------------------------------------------------


class _ToolCall(_Operation[Outcome]):
    """A call of a tool with all its tries: `execute_tool NAME`."""

    def __init__(self, told: OtelObserver, call: ToolCall, tool: AnyTool | None) -> None:
        super().__init__(told, f"{names.EXECUTE_TOOL} {call.name}")
        self._call: ToolCall = call
        self._tool: AnyTool | None = tool

    def attributes_before(self, run: object) -> Attributes:
        call, tool = self._call, self._tool
        content = self._told.content
        return _conversation_attributes(run) | _known(
            {
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL_NAME: call.name,
                names.TOOL_TYPE: "function",
                names.TOOL_CALL_ID: call.id or None,
                names.TOOL_DESCRIPTION: None if tool is None else tool.description or None,
                names.TOOL_ARGUMENTS: None if content is None else content.text(call.arguments),
            }
        )

    def attributes_after(self, came: Outcome | None) -> Attributes:
        if came is None:
            return {}
        content, result = self._told.content, came.result
        said = None if content is None else content.text(result.text)
        return _known({names.TOOL_RETRIES: result.retries or None, names.TOOL_RESULT: said})

    def problem(self, came: Outcome | None, error: BaseException | None) -> str | None:
        if came is None or not came.result.is_error:
            return super().problem(came, error)
        return came.result.error_type or "execution"

    def measure(self, came: Outcome | None, took: float, problem: str | None) -> None:
        about: Attributes = {names.TOOL_NAME: self._call.name, names.TOOL_TYPE: "function"}
        self._told.tool_duration.record(took, _with_problem(about, problem), self._context)


class _Save(_Operation[None]):
    """The saving of a snapshot."""

    def __init__(self, told: OtelObserver, id: str) -> None:
        super().__init__(told, names.SAVE)
        self._id: str = id

    def attributes_before(self, run: object) -> Attributes:
        return {names.CONVERSATION: self._id}

    def measure(self, came: None, took: float, problem: str | None) -> None:
        self._told.save_duration.record(took, _with_problem({}, problem), self._context)
