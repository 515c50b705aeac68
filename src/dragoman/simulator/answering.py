"""From a request to the steps of its answer.

Owns: the order of things: note the request; check key, model and body; ask the script; write the reply; apply faults.
Must not know: sockets and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from dragoman.conversation import Block, StopReason, Text, Thinking, ToolCall, Usage

from .dialects import DIALECTS, Answer, Dialect, Frame, Refusal, UnwritableReplyError
from .faults import Fault
from .http1 import HttpRequest
from .json_access import JsonObject
from .plan import Body, Plan
from .reply import Chunking, Reply
from .request import Heard, Request
from .routing import Route, given_key, route_of
from .script import Player, ScriptError
from .sending import End, Send, Step, response, steps_of

__all__ = ["Answerer", "Settings"]

_MODELS: Final = ("simulated-large", "simulated-small")
"""Those in the lists where none are given; any other name is answered too."""


@dataclass(frozen=True)
class Settings:
    """How a simulator behaves, whatever its script says."""

    api_key: str | None
    models: tuple[str, ...] | None
    check: bool
    chunking: Chunking
    faults: tuple[Fault, ...]
    reasoning_field: str


class Answerer:
    """Answers requests, one after the other."""

    def __init__(self, settings: Settings, on_request: Callable[[Request], None]) -> None:
        self.player = Player(None)
        self.errors: list[Exception] = []
        self._settings = settings
        self._on_request = on_request
        self._count = 0

    async def answer(self, http: HttpRequest) -> Iterable[Step]:
        """The steps of the answer to this request."""
        route = route_of(http)
        body = _body(http)
        request = self._request(http, route, body or {})
        self._on_request(request)
        refusal = self._refusal(http, route, request, body)
        if refusal is not None:
            return _refused(route.dialect, request, refusal)
        if route.what != "reply":
            return _plain(route.dialect, request, 200, self._listing(route))
        try:
            reply = await self.player.next(request)
            return steps_of(self._plan(route.dialect, request, reply))
        except (ScriptError, UnwritableReplyError) as error:
            return self._stuck(route.dialect, request, error, str(error))
        except Exception as error:  # noqa: BLE001 -- the script's own function may fail in any way
            text = f"The simulator's script failed: {type(error).__name__}: {error}"
            return self._stuck(route.dialect, request, error, text)

    def _request(self, http: HttpRequest, route: Route, body: JsonObject) -> Request:
        heard = route.dialect.hear(body) if route.what == "reply" else Heard()
        number, self._count = self._count, self._count + 1
        return Request(
            system=heard.system,
            user_texts=heard.user_texts,
            tool_results=heard.tool_results,
            tools=heard.tools,
            turns=heard.turns,
            dialect=route.dialect.name if route.what != "unknown" else "unknown",
            model=route.model or str(body.get("model") or ""),
            stream=body.get("stream") is True if route.stream is None else route.stream,
            number=number,
            key=route.key,
            method=http.method,
            path=http.path,
            query=http.query,
            headers=http.headers,
            body=body,
            raw=http.body,
        )

    def _refusal(self, http: HttpRequest, route: Route, request: Request, body: JsonObject | None) -> Refusal | None:
        """What speaks against an answer, in the order in which a provider would look at it."""
        dialect, settings = route.dialect, self._settings
        if route.what == "home":
            return None
        if route.what == "unknown":
            return Refusal(404, f"Invalid URL ({http.method} {request.path})")
        key = given_key(http)
        if settings.api_key is not None and key != settings.api_key:
            return dialect.bad_key(key)
        if route.what == "reply" and body is None:
            return Refusal(400, "The body of the request is not a JSON object.")
        if settings.models is not None and request.model and request.model not in settings.models:
            return dialect.no_model(request.model)
        if route.what == "reply" and settings.check:
            return dialect.check(body or {}, http.headers)
        return None

    def _listing(self, route: Route) -> JsonObject:
        names = self._settings.models or _MODELS
        match route.what:
            case "models":
                return route.dialect.models(names)
            case "model":
                return route.dialect.model(route.model)
            case _:
                return {"simulator": "dragoman", "dialects": sorted(DIALECTS)}

    def _plan(self, dialect: Dialect, request: Request, reply: Reply) -> Plan:
        chunking = reply.chunking or self._settings.chunking
        answer = _answer(request, reply, chunking, self._settings.reasoning_field)
        body = _body_kind(dialect, request)
        frames = dialect.frames(answer) if request.stream else [Frame(dialect.whole(answer))]
        headers = {"content-type": dialect.stream_type if body == "sse" else dialect.whole_type}
        headers |= dialect.headers(answer.id("req_"))
        headers |= {name.lower(): value for name, value in reply.headers.items()}
        plan = Plan(dialect, answer, body, frames, chunking, headers=headers)
        for fault in (*self._settings.faults, *reply.faults):
            fault.apply(plan)
        return plan

    def _stuck(self, dialect: Dialect, request: Request, error: Exception, text: str) -> Iterable[Step]:
        self.errors.append(error)
        return _refused(dialect, request, Refusal(500, text))


def _body(http: HttpRequest) -> JsonObject | None:
    try:
        value: object = msgspec.json.decode(http.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _body_kind(dialect: Dialect, request: Request) -> Body:
    if not request.stream:
        return "json"
    return "array" if dialect.name == "gemini" and request.query.get("alt") != "sse" else "sse"


def _refused(dialect: Dialect, request: Request, refusal: Refusal) -> Iterable[Step]:
    body = dialect.failure(refusal, f"req_sim{request.number:06d}")
    # Trying again cannot help here, and the official SDKs believe this header.
    return _plain(dialect, request, refusal.status, body, {"x-should-retry": "false"})


def _plain(
    dialect: Dialect, request: Request, status: int, body: JsonObject, headers: dict[str, str] | None = None
) -> Iterable[Step]:
    named = {"content-type": dialect.whole_type} | dialect.headers(f"req_sim{request.number:06d}") | (headers or {})
    return [Send(response(status, named, msgspec.json.encode(body))), End("end")]


def _answer(request: Request, reply: Reply, chunking: Chunking, reasoning_field: str) -> Answer:
    """Decide what the script left open."""
    blocks = _with_ids(reply.blocks, request.number)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    usage = reply.usage
    if usage is None:
        usage = Usage(input=max(len(request.raw) // 4, 1), output=max(_size(blocks) // 4, 1))
    return Answer(
        blocks=blocks,
        usage=None if usage == Usage() else usage,
        stop_reason=reply.stop_reason or (StopReason.TOOL_CALLS if calls else StopReason.END),
        raw_stop_reason=reply.raw_stop_reason,
        model=reply.model or request.model,
        chunking=chunking,
        request=request,
        reasoning_field=reasoning_field,
    )


def _with_ids(blocks: Sequence[Block], number: int) -> tuple[Block, ...]:
    """Calls that have no id get one that no other call of this simulator has."""
    return tuple(
        msgspec.structs.replace(block, id=f"call_sim{number:06d}_{index}")
        if isinstance(block, ToolCall) and not block.id
        else block
        for index, block in enumerate(blocks)
    )


def _size(blocks: Sequence[Block]) -> int:
    sizes = [len(block.text) for block in blocks if isinstance(block, Text | Thinking)]
    return sum(sizes) + sum(len(block.name) + len(block.arguments) for block in blocks if isinstance(block, ToolCall))
