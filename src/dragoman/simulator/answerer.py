"""From a request to the plan of its answer: note it; check key, model and body; ask the script; apply faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from dragoman.conversation import Block, Opaque, StopReason, Text, Thinking, ToolCall, Usage

from .anthropic import ANTHROPIC
from .dialect import Answer, Dialect, Frame, JsonObject, Refusal, UnwritableReplyError
from .exchange import Chunking, Content, Reply, Request
from .faults import Fault
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES
from .plan import Plan
from .script import Player, ScriptError

_ENDINGS: Final[Mapping[str, Dialect]] = {
    "/chat/completions": OPENAI_CHAT,
    "/responses": OPENAI_RESPONSES,
    "/messages": ANTHROPIC,
}
_GENERATE: Final = re.compile(r".*/(?:models|tunedModels)/(?P<model>[^:]+):(?P<method>(?:g|streamG)enerateContent)")


@dataclass(frozen=True)
class HttpRequest:
    """One request, as it came over HTTP."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes = b""
    keep_alive: bool = True
    """Whether the client means to use the connection again."""

    @cached_property
    def path(self) -> str:
        """Without the query, percent signs resolved."""
        return unquote(urlsplit(self.target).path)

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters of the query."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def api_key(self) -> str | None:
        """The API key, wherever a client may put it."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return token.strip()
        return self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or self.query.get("key")


@dataclass(frozen=True)
class _Route:
    """Where a request goes."""

    dialect: Dialect
    """Of an unknown path: the one in whose shape the error is written."""
    known: bool = True
    model: str = ""
    """Where the path names it."""
    stream: bool | None = None
    """Where the path says it."""


def _route(http: HttpRequest) -> _Route:
    """Only the end of a path counts, so that every base URL works: `/v1/messages`, `/openai/v1/chat/completions` …"""
    if http.method == "POST":
        if found := _GENERATE.fullmatch(http.path):
            return _Route(GEMINI, model=found["model"], stream=found["method"] == "streamGenerateContent")
        for ending, dialect in _ENDINGS.items():
            if http.path.endswith(ending):
                return _Route(dialect)
    if "x-goog-api-key" in http.headers or "/v1beta" in http.path:
        return _Route(GEMINI, known=False)
    return _Route(ANTHROPIC if "anthropic-version" in http.headers else OPENAI_CHAT, known=False)


@dataclass(frozen=True)
class Settings:
    """How a simulator behaves, whatever its script says."""

    api_key: str | None
    check: bool
    chunking: Chunking
    faults: tuple[Fault, ...]


class Answerer:
    """Answers requests, one after the other."""

    def __init__(self, settings: Settings, script: Player, on_request: Callable[[Request], None]) -> None:
        self.player = script
        self.errors: list[Exception] = []
        self._settings = settings
        self._on_request = on_request
        self._count = 0

    async def answer(self, http: HttpRequest) -> Plan:
        """The plan of the answer to this request."""
        route = _route(http)
        body = _parse_body(http)
        request = self._request(http, route, body or {})
        self._on_request(request)
        refusal = self._refusal(http, route, request, body)
        if refusal is None:
            try:
                return self._plan(route.dialect, request, await self.player.next(request))
            except (ScriptError, UnwritableReplyError) as error:
                self.errors.append(error)
                refusal = Refusal(500, str(error))
            except Exception as error:  # noqa: BLE001 -- the script's own function may fail in any way
                self.errors.append(error)
                refusal = Refusal(500, f"The simulator's script failed: {type(error).__name__}: {error}")
        plan = self._bare_plan(route.dialect, request, Reply())
        plan.refuse(refusal)
        # Trying again cannot help here, and the official SDKs believe this header.
        plan.headers["x-should-retry"] = "false"
        return plan

    def _request(self, http: HttpRequest, route: _Route, body: JsonObject) -> Request:
        content = route.dialect.read(body) if route.known else Content()
        number, self._count = self._count, self._count + 1
        return Request(
            **vars(content),
            dialect=route.dialect.name if route.known else "unknown",
            model=route.model or str(body.get("model") or ""),
            stream=body.get("stream") is True if route.stream is None else route.stream,
            number=number,
            method=http.method,
            path=http.path,
            query=http.query,
            headers=http.headers,
            body=body,
            raw=http.body,
        )

    def _refusal(self, http: HttpRequest, route: _Route, request: Request, body: JsonObject | None) -> Refusal | None:
        """What speaks against an answer, in the order in which a provider would look at it."""
        dialect, settings = route.dialect, self._settings
        if not route.known:
            return Refusal(404, f"Invalid URL ({http.method} {request.path})")
        if settings.api_key is not None and http.api_key != settings.api_key:
            return dialect.bad_key(http.api_key)
        if body is None:
            return Refusal(400, "The body of the request is not a JSON object.")
        if dialect is GEMINI and request.stream and http.query.get("alt") != "sse":
            return Refusal(400, "The simulator streams events only: add `alt=sse` to the query.")
        return next(dialect.problems(body, http.headers), None) if settings.check else None

    def _bare_plan(self, dialect: Dialect, request: Request, reply: Reply) -> Plan:
        """A plan for the headers and what a script left open, without a body."""
        chunking = reply.chunking or self._settings.chunking
        answer = _decide(dialect.name, request, reply, chunking)
        headers = {"content-type": dialect.whole_type} | dialect.headers(answer.id("req_"))
        headers |= {name.lower(): value for name, value in reply.headers.items()}
        return Plan(dialect, answer, streamed=False, frames=[], headers=headers)

    def _plan(self, dialect: Dialect, request: Request, reply: Reply) -> Plan:
        plan = self._bare_plan(dialect, request, reply)
        if request.stream:
            plan.streamed, plan.frames = True, dialect.frames(plan.answer)
            plan.headers["content-type"] = dialect.stream_type
        else:
            plan.frames = [Frame(dialect.whole(plan.answer))]
        for fault in (*self._settings.faults, *reply.faults):
            fault.apply(plan)
        return plan


def _parse_body(http: HttpRequest) -> JsonObject | None:
    try:
        value: object = msgspec.json.decode(http.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _decide(dialect: str, request: Request, reply: Reply, chunking: Chunking) -> Answer:
    """The reply with everything decided that the script left open, and without what only other dialects can read."""
    blocks: list[Block] = []
    for index, block in enumerate(reply.blocks):
        if isinstance(block, Opaque) and block.provider.partition(":")[0] != dialect:
            continue
        kept = block
        if isinstance(kept, ToolCall) and not kept.id:  # it gets one that no other call of this simulator has
            kept = msgspec.structs.replace(kept, id=f"call_sim{request.number:06d}_{index}")
        if isinstance(kept, Text | Thinking | ToolCall) and kept.native is not None:
            own = kept.native.provider.partition(":")[0] == dialect
            kept = kept if own else msgspec.structs.replace(kept, native=None)
        blocks.append(kept)
    texts = [block.text for block in blocks if isinstance(block, Text | Thinking)]
    calls = [block.name + block.arguments for block in blocks if isinstance(block, ToolCall)]
    usage = reply.usage
    if usage is None:
        usage = Usage(input=max(len(request.raw) // 4, 1), output=max(len("".join(texts + calls)) // 4, 1))
    return Answer(
        blocks=tuple(blocks),
        usage=None if usage == Usage() else usage,
        stop_reason=reply.stop_reason or (StopReason.TOOL_CALLS if calls else StopReason.END),
        raw_stop_reason=reply.raw_stop_reason,
        model=reply.model or request.model,
        chunking=chunking,
        request=request,
    )
