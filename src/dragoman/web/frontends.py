"""An ASGI app for your own pages: the Vercel AI SDK at /chat, AG-UI at /agent.

What is trusted of a request: the conversation is in the server's store. A request names it, and may do one thing:

- send a new message of the user: the texts and files of the last message of the request;
- approve or deny a pending call, by the fingerprint of that call and its arguments;
- with the AI SDK, edit a message or ask for another answer: then the server's conversation is cut there, and the old
  version stays in the store's history.

Everything else in a request (earlier messages, replies, system text, results of tools, tools of the client) is not
read, so it cannot be forged. The program decides which conversation a name stands for, and whether this user may see
it (`locate`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar, Unpack, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dragoman._decoding import TooDeepError, decode_as
from dragoman.chat import AsyncChatClient, ChatOptions
from dragoman.conversation import Conversation
from dragoman.engines import AsyncEngine
from dragoman.errors import (
    ConcurrentUseError,
    ConfigurationError,
    DragomanError,
    InvalidCursorError,
    InvalidSnapshotIDError,
    SnapshotNotFoundError,
    StoreError,
)
from dragoman.fleet import Agent
from dragoman.loop import LoopHooks
from dragoman.stores import AsyncConversationStore, AsyncStore, ConversationStore, conversation_id
from dragoman.tools import AnyTools
from dragoman.transport import Transport

from . import ag_ui, ai_sdk
from .log import EventStream, FrameLog, Receive, Scope, Send
from .turns import LiveTurn, Talk, Talks

T = TypeVar("T")

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""Of one request, including its files."""
_LONGEST_NAME: Final = 200

Locate: TypeAlias = Callable[[Request, str], str | Awaitable[str]]
"""From a request, and its name for the conversation, to the conversation's id. Raises if this user may not see it."""


class FrontEnd:
    """An ASGI app through which your pages talk to a model, to be mounted in your program.

    `POST /chat` is for `useChat` of the Vercel AI SDK, `POST /agent` for a client of AG-UI. A turn continues when the
    page leaves, and `GET …/{id}/stream` sends what was missed, unless `stop_when_left` ends it then.
    """

    def __init__(
        self,
        model: str | AsyncEngine,
        tools: AnyTools = (),
        *,
        store: ConversationStore | AsyncConversationStore,
        locate: Locate | None = None,
        stop_when_left: bool = False,
        max_body_bytes: int = MAX_BODY_BYTES,
        transport: Transport | None = None,
        **options: Unpack[ChatOptions],
    ) -> None:
        self._agent: Agent = Agent(model, tools, transport=transport, **options)
        self._talks: Talks = Talks(self._make_client, make_async(store))
        self._locate: Locate = locate or (lambda _, name: conversation_id(name))
        self._stop_when_left: bool = stop_when_left
        self._max_body_bytes: int = max_body_bytes
        self._app: Starlette = Starlette(
            routes=[
                Route("/chat", self._chat, methods=["POST"]),
                Route("/chat/{name}", self._messages, methods=["GET"]),
                Route("/agent", self._run, methods=["POST"]),
                Route("/{kind}/{name}/stream", self._watch, methods=["GET"]),
                Route("/{kind}/{name}/stream", self._stop, methods=["DELETE"]),
            ],
            exception_handlers={DragomanError: report_error, msgspec.MsgspecError: report_error},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if len(path) > 1 and path.endswith("/"):  # some frameworks add it when they mount
            scope = {**scope, "path": path.rstrip("/")}
        await self._app(scope, receive, send)

    async def aclose(self) -> None:
        """Stop all turns and close the connections to the model. The store stays open."""
        await self._talks.aclose()
        await self._agent.aclose()

    async def _make_client(self, id: str) -> AsyncChatClient:
        return self._agent.make_client(id, self._talks.store, LoopHooks())

    async def _open(self, request: Request, name: str) -> Talk:
        if not 0 < len(name) <= _LONGEST_NAME:
            message = f"The name of a conversation has from 1 to {_LONGEST_NAME} characters."
            raise ConfigurationError(message, hint="Send another one.")
        found = self._locate(request, name)
        return await self._talks.open(found if isinstance(found, str) else await found)

    # --- the AI SDK ---

    async def _chat(self, request: Request) -> Any:
        body = await read_body(request, ai_sdk.Request, self._max_body_bytes)
        talk = await self._open(request, body.id)
        talk.refuse_if_busy()
        if body.last.role == "user":
            again = body.trigger == "regenerate-message"
            if again or body.message_id is not None:
                await talk.rewrite(lambda conversation: _cut(conversation, body.user_count, keep=again))
            prompt = None if again else ai_sdk.read_prompt(body.last)
            place = len(talk.client.history) + (prompt is not None)
            turn = talk.start(ai_sdk.Encoder(ai_sdk.message_id(place)), prompt)
        else:
            answers = talk.answer(ai_sdk.read_answers(body.last))
            if not answers:
                message = "There is no new message, or there are calls without an answer."
                raise ConfigurationError(message, hint="End with a message of the user, or answer every call.")
            turn = talk.start(ai_sdk.Encoder(None), None, answers)
        return self._stream(talk, turn, 0)

    async def _messages(self, request: Request) -> Response:
        talk = await self._open(request, request.path_params["name"])
        return JSONResponse(ai_sdk.messages_of(talk.client.conversation, talk.client.pending))

    # --- AG-UI ---

    async def _run(self, request: Request) -> Any:
        body = await read_body(request, ag_ui.Request, self._max_body_bytes)
        talk = await self._open(request, body.thread_id)
        try:
            turn = self._begin_run(talk, body)
        except ConfigurationError as error:  # the protocol reports it in the stream
            log = FrameLog()
            for event in ag_ui.refusal(body, error):
                log.append(msgspec.json.encode(event))
            log.close()
            return EventStream(log)
        return self._stream(talk, turn, 0)

    def _begin_run(self, talk: Talk, body: ag_ui.Request) -> LiveTurn:
        encoder = ag_ui.Encoder(body.thread_id, body.run_id)
        if talk.busy or not (talk.client.pending or body.resume):
            return talk.start(encoder, ag_ui.read_prompt(body))
        answers = talk.answer(ag_ui.read_answers(body))
        if not answers:
            message = "There are interrupts that this run does not answer."
            raise ConfigurationError(message, hint="Answer all of them in `resume`.")
        return talk.start(encoder, None, answers)

    # --- both ---

    async def _watch(self, request: Request) -> Any:
        """The missed events of a running turn, and the rest of it; 204 if there is none."""
        talk = await self._open(request, request.path_params["name"])
        kind = {"chat": ai_sdk.Encoder, "agent": ag_ui.Encoder}.get(request.path_params["kind"])
        if talk.turn is None or not talk.busy or type(talk.turn.encoder) is not kind:
            return Response(status_code=204)
        after = read_position(request, talk.turn.log)
        return Response(status_code=204) if after is None else self._stream(talk, talk.turn, after)

    async def _stop(self, request: Request) -> Response:
        talk = await self._open(request, request.path_params["name"])
        await talk.stop()
        return Response(status_code=204)

    def _stream(self, talk: Talk, turn: LiveTurn, after: int) -> EventStream:
        leave = talk.client.cancel if self._stop_when_left else None
        if isinstance(turn.encoder, ai_sdk.Encoder):
            return EventStream(turn.log, after=after, end=ai_sdk.END, headers=ai_sdk.HEADERS, when_left=leave)
        return EventStream(turn.log, after=after, when_left=leave)


def _cut(conversation: Conversation, number: int, *, keep: bool) -> Conversation:
    """The conversation before the user's message of this number, from 1, or including it with `keep`."""
    places = [index for index, message in enumerate(conversation.messages) if message.role == "user"]
    if not 1 <= number <= len(places):
        message = "The client and the server do not have the same conversation."
        raise ConfigurationError(message, hint="Load the messages again, and send all of them with an edit.")
    return conversation.up_to(places[number - 1] + keep)


# --- shared with our own page -----------------------------------------------------------------------------------------


def make_async(store: ConversationStore | AsyncConversationStore) -> AsyncConversationStore:
    """An async store; a sync one runs in worker threads."""
    if inspect.iscoroutinefunction(store.record):
        return cast("AsyncConversationStore", store)
    return AsyncStore(cast("ConversationStore", store))


async def read_body(request: Request, kind: type[T], limit: int) -> T:
    """The JSON of the request, of this type and within the size limit."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > limit:
            raise TooLargeError(f"A request may have {limit:,} bytes.", hint="Send smaller files, or fewer.")
    try:
        return decode_as(bytes(found), kind)
    except (UnicodeDecodeError, TooDeepError):
        message = "The request cannot be read: it is no UTF-8, or nested too deeply."
        raise ConfigurationError(message, hint="Check the request.") from None


def read_position(request: Request, log: FrameLog) -> int | None:
    """The number of the last frame that a watcher has seen; None if it is gone, or of another turn."""
    return log.find(request.headers.get("last-event-id") or request.query_params.get("after") or "")


class TooLargeError(ConfigurationError):
    """A request is too large."""


_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (TooLargeError, 413),
    (SnapshotNotFoundError, 404),
    (InvalidSnapshotIDError, 404),
    (InvalidCursorError, 400),
    (ConcurrentUseError, 409),
    (ConfigurationError, 400),
    (msgspec.MsgspecError, 400),
    (StoreError, 503),
)


def report_error(_: Request, error: Exception) -> Response:
    """The response to a request that failed, for a person to read."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if isinstance(error, DragomanError):
        content = {"error": error.message, "hint": error.hint}
    else:
        content = {"error": f"The request cannot be read: {error}.", "hint": "Check the request."}
    return JSONResponse(content, status)
