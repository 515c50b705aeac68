"""Scripts, and from a request to the plan of its answer: note it; check it; ask the script; apply faults."""

from __future__ import annotations

import runpy
from collections.abc import Awaitable, Callable, Iterable, Sequence
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
from .dialect import Answer, Dialect, Frame, Refusal, Route, ScriptError
from .exchange import JsonObject, Reply, Request, Transcript, members
from .faults import Fault
from .files import Files
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES
from .plan import Plan

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

# Only the end of a path counts, so that every base URL works: `/v1/messages`, `/openai/v1/chat/completions` …
_CLAUDE_ON_VERTEX: Final = (
    r".*/publishers/anthropic/models/(?:(?P<count>count-tokens)|(?P<model>[^:]+)):(?P<stream>stream)?(?i:rawPredict)"
)
_GENERATE: Final = (
    r".*/(?:models|tunedModels)/(?P<model>[^:]+):(?:(?P<count>countTokens)|(?P<stream>stream)?(?i:generateContent))"
)
_CONVERSE: Final = r".*/model/(?P<model>.+)/(?:(?P<count>count-tokens)|converse(?P<stream>-stream)?)"
_TURNS: Final = (
    Route("POST", r".*/chat/completions", OPENAI_CHAT),
    Route("POST", r".*/responses(?P<count>/input_tokens)?", OPENAI_RESPONSES),
    Route("POST", r".*/messages(?P<count>/count_tokens)?", ANTHROPIC),
    Route("POST", _CLAUDE_ON_VERTEX, ANTHROPIC),
    Route("POST", _GENERATE, GEMINI),
    Route("POST", _CONVERSE, BEDROCK),
)


def _guess_dialect(request: Request) -> Dialect:
    """In whose words somebody is told that a path is nobody's."""
    if "x-goog-api-key" in request.headers or "/v1beta" in request.path:
        return GEMINI
    return ANTHROPIC if "anthropic-version" in request.headers else OPENAI_CHAT


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
        self._routes: tuple[Route, ...] = (*embeddings.ROUTES, *batches.routes, *self._files.routes, *_TURNS)

    async def answer(self, request: Request) -> Plan:
        """The plan of the answer to this request, of which HTTP's part is known."""
        route, said = next(((each, said) for each in self._routes if (said := each.match(request)) is not None), _NONE)
        dialect = _guess_dialect(request) if route is None else route.dialect
        body = _parse_body(request.raw)
        transcript = Transcript([]) if route is None or route.handle else dialect.read(_conversation_in(body or {}))
        request = replace(
            transcript.tell(request),
            dialect="unknown" if route is None else dialect.name,
            model=said.get("model") or str((body or {}).get("model") or ""),
            stream=bool(said["stream"]) if "stream" in said else (body or {}).get("stream") is True,
            number=self._count,
            body=body or {},
        )
        self._count += 1
        self.on_request(request)
        is_count = bool(said.get("count"))
        try:
            if route is None:
                raise Refusal(404, f"Invalid URL ({request.method} {request.path})")
            if self.api_key is not None and request.api_key != self.api_key:
                raise dialect.bad_key(request.api_key)
            if route.handle is None:
                self._check(dialect, request, body, transcript.problems, is_count=is_count)
            is_scripted = route.scripted if route.handle is not None else not is_count
            reply = await self.player.next(request) if is_scripted else Reply()
            plan = _bare_plan(dialect, request, reply)
            if route.handle is not None:
                given = await route.handle(request)
                plan.frames = [Frame(given[0] if isinstance(given, tuple) else given)]
                plan.headers |= given[1] if isinstance(given, tuple) else {}
            elif is_count:
                plan.frames = [Frame(dialect.count(_estimate(request.raw)))]
            elif request.stream:
                plan.streamed, plan.frames = True, dialect.frames(plan.answer)
                plan.headers["content-type"] = dialect.stream_type
            else:
                plan.frames = [Frame(dialect.whole(plan.answer))]
        except Refusal as refusal:
            return _refuse(dialect, request, refusal)
        except ScriptError as error:
            self.errors.append(error)
            return _refuse(dialect, request, Refusal(500, str(error)))
        except Exception as error:  # noqa: BLE001 -- the script's own function may fail in any way
            self.errors.append(error)
            text = f"The simulator's script failed: {type(error).__name__}: {error}"
            return _refuse(dialect, request, Refusal(500, text))
        for fault in (*self.faults, *reply.faults):
            fault.apply(plan)
        return plan

    async def _ask(self, request: Request) -> tuple[int, JsonObject]:
        """The answer to a request of a batch: its status and its body. A fault of the connection is none here."""
        plan = await self.answer(request)
        data = plan.frames[0].data
        return plan.status, data if isinstance(data, dict) else {}

    def _check(
        self, dialect: Dialect, request: Request, body: JsonObject | None, problems: Iterable[str], *, is_count: bool
    ) -> None:
        """Raise what speaks against a turn, in the order in which a provider would look at it."""
        if body is None:
            raise Refusal(400, "The body of the request is not a JSON object.")
        if dialect is GEMINI and request.stream and request.query.get("alt") != "sse":
            raise Refusal(400, "The simulator streams events only: add `alt=sse` to the query.")
        if is_count or not self.check:
            return
        if missing := self._files.missing(request.raw):
            raise Refusal(400, f"There is no file {missing}.")
        told = {"model": request.model} | body if request.model else body  # by the body, or by the path
        for found in chain(dialect.problems(told, request.headers), problems):
            raise Refusal(400, found) if isinstance(found, str) else found


_NONE: Final[tuple[None, dict[str, str | None]]] = (None, {})


def _conversation_in(body: JsonObject) -> JsonObject:
    """The conversation in a request, also in one that asks how many tokens it has."""
    return members(body.get("generateContentRequest") or members(body.get("input")).get("converse")) or body


def _bare_plan(dialect: Dialect, request: Request, reply: Reply) -> Plan:
    """A plan for the headers and what a script left open, without a body."""
    answer = _decide(request, reply)
    headers = {"content-type": dialect.whole_type} | dialect.headers(answer.id("req_"))
    headers |= {name.lower(): value for name, value in reply.headers.items()}
    return Plan(dialect, answer, streamed=False, frames=[], headers=headers)


def _refuse(dialect: Dialect, request: Request, refusal: Refusal) -> Plan:
    plan = _bare_plan(dialect, request, Reply())
    plan.refuse(refusal)
    # Trying again cannot help here, and the official SDKs believe this header.
    plan.headers["x-should-retry"] = "false"
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
