"""The batch APIs of the providers: submit, status, results, cancel.

Owns: a Service for each, written from the providers' documentation and tested against the simulator: there is no
recorded traffic of these APIs.
Must not know: conversations, sync or async. The engine blocks or awaits.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decode_as, decoder_of
from dragoman.engines import AnyHttpEngine
from dragoman.errors import ConfigurationError, ProviderError
from dragoman.providers import Call, Provider, WireRequest, failure, read_refusal
from dragoman.transport import form_with_file

from .handle import BatchState, BatchStatus

_UNANSWERED: Final = "batch_"
_MEGABYTE: Final = 1 << 20
_MOST_RESULTS: Final = 8192 * _MEGABYTE
"""The maximum size of a file with results: far more than the largest batch gives."""


class Line(Struct, frozen=True):
    """The result of one request: the body of a reply, or why there is none."""

    key: str
    body: bytes = b""
    status: int = 200
    code: str = ""
    message: str = ""
    """Why there is no reply, if the body does not say it."""

    def raise_failure(self, call: Call) -> None:
        """Raise ProviderError if this is no reply."""
        if self.code.startswith(_UNANSWERED):
            message = f"{call.profile.provider}:{call.model} has not answered: {self.message}."
            hint = "Submit it again, or send it alone."
            raise ProviderError(message, provider=call.profile.provider, model=call.model, code=self.code, hint=hint)
        if self.code or self.message:
            raise failure(call, None, self.code or None, self.message, {})
        if self.status >= 300:
            raise read_refusal(self.status, {}, self.body, call)


def unanswered(key: str, how: str) -> Line:
    """The result of a request that its batch has not answered."""
    words = {"cancelled": "was cancelled before", "expired": "expired before"}
    return Line(key, code=f"{_UNANSWERED}{how}", message=f"the batch {words.get(how, 'ended without a result for it')}")


def _refused(key: str, code: object, message: object) -> Line:
    """The result of a request that the provider has refused."""
    return Line(key, code=str(code or ""), message=str(message or "no reason was given"))


class Service(ABC):
    """The batches of a provider. Malformed replies raise errors of msgspec, KeyError and such."""

    most: ClassVar[int]
    """The maximum number of requests of a batch."""
    most_bytes: ClassVar[int]
    path: ClassVar[str]
    cancel_suffix: ClassVar[str] = "/cancel"
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    has_inline_results: ClassVar[bool] = False

    @abstractmethod
    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        """Submit requests, each with its key. Returns the id of the batch."""

    async def status(self, engine: AnyHttpEngine, id: str) -> BatchStatus:
        """The state of a batch."""
        return self.read_status(_read(await self.get(engine, f"{self.path}/{id}", results=self.has_inline_results)))

    @abstractmethod
    def read_status(self, batch: dict[str, Any]) -> BatchStatus:
        """The state of a batch, from the provider's object."""

    @abstractmethod
    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        """The results of a batch that is over, in any order."""

    async def cancel(self, engine: AnyHttpEngine, id: str) -> None:
        """Ask to cancel a batch. That may take a while; results so far stay."""
        wire = WireRequest(path=f"{self.path}/{id}{self.cancel_suffix}", headers=self.headers)
        await engine.exchange(wire).body()

    async def get(self, engine: AnyHttpEngine, path: str, *, results: bool = True) -> bytes:
        exchange = engine.exchange(WireRequest(path=path, headers=self.headers), method="GET")
        if results:
            exchange.most_bytes = _MOST_RESULTS
        return await exchange.body()

    async def create(self, engine: AnyHttpEngine, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Create a batch. Not retried if the first attempt may have arrived: that would cost money."""
        wire = WireRequest(path=path, body=body, headers=headers)
        return _read(await engine.exchange(wire, repeatable=False).body())


_read: Final = decoder_of(dict[str, Any]).decode


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    """A field that is an object, and may be missing."""
    return value.get(name) or {}


def _json_lines(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if line.strip()]


# --- OpenAI: requests and results are files --------------------------------------------------------------------------

_OPENAI_STATES: Final[dict[str, BatchState]] = {
    "cancelling": "cancelling",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "expired": "expired",
}


class _OpenAIResponse(Struct):
    status_code: int = 200
    body: Raw = Raw(b"")


class _OpenAILine(Struct):
    custom_id: str
    response: _OpenAIResponse | None = None
    error: dict[str, Any] | None = None


class OpenAIBatches(Service):
    """`/batches` of OpenAI, and of servers that are compatible with it."""

    most = 50_000
    most_bytes = 200 * _MEGABYTE
    path = "/batches"

    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        endpoint = f"/v1{requests[0][1].path}"
        head = b'{"method":"POST","url":' + msgspec.json.encode(endpoint)
        lines = [
            head + b',"custom_id":' + msgspec.json.encode(key) + b',"body":' + request.body + b"}\n"
            for key, request in requests
        ]
        kind, form = form_with_file({"purpose": "batch"}, "batch.jsonl", "application/jsonl", b"".join(lines))
        headers = requests[0][1].headers
        upload = WireRequest(path="/files", body=form, headers={**headers, "content-type": kind})
        file = _read(await engine.exchange(upload).body())["id"]
        wanted = {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h"}
        return (await self.create(engine, self.path, msgspec.json.encode(wanted), headers))["id"]

    def read_status(self, batch: dict[str, Any]) -> BatchStatus:
        counts = _object(batch, "request_counts")
        errors: list[dict[str, Any]] = _object(batch, "errors").get("data") or []
        return BatchStatus(
            state=_OPENAI_STATES.get(batch["status"], "running"),
            total=int(counts.get("total", 0)),
            succeeded=int(counts.get("completed", 0)),
            failed=int(counts.get("failed", 0)),
            message="; ".join(each.get("message") or each.get("code") or "" for each in errors),
            outputs=tuple(filter(None, (batch.get("output_file_id"), batch.get("error_file_id")))),
        )

    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        bodies = [await self.get(engine, f"/files/{file}/content") for file in status.outputs]
        return (self._line(line) for body in bodies for line in _json_lines(body))

    @staticmethod
    def _line(line: bytes) -> Line:
        read = decode_as(line, _OpenAILine)
        if read.response is not None:
            return Line(read.custom_id, bytes(read.response.body), read.response.status_code)
        error = read.error or {}
        return _refused(read.custom_id, error.get("code"), error.get("message"))


# --- Anthropic --------------------------------------------------------------------------------------------------------


class _ClaudeResult(Struct):
    type: str
    message: Raw = Raw(b"")
    error: dict[str, Any] | None = None


class _ClaudeLine(Struct):
    custom_id: str
    result: _ClaudeResult


class AnthropicBatches(Service):
    """Message batches of Anthropic."""

    most = 100_000
    most_bytes = 256 * _MEGABYTE
    path = "/v1/messages/batches"
    headers = MappingProxyType({"anthropic-version": "2023-06-01"})

    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        head, middle = b'{"custom_id":', b',"params":'
        written = [head + msgspec.json.encode(key) + middle + request.body + b"}" for key, request in requests]
        asked = [request.headers.get("anthropic-beta", "").split(",") for _, request in requests]
        betas = sorted({name.strip() for names in asked for name in names} - {""})
        headers = {**requests[0][1].headers, **({"anthropic-beta": ",".join(betas)} if betas else {})}
        body = b'{"requests":[' + b",".join(written) + b"]}"
        return (await self.create(engine, self.path, body, headers))["id"]

    def read_status(self, batch: dict[str, Any]) -> BatchStatus:
        counts = {name: int(count) for name, count in _object(batch, "request_counts").items()}
        failed = sum(counts.get(name, 0) for name in ("errored", "canceled", "expired"))
        state: BatchState = "cancelled" if counts.get("canceled") else "expired" if counts.get("expired") else "done"
        if batch["processing_status"] != "ended":
            state = "cancelling" if batch["processing_status"] == "canceling" else "running"
        succeeded = counts.get("succeeded", 0)
        total = counts.get("processing", 0) + succeeded + failed
        return BatchStatus(state=state, total=total, succeeded=succeeded, failed=failed)

    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        body = await self.get(engine, f"{self.path}/{id}/results")
        return map(self._line, _json_lines(body))

    @staticmethod
    def _line(line: bytes) -> Line:
        read = decode_as(line, _ClaudeLine)
        key, result = read.custom_id, read.result
        match result.type:
            case "succeeded":
                return Line(key, bytes(result.message))
            case "errored":
                error = _object(result.error or {}, "error")
                return _refused(key, error.get("type"), error.get("message"))
            case other:
                return unanswered(key, "cancelled" if other == "canceled" else other)


# --- Gemini: requests and results are part of the batch ---------------------------------------------------------------

_GEMINI_STATES: Final[dict[str, BatchState]] = {
    "SUCCEEDED": "done",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "EXPIRED": "expired",
    "CANCELLING": "cancelling",
}


class _GeminiAnswer(Struct):
    response: Raw = Raw(b"")
    metadata: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _GeminiAnswers(Struct, rename="camel"):
    inlined_responses: list[_GeminiAnswer] = []


class _GeminiOutput(Struct, rename="camel"):
    inlined_responses: _GeminiAnswers | None = None


class _GeminiMetadata(Struct):
    output: _GeminiOutput | None = None


class _GeminiResults(Struct):
    response: _GeminiOutput | None = None
    metadata: _GeminiMetadata | None = None


class GeminiBatches(Service):
    """`:batchGenerateContent`, with all requests in one body."""

    most = 50_000
    most_bytes = 20 * _MEGABYTE
    path = "/v1beta/batches"
    cancel_suffix = ":cancel"
    has_inline_results = True

    async def submit(self, engine: AnyHttpEngine, requests: Sequence[tuple[str, WireRequest]]) -> str:
        written = [
            b'{"request":' + request.body + b',"metadata":{"key":' + msgspec.json.encode(key) + b"}}"
            for key, request in requests
        ]
        name = msgspec.json.encode(f"dragoman-{secrets.token_hex(8)}")
        inner = b'{"requests":{"requests":[' + b",".join(written) + b"]}}"
        body = b'{"batch":{"displayName":' + name + b',"inputConfig":' + inner + b"}}"
        path = f"/v1beta/models/{engine.connection.model.removeprefix('models/')}:batchGenerateContent"
        return (await self.create(engine, path, body, requests[0][1].headers))["name"].removeprefix("batches/")

    def read_status(self, batch: dict[str, Any]) -> BatchStatus:
        metadata = _object(batch, "metadata")
        stats, error = _object(metadata, "batchStats"), batch.get("error")
        state = _GEMINI_STATES.get(metadata.get("state", "").rpartition("STATE_")[2])
        if state is None:
            state = "running" if not batch.get("done") else "done" if error is None else "failed"
        return BatchStatus(
            state=state,
            total=int(stats.get("requestCount", 0)),  # 64-bit numbers are texts in Google's JSON
            succeeded=int(stats.get("successfulRequestCount", 0)),
            failed=int(stats.get("failedRequestCount", 0)),
            message="" if error is None else error.get("message", ""),
        )

    async def lines(self, engine: AnyHttpEngine, id: str, status: BatchStatus) -> Iterator[Line]:
        found = decode_as(await self.get(engine, f"{self.path}/{id}"), _GeminiResults)
        output = found.response or (found.metadata or _GeminiMetadata()).output or _GeminiOutput()
        answers = output.inlined_responses or _GeminiAnswers()
        # In the order of the requests; the keys do not always come back.
        return (self._line(position, each) for position, each in enumerate(answers.inlined_responses))

    @staticmethod
    def _line(position: int, answer: _GeminiAnswer) -> Line:
        key = (answer.metadata or {}).get("key") or key_of(position)
        if answer.response:
            return Line(key, bytes(answer.response))
        error = answer.error or {}
        return _refused(key, error.get("status") or error.get("code"), error.get("message"))


def key_of(position: int) -> str:
    """The key of a request, in a form that every provider accepts."""
    return f"request-{position}"


def position_of(key: str) -> int | None:
    """The position of the request with this key; None if the key is not ours."""
    number = key.removeprefix("request-")
    return int(number) if number.isdecimal() and key_of(int(number)) == key else None


_SERVICES: Final[dict[str, Service]] = {
    **dict.fromkeys(
        ("openai", "openai-responses", "azure-responses", "groq", "together", "openai-compatible"), OpenAIBatches()
    ),
    "anthropic": AnthropicBatches(),
    "gemini": GeminiBatches(),
}
"""By provider. Compatible servers are assumed to have batches."""


def service_for(provider: Provider) -> Service:
    """The batches of a provider. Raises ConfigurationError if we know of none."""
    service = _SERVICES.get(provider.name)
    if service is None:
        message = f"{provider.name} has no batches that we know of."
        raise ConfigurationError(message, hint=f"Those that have: {', '.join(_SERVICES)}.")
    return service
