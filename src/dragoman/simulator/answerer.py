"""Scripts, and the way from a request to the plan of its answer: record it, check it, ask the script, apply faults."""

from __future__ import annotations

import runpy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from inspect import isawaitable
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec

from dragoman._decoding import DEEPEST_TEXT, decode
from dragoman.errors import ConfigurationError

from . import embeddings
from .anthropic import ANTHROPIC
from .batches import Batches
from .bedrock import BEDROCK
from .dialect import Answer, Dialect, Frame, Refusal, Route, ScriptError, estimate_tokens
from .exchange import JsonObject, Reply, Request, members, read_history, string
from .faults import Fault
from .files import Files
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES
from .plan import Plan

# --- scripts ----------------------------------------------------------------------------------------------------------

Item: TypeAlias = str | Reply | Fault
"""A string is a reply with this text, a fault one with a short text and this fault."""

Function: TypeAlias = Callable[[Request], Item] | Callable[[Request], Awaitable[Item]]
"""Called in the simulator's thread, so it must not block; use `async def` if it has to wait."""

Script: TypeAlias = Item | Sequence[Item] | Function
"""One reply, replies in order, or a function that is called for each request."""


def echo(request: Request) -> str:
    """The default script: repeats what the user said."""
    return f"You said: {request.last_user_text}"


class Player:
    """A script that is being played."""

    def __init__(self, script: Script | None) -> None:
        self._function: Function | None = None
        self._replies: list[Reply] = []
        self._asked = 0
        if isinstance(script, str | Reply | Fault):
            self._replies = [_reply(script)]
        elif isinstance(script, Sequence):
            self._replies = [_reply(item) for item in cast("Sequence[Item]", script)]
        elif script is None or callable(script):
            self._function = script or echo
        else:
            raise TypeError(f"a script is a list of replies or a function, not {type(script).__name__}")

    async def next(self, request: Request) -> Reply:
        """The reply to this request. Raises ScriptError, or whatever the script's function raises."""
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
    match item:
        case str():
            return Reply(item)
        case Fault():
            return Reply("A short text with a fault.", faults=[item])
        case Reply():
            return item
        case _:  # scripts are not type-checked
            raise TypeError(f"a script gives texts, replies and faults, not {type(item).__name__}")


def load_script(path: str | Path) -> Script:
    """The variable `script` of a Python file. Raises ConfigurationError."""
    try:
        names = runpy.run_path(str(path))
    except (OSError, SyntaxError, ValueError) as error:
        problem = str(error)
    else:
        if "script" in names:
            return cast("Script", names["script"])
        problem = "it has no name `script`"
    message = f"The script {str(path)!r} cannot be used: {problem}."
    raise ConfigurationError(message, hint="It is a Python file; see `dragoman simulate --help`.")


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


class Answerer:
    """Answers requests, one after the other."""

    def __init__(
        self,
        player: Player,
        on_request: Callable[[Request], None],
        api_key: str | None,
        faults: Sequence[Fault],
        *,
        check: bool,
    ) -> None:
        self.player = player
        self.errors: list[Exception] = []
        self._on_request = on_request
        self._api_key = api_key
        self._check = check
        self._faults = faults
        self._count = 0
        self._files = Files()
        batches = Batches(self._answer_in_batch, self._files.data)
        self._routes = (*embeddings.ROUTES, *batches.routes, *self._files.routes, *_TURNS)

    async def answer(self, request: Request) -> Plan:
        """The plan of the answer to this request, of which only the HTTP part is known."""
        matches = ((route, groups) for route in self._routes if (groups := route.match(request)) is not None)
        route, groups = next(matches, (None, dict[str, str | None]()))
        dialect = OPENAI_CHAT if route is None else route.dialect
        is_turn = route is not None and route.handle is None
        body = _parse_body(request.raw)
        request = replace(request, body=body or {}, dialect="unknown" if route is None else dialect.name)
        request, problems = _read_turn(request, dialect) if is_turn else (request, [])
        request = replace(
            request,
            model=groups.get("model") or str(request.body.get("model") or ""),
            stream=bool(groups["stream"]) if "stream" in groups else request.body.get("stream") is True,
            number=self._count,
        )
        self._count += 1
        self._on_request(request)
        is_count, reply = bool(groups.get("count")), Reply()
        try:
            if route is None:
                raise Refusal(404, f"Invalid URL ({request.method} {request.path})")
            if self._api_key is not None and request.api_key != self._api_key:
                raise dialect.bad_key(request.api_key)
            if is_turn and body is None:
                raise Refusal(400, "The body of the request is not a JSON object.")
            if dialect is GEMINI and is_turn and request.stream and request.query.get("alt") != "sse":
                raise Refusal(400, "The simulator only streams events: add `alt=sse` to the query.")
            if is_turn and self._check and not is_count:
                self._refuse_invalid(dialect, request, problems)
            if route.scripted or (is_turn and not is_count):
                reply = await self.player.next(request)
            plan = _empty_plan(dialect, request, reply)
            if route.handle is not None:
                given = await route.handle(request)
                data, headers = given if isinstance(given, tuple) else (given, {})
                plan.frames = [Frame(data)]
                plan.headers |= headers
            elif is_count:
                plan.frames = [Frame(dialect.count(estimate_tokens(request.raw)))]
            elif request.stream:
                plan.streamed, plan.frames = True, dialect.frames(plan.answer)
                plan.headers["content-type"] = dialect.stream_type
            else:
                plan.frames = [Frame(dialect.whole(plan.answer))]
        except Refusal as refusal:
            plan = _refuse(dialect, request, refusal)
            if route is None or is_turn:
                return plan  # the answer of a service may have a fault as well
        except Exception as error:  # noqa: BLE001 -- the script's function may raise anything
            self.errors.append(error)
            failed = f"The simulator's script failed: {type(error).__name__}: {error}"
            return _refuse(dialect, request, Refusal(500, str(error) if isinstance(error, ScriptError) else failed))
        for fault in (*self._faults, *reply.faults):
            fault.apply(plan)
        return plan

    async def _answer_in_batch(self, request: Request) -> tuple[int, JsonObject]:
        """The status and body of the answer to a request of a batch. Faults of the connection do not apply."""
        plan = await self.answer(request)
        data = plan.frames[0].data
        return plan.status, data if isinstance(data, dict) else {}

    def _refuse_invalid(self, dialect: Dialect, request: Request, problems: list[str]) -> None:
        """Raise the first problem of a turn, in the order in which a provider would find it."""
        if missing := self._files.missing(request.raw):
            raise Refusal(400, f"There is no file {missing}.")
        model = {"model": request.model} if request.model else {}  # it may be in the path
        body = {**model, **request.body}
        for problem in chain(dialect.problems(body, request.headers), problems):
            raise Refusal(400, problem) if isinstance(problem, str) else problem


def _read_turn(request: Request, dialect: Dialect) -> tuple[Request, list[str]]:
    """The request with what its conversation says, and the problems of that."""
    body = dict(request.body)  # in some requests for a token count, the conversation is an inner object
    body = members(body.get("generateContentRequest") or members(body.get("input")).get("converse")) or body
    request = replace(request, tools=tuple(string(tool.get("name")) for tool in dialect.tools(body)))
    return read_history(request, dialect.history(body), continued=dialect.is_continued(body))


def _empty_plan(dialect: Dialect, request: Request, reply: Reply) -> Plan:
    answer = Answer(reply, request)
    headers = {"content-type": "application/json"}
    if dialect.id_header:
        headers[dialect.id_header] = answer.id("req_")
    return Plan(dialect, answer, headers | {name.lower(): value for name, value in reply.headers.items()})


def _refuse(dialect: Dialect, request: Request, refusal: Refusal) -> Plan:
    plan = _empty_plan(dialect, request, Reply())
    plan.refuse(refusal)
    # A retry cannot help, and the official SDKs respect this header.
    plan.headers["x-should-retry"] = "false"
    return plan


def _parse_body(data: bytes) -> JsonObject | None:
    try:
        value: object = decode(data, DEEPEST_TEXT)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None
