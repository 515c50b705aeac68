"""How each provider takes a batch, tells how far it is, gives the results, and cancels.

Owns: a Service for each; from its words to ours. Written from the providers' documentation, and tried against the
simulator: there is no recorded traffic of these APIs.
Must not know: conversations, colours. The engine blocks or awaits.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.engines import AnyHttpEngine
from dragoman.errors import ConfigurationError, ProviderError
from dragoman.providers import Call, Provider, WireRequest, failure, read_refusal
from dragoman.transport import form_with_file

from .handle import BatchState, BatchStatus

_UNANSWERED: Final = "batch_"
_MEGABYTE: Final = 1 << 20
_MOST_RESULTS: Final = 8192 * _MEGABYTE
"""Of one file with results: far more than the largest batch gives."""


class Line(Struct, frozen=True):
    """What the provider gave for one request: the body of a reply, or why there is none."""

    key: str
    body: bytes = b""
    status: int = 200
    code: str = ""
    message: str = ""
    """Why there is no reply, where that is not told in the body."""

    def raise_failure(self, call: Call) -> None:
        """Raise ProviderError if this is no reply."""
        if self.code.startswith(_UNANSWERED):
            message = f"{call.profile.provider}:{call.model} has not answered: {self.message}."
            hint = "Hand it in again, or ask for it alone."
            raise ProviderError(message, provider=call.profile.provider, model=call.model, code=self.code, hint=hint)
        if self.code or self.message:
            raise failure(call, None, self.code or None, self.message, {})
        if self.status >= 300:
            raise read_refusal(self.status, {}, self.body, call)


def unanswered(key: str, how: str) -> Line:
    """What there is of a request that its batch left behind."""
    words = {"cancelled": "was cancelled before", "expired": "expired before"}
    return Line(key, code=f"{_UNANSWERED}{how}", message=f"the batch {words.get(how, 'ended without a result for it')}")


class Service(ABC):
    """A provider's batches."""

    most: ClassVar[int]
    """The most requests of a batch."""
    most_bytes: ClassVar[int]

    @abstractmethod
    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        """Hand requests in, each under its key; gives the batch's id."""

    @abstractmethod
    async def status(self, engine: AnyHttpEngine, id: str) -> BatchStatus:
        """How far it is."""

    @abstractmethod
    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        """The results of a batch that is over, in any order."""

    @abstractmethod
    async def cancel(self, engine: AnyHttpEngine, id: str) -> None:
        """Ask for its end; it may take a while, and what was answered by then stays."""


async def _get(engine: AnyHttpEngine, path: str, *, results: bool = False) -> bytes:
    headers = _CLAUDE if engine.connection.provider.dialect == "anthropic" else {}
    exchange = engine.exchange(WireRequest(path=path, headers=headers), method="GET")
    if results:
        exchange.most_bytes = _MOST_RESULTS
    return await exchange.body()


async def _hand_in(engine: AnyHttpEngine, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Create a batch: not twice, since that would cost money, where nobody knows whether the first try arrived."""
    wire = WireRequest(path=path, body=body, headers=headers)
    return await engine.exchange(wire, repeatable=False).body()


def _json_lines(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if line.strip()]


# --- OpenAI: a file of requests goes in, files of results come out ----------------------------------------------------


class _Counts(Struct, frozen=True):
    total: int = 0
    completed: int = 0
    failed: int = 0


class _Complaint(Struct, frozen=True):
    code: str | None = None
    message: str | None = None


class _Complaints(Struct, frozen=True):
    data: list[_Complaint] | None = None


class _Named(Struct, frozen=True):
    id: str


class _OpenAIBatch(Struct, frozen=True):
    id: str
    status: str
    request_counts: _Counts | None = None
    errors: _Complaints | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None


class _OpenAIResponse(Struct, frozen=True):
    status_code: int = 200
    body: Raw = Raw(b"")


class _OpenAILine(Struct, frozen=True):
    custom_id: str
    response: _OpenAIResponse | None = None
    error: _Complaint | None = None


_OPENAI_STATES: Final[dict[str, BatchState]] = {
    "cancelling": "cancelling",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "expired": "expired",
}


class OpenAIBatches(Service):
    """`/batches` of OpenAI, and of servers that are compatible with it."""

    most = 50_000
    most_bytes = 200 * _MEGABYTE

    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        endpoint = f"/v1{requests[0][1].path}"
        head = b'{"method":"POST","url":' + msgspec.json.encode(endpoint)
        lines = [
            head + b',"custom_id":' + msgspec.json.encode(key) + b',"body":' + request.body + b"}\n"
            for key, request in requests
        ]
        kind, form = form_with_file({"purpose": "batch"}, "batch.jsonl", "application/jsonl", b"".join(lines))
        headers = requests[0][1].headers
        uploaded = await engine.exchange(
            WireRequest(path="/files", body=form, headers={**headers, "content-type": kind})
        ).body()
        file = msgspec.json.decode(uploaded, type=_Named).id
        wanted = {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h"}
        made = await _hand_in(engine, "/batches", msgspec.json.encode(wanted), headers)
        return msgspec.json.decode(made, type=_Named).id

    async def status(self, engine: AnyHttpEngine, id: str) -> BatchStatus:
        found = msgspec.json.decode(await _get(engine, f"/batches/{id}"), type=_OpenAIBatch)
        counts = found.request_counts or _Counts()
        complaints = (found.errors.data if found.errors is not None else None) or []
        return BatchStatus(
            state=_OPENAI_STATES.get(found.status, "running"),
            total=counts.total,
            succeeded=counts.completed,
            failed=counts.failed,
            message="; ".join(each.message or each.code or "" for each in complaints),
            outputs=tuple(filter(None, (found.output_file_id, found.error_file_id))),
        )

    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        bodies = [await _get(engine, f"/files/{file}/content", results=True) for file in status.outputs]
        return (self._read(line) for body in bodies for line in _json_lines(body))

    @staticmethod
    def _read(line: bytes) -> Line:
        read = msgspec.json.decode(line, type=_OpenAILine)
        if read.response is not None:
            return Line(read.custom_id, bytes(read.response.body), read.response.status_code)
        error = read.error or _Complaint()
        return Line(read.custom_id, code=error.code or "", message=error.message or "no reason was given")

    async def cancel(self, engine: AnyHttpEngine, id: str) -> None:
        await engine.exchange(WireRequest(path=f"/batches/{id}/cancel")).body()


# --- Anthropic --------------------------------------------------------------------------------------------------------

_CLAUDE: Final = {"anthropic-version": "2023-06-01"}


class _ClaudeCounts(Struct, frozen=True):
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class _ClaudeBatch(Struct, frozen=True):
    id: str
    processing_status: str
    request_counts: _ClaudeCounts = _ClaudeCounts()


class _ClaudeError(Struct, frozen=True):
    type: str = ""
    message: str = ""


class _ClaudeErrored(Struct, frozen=True):
    error: _ClaudeError = _ClaudeError()


class _ClaudeOutcome(Struct, frozen=True):
    type: str
    message: Raw = Raw(b"")
    error: _ClaudeErrored = _ClaudeErrored()


class _ClaudeLine(Struct, frozen=True):
    custom_id: str
    result: _ClaudeOutcome


class AnthropicBatches(Service):
    """`/v1/messages/batches`."""

    most = 100_000
    most_bytes = 256 * _MEGABYTE

    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        head, middle = b'{"custom_id":', b',"params":'
        written = [head + msgspec.json.encode(key) + middle + request.body + b"}" for key, request in requests]
        asked = [request.headers.get("anthropic-beta", "").split(",") for _, request in requests]
        betas = sorted({name.strip() for names in asked for name in names} - {""})
        headers = {**requests[0][1].headers, **({"anthropic-beta": ",".join(betas)} if betas else {})}
        body = b'{"requests":[' + b",".join(written) + b"]}"
        made = await _hand_in(engine, "/v1/messages/batches", body, headers)
        return msgspec.json.decode(made, type=_Named).id

    async def status(self, engine: AnyHttpEngine, id: str) -> BatchStatus:
        body = await _get(engine, f"/v1/messages/batches/{id}")
        found = msgspec.json.decode(body, type=_ClaudeBatch)
        counts, state = found.request_counts, self._state(found)
        failed = counts.errored + counts.canceled + counts.expired
        total = counts.processing + counts.succeeded + failed
        return BatchStatus(state=state, total=total, succeeded=counts.succeeded, failed=failed)

    @staticmethod
    def _state(found: _ClaudeBatch) -> BatchState:
        if found.processing_status != "ended":
            return "cancelling" if found.processing_status == "canceling" else "running"
        if found.request_counts.canceled:
            return "cancelled"
        return "expired" if found.request_counts.expired else "done"

    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        body = await _get(engine, f"/v1/messages/batches/{id}/results", results=True)
        return map(self._read, _json_lines(body))

    @staticmethod
    def _read(line: bytes) -> Line:
        read = msgspec.json.decode(line, type=_ClaudeLine)
        match read.result.type:
            case "succeeded":
                return Line(read.custom_id, bytes(read.result.message))
            case "errored":
                error = read.result.error.error
                return Line(read.custom_id, code=error.type, message=error.message or "no reason was given")
            case other:
                return unanswered(read.custom_id, "cancelled" if other == "canceled" else other)

    async def cancel(self, engine: AnyHttpEngine, id: str) -> None:
        await engine.exchange(WireRequest(path=f"/v1/messages/batches/{id}/cancel", headers=_CLAUDE)).body()


# --- Gemini: requests and results stand in the batch itself -----------------------------------------------------------


class _GeminiStats(Struct, frozen=True, rename="camel"):
    # 64-bit numbers are texts in Google's JSON.
    request_count: int | str = 0
    successful_request_count: int | str = 0
    failed_request_count: int | str = 0


class _GeminiComplaint(Struct, frozen=True):
    code: int | str | None = None
    message: str = ""
    status: str = ""


class _GeminiAnswer(Struct, frozen=True):
    metadata: dict[str, str] | None = None
    response: Raw = Raw(b"")
    error: _GeminiComplaint = _GeminiComplaint()


class _GeminiAnswers(Struct, frozen=True, rename="camel"):
    inlined_responses: list[_GeminiAnswer] = []


class _GeminiOutput(Struct, frozen=True, rename="camel"):
    inlined_responses: _GeminiAnswers = _GeminiAnswers()


class _GeminiMetadata(Struct, frozen=True, rename="camel"):
    state: str = ""
    batch_stats: _GeminiStats = _GeminiStats()
    output: _GeminiOutput | None = None


class _GeminiBatch(Struct, frozen=True):
    name: str
    metadata: _GeminiMetadata = _GeminiMetadata()
    done: bool = False
    response: _GeminiOutput | None = None
    error: _GeminiComplaint | None = None

    @property
    def state(self) -> BatchState:
        known = _GEMINI_STATES.get(self.metadata.state.rpartition("STATE_")[2])
        if known is not None or not self.done:
            return known or "running"
        return "done" if self.error is None else "failed"


_GEMINI_STATES: Final[dict[str, BatchState]] = {
    "SUCCEEDED": "done",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "EXPIRED": "expired",
    "CANCELLING": "cancelling",
}


class GeminiBatches(Service):
    """`:batchGenerateContent`, with all requests in one body."""

    most = 50_000
    most_bytes = 20 * _MEGABYTE

    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        written = [
            b'{"request":' + request.body + b',"metadata":{"key":' + msgspec.json.encode(key) + b"}}"
            for key, request in requests
        ]
        name = msgspec.json.encode(f"dragoman-{secrets.token_hex(8)}")
        inner = b'{"requests":{"requests":[' + b",".join(written) + b"]}}"
        body = b'{"batch":{"displayName":' + name + b',"inputConfig":' + inner + b"}}"
        path = f"/v1beta/models/{engine.connection.model.removeprefix('models/')}:batchGenerateContent"
        answer = await _hand_in(engine, path, body, requests[0][1].headers)
        made = msgspec.json.decode(answer, type=_GeminiBatch)
        return made.name.removeprefix("batches/")

    async def _find(self, engine: AnyHttpEngine, id: str) -> _GeminiBatch:
        return msgspec.json.decode(await _get(engine, f"/v1beta/batches/{id}", results=True), type=_GeminiBatch)

    async def status(self, engine: AnyHttpEngine, id: str) -> BatchStatus:
        found = await self._find(engine, id)
        stats = found.metadata.batch_stats
        return BatchStatus(
            state=found.state,
            total=int(stats.request_count),
            succeeded=int(stats.successful_request_count),
            failed=int(stats.failed_request_count),
            message="" if found.error is None else found.error.message,
        )

    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        found = await self._find(engine, id)
        output = found.response or found.metadata.output or _GeminiOutput()
        # In the order of the requests; the keys do not always come back.
        return (self._read(position, each) for position, each in enumerate(output.inlined_responses.inlined_responses))

    @staticmethod
    def _read(position: int, answer: _GeminiAnswer) -> Line:
        key = (answer.metadata or {}).get("key") or key_of(position)
        if answer.response:
            return Line(key, bytes(answer.response))
        said = answer.error
        return Line(key, code=said.status or str(said.code or ""), message=said.message or "no reason was given")

    async def cancel(self, engine: AnyHttpEngine, id: str) -> None:
        await engine.exchange(WireRequest(path=f"/v1beta/batches/{id}:cancel")).body()


def key_of(position: int) -> str:
    """The key under which a request is handed in; every provider takes one of this form."""
    return f"request-{position}"


def position_of(key: str) -> int | None:
    """The position that a key names; None for one that is not ours."""
    number = key.removeprefix("request-")
    return int(number) if number.isdecimal() and key_of(int(number)) == key else None


_SERVICES: Final[dict[str, Service]] = {
    **dict.fromkeys(
        ("openai", "openai-responses", "azure-responses", "groq", "together", "openai-compatible"), OpenAIBatches()
    ),
    "anthropic": AnthropicBatches(),
    "gemini": GeminiBatches(),
}
"""By provider. A compatible server is taken at its word."""


def service_for(provider: Provider) -> Service:
    """The batches of a provider. Raises ConfigurationError if we know of none."""
    service = _SERVICES.get(provider.name)
    if service is None:
        message = f"{provider.name} has no batches that we know of."
        raise ConfigurationError(message, hint=f"Those that have: {', '.join(_SERVICES)}.")
    return service
