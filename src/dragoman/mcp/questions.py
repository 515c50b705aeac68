"""The questions of one server: only during a call, so many for each call, one at a time, and counted.

A question costs a person's time or a model's tokens, and the server decides how many it asks.
Must not know: the connection, and how a call is made.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.client.session import ElicitationFnT, SamplingFnT
from msgspec import structs

from dragoman._crashes import log_crash
from dragoman.conversation import Usage
from dragoman.engines import Reply
from dragoman.loop import RunResult
from dragoman.tools import ToolContext

from .settings import Question

_Form: TypeAlias = Mapping[str, Any] | None
_Reply: TypeAlias = str | RunResult | Reply | types.CreateMessageResult | None
Elicit: TypeAlias = Callable[[Question], Awaitable[_Form] | _Form]
Sample: TypeAlias = Callable[[types.CreateMessageRequestParams], Awaitable[_Reply] | _Reply]

_FAILED: Final = object()
"""In place of an answer. If it was a model's, somebody may have paid for it."""
_LOGGER: Final = logging.getLogger("dragoman.mcp")


class Call:
    """A call during which the server may ask."""

    def __init__(self, context: ToolContext[object] | None) -> None:
        self.context: ToolContext[object] | None = context
        self.clock: anyio.CancelScope | None = None
        """Its timeout, which stands still while a question is open."""
        self.asked: int = 0
        self.open: set[anyio.CancelScope] = set()
        """Its questions that are being answered, or wait for it."""


_CALL: Final[ContextVar[Call | None]] = ContextVar("dragoman-mcp-call", default=None)
"""Followed by what comes over HTTP in the response to a call; what a program says belongs to no call in particular."""


class Questions:
    """Answers the questions of one server with the program's functions."""

    def __init__(self, server: str, most: int, elicit: Elicit | None, sample: Sample | None) -> None:
        self._server: str = server
        self._most: int = most
        self._elicit: Elicit | None = elicit
        self._sample: Sample | None = sample
        self._calls: list[Call] = []
        self._turn: anyio.Lock = anyio.Lock()

    @contextmanager
    def during(self, context: ToolContext[object] | None) -> Generator[Call, None, None]:
        """A call. Its questions end with it."""
        call = Call(context)
        self._calls.append(call)
        token = _CALL.set(call)
        try:
            yield call
        finally:
            _CALL.reset(token)
            self._calls.remove(call)
            for each in call.open:
                each.cancel()

    @property
    def on_elicitation(self) -> ElicitationFnT | None:
        """For the SDK; None says that nobody can be asked."""
        return None if self._elicit is None else self._ask_user

    @property
    def on_sampling(self) -> SamplingFnT | None:
        """For the SDK; None says that no model can be asked."""
        return None if self._sample is None else self._ask_model

    # --- the two kinds ---

    async def _ask_user(
        self, context: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        form = isinstance(params, types.ElicitRequestFormParams)
        schema = cast("dict[str, object]", params.requested_schema if form else {})
        url = "" if form else str(params.url)
        if url and not url.lower().startswith(("https://", "http://")):
            return _refused("A page to visit must be one of the web.")
        question = Question(server=self._server, message=params.message, schema=schema, url=url)
        call = self._admitted()
        if isinstance(call, types.ErrorData):
            return call
        answer = await self._ask(call, self._elicit, question)
        if not isinstance(answer, Mapping):
            return types.ElicitResult(action="decline")
        fields = cast("dict[str, object]", schema.get("properties") or {})
        known = {name: cast("dict[str, Any]", field) for name, field in fields.items() if isinstance(field, dict)}
        defaults = {name: field["default"] for name, field in known.items() if "default" in field}
        return types.ElicitResult(action="accept", content={**defaults, **answer} if form else None)

    async def _ask_model(
        self, context: object, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        call = self._admitted()
        if isinstance(call, types.ErrorData):
            return call
        answer: object = _FAILED
        try:
            answer = await self._ask(call, self._sample, params)
        finally:
            if call.context is not None:
                for each in _usage_of(answer):
                    call.context.used(each)
        match answer:
            case types.CreateMessageResult():
                return answer
            case str():
                text = answer
            case RunResult():
                text = answer.text
            case Reply():
                text = answer.message.text
            case _:
                return _refused("The request was declined.")
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text=text), model="dragoman")

    # --- whether, and when ---

    def _admitted(self) -> Call | types.ErrorData:
        """The call that a question belongs to, or why it is not asked."""
        own = _CALL.get()
        calls = [each for each in self._calls if own is None or each is own]
        call = min(calls, key=lambda each: each.asked, default=None)
        if call is None:
            return _refused("Questions are answered only during a call.")
        if call.asked >= self._most:
            if call.asked == self._most:
                _LOGGER.warning("MCP server %s: asks more than %d questions in one call", self._server, self._most)
            call.asked += 1
            return _refused(f"No more than {self._most} questions are answered during a call.")
        call.asked += 1
        return call

    async def _ask(self, call: Call, function: Callable[[Any], object] | None, question: object) -> object:
        """Call the program's function, sync or async; _FAILED if it fails, or the call ends before it is done."""
        assert function is not None
        result: object = None
        with anyio.CancelScope() as scope:
            call.open.add(scope)
            try:
                async with self._turn:
                    with self._clocks_stopped():
                        result = _FAILED
                        answer = await anyio.to_thread.run_sync(function, question, abandon_on_cancel=True)
                        result = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # noqa: BLE001 -- the server is told that there is no answer
                log_crash(_LOGGER, "MCP server %s: the function for its question crashed", self._server, error=error)
            finally:
                call.open.discard(scope)
        return result

    @contextmanager
    def _clocks_stopped(self) -> Generator[None, None, None]:
        """Stop the timeouts of all calls: any of them may wait for the answer."""
        began = anyio.current_time()
        clocks = [call.clock for call in self._calls if call.clock is not None and call.clock.deadline < math.inf]
        waiting = {clock: clock.deadline for clock in clocks}
        for clock in clocks:
            clock.deadline = math.inf
        try:
            yield
        finally:
            for clock, deadline in waiting.items():
                clock.deadline = deadline + anyio.current_time() - began


def _usage_of(answer: object) -> list[Usage]:
    """The usage of each model call behind an answer; unknown where the program says nothing about it."""
    match answer:
        case None:
            return []
        case Reply():
            return [_charged(answer)]
        case RunResult():
            return [*map(_charged, answer.replies), *([answer.besides] if answer.besides else [])]
        case _:
            return [Usage()]


def _charged(reply: Reply) -> Usage:
    return structs.replace(reply.message.usage or Usage(), charged=reply.cost)


def _refused(why: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=why)
