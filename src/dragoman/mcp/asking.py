"""Questions to the client, while it waits for the response to its own request.

A handler that needs an answer is interrupted, and runs again from its start once there is one; earlier answers are
remembered. Up to 2025-11-25 we send the client a request meanwhile; since 2026-07-28 the question is the result, and
the client repeats its request with the answers and with our state, which the SDK seals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dragoman.conversation import ToolCall
from dragoman.errors import ToolError
from dragoman.tools import Approval, PendingApproval, approve, compile_schema, deny

from .calls import ASKING

R = TypeVar("R")

_MAX_ROUNDS: Final = 10
_APPROVAL: Final = "approval"
_RESPONSES: Final[TypeAdapter[types.InputResponses]] = TypeAdapter(types.InputResponses)
_KINDS: Final[Mapping[str, tuple[types.ClientCapabilities, type[types.Result]]]] = {
    "elicitation/create": (types.ClientCapabilities(elicitation=types.ElicitationCapability()), types.ElicitResult),
    "sampling/createMessage": (
        types.ClientCapabilities(sampling=types.SamplingCapability()),
        types.CreateMessageResult,
    ),
    "roots/list": (types.ClientCapabilities(roots=types.RootsCapability()), types.ListRootsResult),
}
"""The capability that a client needs for each kind of question, and the type of its answer."""


class InputNeededError(ToolError):
    """A tool waits for an answer of the client. Of type "denied", so that it is not retried."""

    type = "denied"

    def __init__(self, requests: Mapping[str, types.InputRequest]) -> None:
        super().__init__("the tool waits for an answer.")
        self.requests: dict[str, types.InputRequest] = dict(requests)


class Asking:
    """The questions to the client during one request, and its answers."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], responses: types.InputResponses, state: str | None) -> None:
        self.ctx: ServerRequestContext[Any, Any] = ctx
        remembered = _RESPONSES.validate_json(state) if state else {}
        self._answers: dict[str, types.InputResponse | None] = {**responses, **remembered}
        """None for a refusal."""
        if not state:
            self._answers.pop(_APPROVAL, None)  # without our state we did not ask

    def can_answer(self, request: types.InputRequest) -> bool:
        return self.ctx.session.check_client_capability(_KINDS[request.method][0])

    def client(self, requests: Mapping[str, types.InputRequest]) -> dict[str, types.InputResponse | None]:
        """The answers; None for what the client cannot answer. Raises InputNeededError if one is missing."""
        found: dict[str, types.InputResponse | None] = {}
        missing: dict[str, types.InputRequest] = {}
        for key, request in requests.items():
            answer = self._answers.get(key)
            refused = key in self._answers and answer is None
            if refused or not self.can_answer(request):
                found[key] = None
            elif isinstance(answer, _KINDS[request.method][1]):
                found[key] = answer
            else:
                missing[key] = request
        if missing:
            raise InputNeededError(missing)
        return found

    def user(self, message: str, schema: Mapping[str, object], key: str) -> dict[str, object] | None:
        """The user's answer; None for a refusal. The question is repeated if the answer does not fit."""
        question = _question(message, schema)
        answer = self.client({key: question})[key]
        if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
            return None
        content = dict[str, object](answer.content or {})
        if compile_schema(dict(schema)).problems(content):
            del self._answers[key]
            raise InputNeededError({key: question})
        return content

    def approval(self, call: ToolCall) -> Approval | None:
        """The user's decision about this call, if they were asked."""
        answer = self._answers.get(_APPROVAL)
        if not isinstance(answer, types.ElicitResult):
            return None
        allowed = answer.action == "accept" and (answer.content or {}).get("allow") is True
        return approve(call) if allowed else deny(call, reason="the user refused")

    def ask_approval(self, pending: PendingApproval) -> None:
        """Raise InputNeededError to ask the user about a call, if the client supports it."""
        call = pending.call
        message = f"May the tool {call.name!r} run ({pending.reason})? Its arguments: {call.arguments}"
        request = _question(message, {"type": "object", "properties": _ALLOW, "required": ["allow"]})
        if self.can_answer(request):
            raise InputNeededError({_APPROVAL: request})

    async def ask(self, requests: Mapping[str, types.InputRequest]) -> None:
        """Send the questions as requests of our own. An error or an invalid answer is a refusal."""
        related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
        for key, request in requests.items():
            self._answers[key] = None
            with suppress(MCPError, ValidationError):
                kind = _KINDS[request.method][1]
                self._answers[key] = await self.ctx.session.send_request(request, kind, metadata=related)

    @property
    def state(self) -> str:
        """The answers so far, for the client to send back."""
        answers = {key: answer for key, answer in self._answers.items() if answer is not None}
        return _RESPONSES.dump_json(answers, by_alias=True, exclude_none=True).decode()


_ALLOW: Final[dict[str, object]] = {"allow": {"type": "boolean", "title": "Allow this call", "default": False}}


def _question(message: str, schema: Mapping[str, object]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=dict(schema)))


async def answering(
    ctx: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams | types.GetPromptRequestParams | types.ReadResourceRequestParams,
    answer: Callable[[Asking], Awaitable[R]],
) -> R | types.InputRequiredResult:
    """Answer a request, in as many rounds as it has questions."""
    try:
        asking = Asking(ctx, params.input_responses or {}, params.request_state)
    except ValidationError:
        raise MCPError(types.INVALID_PARAMS, "Invalid or expired requestState") from None
    token = ASKING.set(asking)
    try:
        for _ in range(_MAX_ROUNDS):
            try:
                return await answer(asking)
            except InputNeededError as needed:
                if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    return types.InputRequiredResult(input_requests=needed.requests, request_state=asking.state)
                await asking.ask(needed.requests)
        raise MCPError(types.INTERNAL_ERROR, f"Asked {_MAX_ROUNDS} times without a usable answer.")
    finally:
        ASKING.reset(token)
