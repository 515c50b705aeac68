"""Questions to the client, while it waits for the answer to a request of its own.

A handler that needs an answer is interrupted, and run again from its start once there is one: what has been answered is
remembered. Up to 2025-11-25 the client is asked meanwhile, by a request of ours; since 2026-07-28 the question is the
result, and the client makes its request again, with the answers and with our state, which the SDK has sealed.
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
"""What a client must be able to do to be asked so, and what it then answers."""


class InputNeededError(ToolError):
    """A tool cannot go on before the client has answered. Not an error of the tool, so it is not tried again."""

    type = "denied"

    def __init__(self, requests: Mapping[str, types.InputRequest]) -> None:
        super().__init__("the tool waits for an answer.")
        self.requests: dict[str, types.InputRequest] = dict(requests)


class Asking:
    """What the client was asked while one request is answered, and what it said."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], responses: types.InputResponses, state: str | None) -> None:
        self.ctx: ServerRequestContext[Any, Any] = ctx
        remembered = _RESPONSES.validate_json(state) if state else {}
        self._answers: dict[str, types.InputResponse | None] = {**responses, **remembered}
        """None for what the client refused to be asked."""
        if not state:
            self._answers.pop(_APPROVAL, None)  # without our state nobody was asked

    def can_answer(self, request: types.InputRequest) -> bool:
        return self.ctx.session.check_client_capability(_KINDS[request.method][0])

    def client(self, requests: Mapping[str, types.InputRequest]) -> dict[str, types.InputResponse | None]:
        """The answers, None for what the client cannot be asked; raises InputNeededError if one is not here yet."""
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
        """What the user says; None for a refusal. An answer that does not fit is asked for again."""
        asked = _question(message, schema)
        answer = self.client({key: asked})[key]
        if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
            return None
        content = dict[str, object](answer.content or {})
        if compile_schema(dict(schema)).problems(content):
            del self._answers[key]
            raise InputNeededError({key: asked})
        return content

    def approval(self, call: ToolCall) -> Approval | None:
        """What the user has said about this call, if they were asked about it."""
        said = self._answers.get(_APPROVAL)
        if not isinstance(said, types.ElicitResult):
            return None
        allowed = said.action == "accept" and (said.content or {}).get("allow") is True
        return approve(call) if allowed else deny(call, reason="the user refused")

    def ask_approval(self, pending: PendingApproval) -> None:
        """Ask the user about a call, where the client can do that; raises InputNeededError."""
        call = pending.call
        message = f"May the tool {call.name!r} run ({pending.reason})? Its arguments: {call.arguments}"
        request = _question(message, {"type": "object", "properties": _ALLOW, "required": ["allow"]})
        if self.can_answer(request):
            raise InputNeededError({_APPROVAL: request})

    async def ask(self, requests: Mapping[str, types.InputRequest]) -> None:
        """Ask now, by requests of our own. An error, or what cannot be read, is a refusal."""
        related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
        for key, request in requests.items():
            self._answers[key] = None
            with suppress(MCPError, ValidationError):
                kind = _KINDS[request.method][1]
                self._answers[key] = await self.ctx.session.send_request(request, kind, metadata=related)

    @property
    def state(self) -> str:
        """What is remembered until the client comes back."""
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
    """Answer a request, in as many rounds as the questions need that come up."""
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
        raise MCPError(types.INTERNAL_ERROR, f"Asked {_MAX_ROUNDS} times, and there was no answer that could be used.")
    finally:
        ASKING.reset(token)
