"""Scripts, and from a request to the plan of its answer: note it; check it; ask the script; apply faults."""

from __future__ import annotations

import re
import runpy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec

from dragoman.conversation import Opaque, StopReason, ToolCall, Usage
from dragoman.errors import ConfigurationError

from . import embeddings
from .anthropic import ANTHROPIC
from .batches import Batches
from .bedrock import BEDROCK
from .dialect import Answer, Dialect, Frame, Refusal, ScriptError
from .exchange import Reply, Request
from .faults import Fault
from .files import Files
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES
from .plan import Plan
from .reading import JsonObject, Transcript, members
from .service import Refused, Route, WithHeaders

# --- scripts ----------------------------------------------------------------------------------------------------------

Item: TypeAlias = str | Reply | Fault
"""A text is a reply of that text; a fault alone is one that befalls a short text."""

Function: TypeAlias = Callable[[Request], Item] | Callable[[Request], Awaitable[Item]]
"""Called in the simulator's own thread, so it must not block; write it with `async def` where it has to wait."""

Script: TypeAlias = Item | Sequence[Item] | Function
"""One reply, replies in order, or a function that is asked for each."""


def echo(request: Request) -> str:
    """The script where none is given: says what the user said."""
    return f"You said: {request.last_user_text}"


class Player:
    """A script that is being played."""

    def __init__(self, script: Script | None) -> None:
        self._function: Function | None = echo if script is None else None
        self._replies: list[Reply] = []
        self._asked = 0
        if isinstance(script, str | Reply | Fault):
            self._replies = [_reply(script)]
        elif isinstance(script, Sequence):
            self._replies = [_reply(item) for item in cast("Sequence[Item]", script)]
        elif callable(script):
            self._function = script
        elif script is not None:
            message = f"a script is a list of replies or a function, not {type(script).__name__}"
            raise TypeError(message)

    @property
    def unplayed(self) -> int:
        return max(len(self._replies) - self._asked, 0)

    async def next(self, request: Request) -> Reply:
        """The reply to this request. Raises ScriptError, or whatever the script's own function raises."""
        if self._function is not None:
            given = self._function(request)
            return _reply(await given if isawaitable(given) else given)
        self._asked += 1
        if self._asked > len(self._replies):
            message = (
                f"The simulator's script is exhausted: it has {len(self._replies)} replies, and this is request "
                f"{self._asked}. Add replies to the list, or give a function."
            )
            raise ScriptError(message)
        return self._replies[self._asked - 1]


def _reply(item: object) -> Reply:
    """The reply that an item stands for. A script is somebody else's code, so its types are looked at."""
    match item:
        case str():
            return Reply(item)
        case Fault():
            return Reply("A short text that something happens to.", faults=[item])
        case Reply():
            return item
        case _:
            message = f"a script gives texts, replies and faults, not {type(item).__name__}"
            raise TypeError(message)


def load_script(path: str | Path) -> Script:
    """What a Python file calls `script`. Raises ConfigurationError."""
    try:
        names = runpy.run_path(str(path))
    except (OSError, SyntaxError, ValueError) as error:
        message = f"The script {str(path)!r} cannot be used: {error}."
        raise ConfigurationError(message) from None
    if "script" not in names:
        message = f"The script {str(path)!r} cannot be used: it has no name `script`."
        raise ConfigurationError(message, hint="It is a Python file; see `dragoman simulate --help`.")
    return cast("Script", names["script"])


# --- answers ----------------------------------------------------------------------------------------------------------

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
_CONVERSE: Final = re.compile(r".*/model/(?P<model>.+)/(?P<method>converse|converse-stream|count-tokens)")
_PREDICT: Final = re.compile(r".*/publishers/anthropic/models/(?P<model>[^:]+):(?P<method>rawPredict|streamRawPredict)")
_MODEL: Final = re.compile(r"/models/([^/:]+):")
_COUNTS: Final = ("/input_tokens", "/count_tokens", ":countTokens", "/count-tokens", "/count-tokens:rawPredict")


def _route(request: Request) -> tuple[Dialect, str | None, bool | None]:
    """The dialect of a path, and the model and whether to stream, where the path says so; model None: a path of nobody.

    Only the end of a path counts, so that every base URL works: `/v1/messages`, `/openai/v1/chat/completions` …
    """
    if request.method == "POST":
        if found := _GENERATE.fullmatch(request.path):
            return GEMINI, found["model"], found["method"] == "streamGenerateContent"
        if found := _CONVERSE.fullmatch(request.path):
            return BEDROCK, found["model"], found["method"] == "converse-stream"
        if found := _PREDICT.fullmatch(request.path):  # Claude on Vertex AI
            return ANTHROPIC, found["model"], found["method"] == "streamRawPredict"
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

    def __post_init__(self) -> None:
        self._files: Files = Files()
        batches = Batches(self._ask, self._files.data)
        self._routes: tuple[Route, ...] = (*embeddings.ROUTES, *batches.routes, *self._files.routes)

    async def answer(self, request: Request) -> Plan:
        """The plan of the answer to this request, of which HTTP's part is known."""
        route = next((route for route in self._routes if route.fits(request)), None)
        if route is not None:
            return await self._answer_service(route, request)
        dialect, model, stream = _route(request)
        parsed = _parse_body(request.raw)
        body = parsed or {}
        asked = body.get("generateContentRequest") or members(body.get("input")).get("converse")  # to be counted
        found = Transcript([]) if model is None else dialect.read(members(asked) if asked else body)
        request = replace(
            found.tell(request),
            dialect="unknown" if model is None else dialect.name,
            model=model or str(body.get("model") or ""),
            stream=body.get("stream") is True if stream is None else stream,
            number=self._count,
            body=body,
        )
        self._count += 1
        self.on_request(request)
        refusal = self._refusal(dialect, request, parsed, found.problems)
        if refusal is None and request.path.endswith(_COUNTS):
            plan = self._bare_plan(dialect, request, Reply())
            plan.frames = [Frame(dialect.count(_estimate(request.raw)))]
            for fault in self.faults:
                fault.apply(plan)
            return plan
        if refusal is None:
            try:
                return self._plan(dialect, request, await self.player.next(request))
            except ScriptError as error:
                self.errors.append(error)
                refusal = Refusal(500, str(error))
            except Exception as error:  # noqa: BLE001 -- the script's own function may fail in any way
                self.errors.append(error)
                refusal = Refusal(500, f"The simulator's script failed: {type(error).__name__}: {error}")
        return self._refuse(dialect, request, refusal)

    async def _answer_service(self, route: Route, request: Request) -> Plan:
        """The plan of the answer to a request that is no conversation."""
        body = _parse_body(request.raw) or {}
        dialect, model = route.dialect, _MODEL.search(request.path)
        named = model[1] if model is not None else str(body.get("model") or "")
        request = replace(request, dialect=dialect.name, model=named, number=self._count, body=body)
        self._count += 1
        self.on_request(request)
        if self.api_key is not None and request.api_key != self.api_key:
            return self._refuse(dialect, request, dialect.bad_key(request.api_key))
        reply = Reply()
        try:
            if route.scripted:
                reply = await self.player.next(request)
            plan = self._bare_plan(dialect, request, reply)
            said = await route.handle(request)
            if isinstance(said, WithHeaders):
                plan.headers |= said.headers
                said = said.body
            plan.frames = [Frame(said)]
        except Refused as error:
            plan = self._refuse(dialect, request, error.refusal)
        except ScriptError as error:
            self.errors.append(error)
            plan = self._refuse(dialect, request, Refusal(500, str(error)))
        for fault in (*self.faults, *reply.faults):
            fault.apply(plan)
        return plan

    async def _ask(self, request: Request) -> tuple[int, JsonObject]:
        """The answer to a request of a batch: its status and its body. A fault of the connection is none here."""
        plan = await self.answer(request)
        data = plan.frames[0].data
        return plan.status, data if isinstance(data, dict) else {}

    def _refuse(self, dialect: Dialect, request: Request, refusal: Refusal) -> Plan:
        plan = self._bare_plan(dialect, request, Reply())
        plan.refuse(refusal)
        # Trying again cannot help here, and the official SDKs believe this header.
        plan.headers["x-should-retry"] = "false"
        return plan

    def _refusal(
        self, dialect: Dialect, request: Request, body: JsonObject | None, problems: list[str]
    ) -> Refusal | None:
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
        if missing := self._files.missing(request.raw):
            return Refusal(400, f"There is no file {missing}.")
        told = {"model": request.model} | body if request.model else body  # by the body, or by the path
        found = next(chain(dialect.problems(told, request.headers), problems), None)
        return Refusal(400, found) if isinstance(found, str) else found

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
    return max(len(text) // 4, 1)


def _decide(request: Request, reply: Reply) -> Answer:
    """The reply with everything decided that the script left open."""
    blocks = list(reply.blocks)
    calls, said = False, ""
    for index, block in enumerate(blocks):
        if isinstance(block, Opaque):
            said += bytes(block.raw).decode()
            continue
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
