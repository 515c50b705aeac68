"""From a request to the plan of its answer: note it; check key, model and body; ask the script; apply faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

import msgspec

from dragoman.conversation import StopReason, ToolCall, Usage

from .anthropic import ANTHROPIC
from .dialect import Answer, Dialect, Frame, Refusal, UnwritableReplyError
from .exchange import Content, Reply, Request
from .faults import Fault, Stall
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES
from .plan import Plan
from .reading import JsonObject
from .script import Player, ScriptError

_ENDINGS: Final[Mapping[str, Dialect]] = {
    "/chat/completions": OPENAI_CHAT,
    "/responses": OPENAI_RESPONSES,
    "/responses/input_tokens": OPENAI_RESPONSES,
    "/messages": ANTHROPIC,
    "/messages/count_tokens": ANTHROPIC,
}
_GENERATE: Final = re.compile(
    r".*/(?:models|tunedModels)/(?P<model>[^:]+):(?P<method>(?:g|streamG)enerateContent|countTokens)"
)
_COUNTS: Final = ("/input_tokens", "/count_tokens", ":countTokens")


def _route(request: Request) -> tuple[Dialect, str | None, bool | None]:
    """The dialect of a path, and the model and whether to stream, where the path says so; model None: a path of nobody.

    Only the end of a path counts, so that every base URL works: `/v1/messages`, `/openai/v1/chat/completions` …
    """
    if request.method == "POST":
        if found := _GENERATE.fullmatch(request.path):
            return GEMINI, found["model"], found["method"] == "streamGenerateContent"
        for ending, dialect in _ENDINGS.items():
            if request.path.endswith(ending):
                return dialect, "", None
    if "x-goog-api-key" in request.headers or "/v1beta" in request.path:
        return GEMINI, None, None
    return ANTHROPIC if "anthropic-version" in request.headers else OPENAI_CHAT, None, None


@dataclass
class Answerer:
    """Answers requests, one after the other."""

    player: Player
    on_request: Callable[[Request], None]
    api_key: str | None
    check: bool
    faults: Sequence[Fault]
    errors: list[Exception] = field(default_factory=list[Exception])
    _count: int = 0

    @property
    def is_deaf(self) -> bool:
        """Whether requests are not even read."""
        return any(isinstance(fault, Stall) and fault.where == "request" for fault in self.faults)

    async def answer(self, request: Request) -> Plan:
        """The plan of the answer to this request, of which HTTP's part is known."""
        dialect, model, stream = _route(request)
        parsed = _parse_body(request.raw)
        body = parsed or {}
        request = replace(
            request,
            **vars(Content() if model is None else dialect.read(body)),
            dialect="unknown" if model is None else dialect.name,
            model=model or str(body.get("model") or ""),
            stream=body.get("stream") is True if stream is None else stream,
            number=self._count,
            body=body,
        )
        self._count += 1
        self.on_request(request)
        refusal = self._refusal(dialect, request, parsed)
        if refusal is None and request.path.endswith(_COUNTS):
            plan = self._bare_plan(dialect, request, Reply())
            plan.frames = [Frame(dialect.count(_estimate(request.raw)))]
            return plan
        if refusal is None:
            try:
                return self._plan(dialect, request, await self.player.next(request))
            except (ScriptError, UnwritableReplyError) as error:
                self.errors.append(error)
                refusal = Refusal(500, str(error))
            except Exception as error:  # noqa: BLE001 -- the script's own function may fail in any way
                self.errors.append(error)
                refusal = Refusal(500, f"The simulator's script failed: {type(error).__name__}: {error}")
        plan = self._bare_plan(dialect, request, Reply())
        plan.refuse(refusal)
        # Trying again cannot help here, and the official SDKs believe this header.
        plan.headers["x-should-retry"] = "false"
        return plan

    def _refusal(self, dialect: Dialect, request: Request, body: JsonObject | None) -> Refusal | None:
        """What speaks against an answer, in the order in which a provider would look at it."""
        if request.dialect == "unknown":
            return Refusal(404, f"Invalid URL ({request.method} {request.path})")
        if self.api_key is not None and request.api_key != self.api_key:
            return dialect.bad_key(request.api_key)
        if body is None:
            return Refusal(400, "The body of the request is not a JSON object.")
        if dialect is GEMINI and request.stream and request.query.get("alt") != "sse":
            return Refusal(400, "The simulator streams events only: add `alt=sse` to the query.")
        if not self.check or request.path.endswith(_COUNTS):
            return None
        return next(dialect.problems(body, request.headers), None)

    def _bare_plan(self, dialect: Dialect, request: Request, reply: Reply) -> Plan:
        """A plan for the headers and what a script left open, without a body."""
        answer = _decide(request, reply)
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
        for fault in (*self.faults, *reply.faults):
            fault.apply(plan)
        return plan


def _parse_body(data: bytes) -> JsonObject | None:
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _estimate(text: str | bytes) -> int:
    """Tokens, as one guesses them."""
    return max(len(text) // 4, 1)


def _decide(request: Request, reply: Reply) -> Answer:
    """The reply with everything decided that the script left open."""
    blocks = list(reply.blocks)
    calls, said = False, ""
    for index, block in enumerate(blocks):
        if not isinstance(block, ToolCall):
            said += block.text
            continue
        calls, said = True, said + block.name + block.arguments
        if not block.id:  # it gets one that no other call of this simulator has
            blocks[index] = msgspec.structs.replace(block, id=f"call_sim{request.number:06d}_{index}")
    usage = reply.usage
    if usage is None:
        usage = Usage(input=_estimate(request.raw), output=_estimate(said))
    return Answer(
        blocks=tuple(blocks),
        usage=None if usage == Usage() else usage,
        stop_reason=reply.stop_reason or (StopReason.TOOL_CALLS if calls else StopReason.END),
        raw_stop_reason=reply.raw_stop_reason,
        model=reply.model or request.model,
        delta=reply.delta,
        request=request,
    )
