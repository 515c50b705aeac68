"""The app of `dragoman web`: the page's files, and the JSON API behind it.

Each request does one thing: send a message, answer calls, stop, fork, change the model or the title. The server has
the conversation; the page shows it, and the events of a running turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dragoman._version import __version__
from dragoman.chat import AsyncChatClient
from dragoman.conversation import Message
from dragoman.engines import EngineOptions
from dragoman.errors import ConfigurationError, DragomanError, SnapshotNotFoundError, ToolError
from dragoman.providers import conversation_cost
from dragoman.stores import AsyncConversationStore, format_document, is_inner, new_id
from dragoman.toolkit import PermissionChecker, Rule
from dragoman.tools import PendingApproval, fingerprint

from .frontends import read_body, read_position, report_error
from .guard import Access, guard
from .log import App, EventStream, Receive, Scope, Send
from .trace import timeline
from .turns import Talk, Talks
from .views import (
    SHOWN_IMAGES,
    Answer,
    ChosenModel,
    ForkMessage,
    NewMessage,
    PageEncoder,
    Title,
    find_media,
    kept_media,
    show_call,
    show_live,
    show_message,
    show_summary,
)

MAX_UPLOAD_BYTES: Final = 32 * 1024 * 1024
"""Of all files of a message together, before base64."""
_MAX_BODY_BYTES: Final = MAX_UPLOAD_BYTES * 4 // 3 + 1024 * 1024
_PAGE: Final = 200
"""The number of messages in a response."""
_STATIC: Final = Path(__file__).with_name("static")

MakePageClient: TypeAlias = Callable[[str, str], Awaitable[AsyncChatClient]]
"""A client on the page's store, for this conversation and this model."""


class Page:
    """The page of `dragoman web` as an ASGI app, behind `access`."""

    def __init__(
        self,
        make_client: MakePageClient,
        *,
        engine_options: Callable[[str], EngineOptions],
        store: AsyncConversationStore,
        checker: PermissionChecker,
        access: Access,
        model: str,
        models: Sequence[str] = (),
        workspace: str = "",
    ) -> None:
        self._make: MakePageClient = make_client
        self._engine_options: Callable[[str], EngineOptions] = engine_options
        """The options of an engine for this model, when a conversation switches to it."""
        self._talks: Talks = Talks(self._make_client, store)
        self._store: AsyncConversationStore = store
        self._checker: PermissionChecker = checker
        self._model: str = model
        self._models: dict[str, None] = dict.fromkeys([model, *models])
        self._chosen: dict[str, str] = {}
        """The models of conversations that are about to start."""
        self._workspace: str = workspace
        app = Starlette(
            routes=[*self._routes(), Route("/{path:path}", _static, methods=["GET"])],
            exception_handlers={DragomanError: report_error, msgspec.MsgspecError: report_error},
        )
        self._app: App = guard(app, access, open_path="/assets/login.css")

    def _routes(self) -> list[Route]:
        one = "/api/conversations/{id}"
        return [
            Route("/api/about", self._about, methods=["GET"]),
            Route("/api/conversations", self._list, methods=["GET"]),
            Route("/api/conversations", self._begin, methods=["POST"]),
            Route(one, self._show, methods=["GET"]),
            Route(one, self._rename, methods=["PATCH"]),
            Route(one, self._delete, methods=["DELETE"]),
            Route(f"{one}/messages", self._say, methods=["POST"]),
            Route(f"{one}/answers", self._answer, methods=["POST"]),
            Route(f"{one}/stop", self._stop, methods=["POST"]),
            Route(f"{one}/forks", self._fork, methods=["POST"]),
            Route(f"{one}/model", self._switch, methods=["POST"]),
            Route(f"{one}/events", self._events, methods=["GET"]),
            Route(f"{one}/trace", self._trace, methods=["GET"]),
            Route(f"{one}/export", self._export, methods=["GET"]),
            Route(f"{one}/media/{{message:int}}/{{block:int}}", self._media, methods=["GET"]),
            Route(f"{one}/media/{{message:int}}/{{block:int}}/{{part:int}}", self._media, methods=["GET"]),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def aclose(self) -> None:
        """Stop all turns. The store stays open."""
        await self._talks.aclose()

    # --- clients ---

    async def _make_client(self, id: str) -> AsyncChatClient:
        """A client with the chosen model, else that of the conversation, else the default."""
        chosen = self._chosen.pop(id, None)
        if chosen is None:
            try:
                latest = await self._store.latest(id)
                return await self._make(id, f"{latest.provider}:{latest.model}")
            except SnapshotNotFoundError:
                pass
            except DragomanError:  # its key or provider is gone; the page shows which model answers
                pass
        return await self._make(id, chosen or self._model)

    # --- reading ---

    async def _about(self, _: Request) -> Response:
        return JSONResponse(
            {
                "version": __version__,
                "model": self._model,
                "models": list(self._models),
                "workspace": self._workspace,
                "searchable": self._store.can_search,
                "max_upload_bytes": MAX_UPLOAD_BYTES,
            }
        )

    async def _list(self, request: Request) -> Response:
        cursor, text = request.query_params.get("cursor") or None, request.query_params.get("search", "").strip()
        if not text:
            page = await self._store.list(limit=60, cursor=cursor)
        elif self._store.can_search:
            page = await self._store.search(text, limit=60, cursor=cursor)
        else:
            page = await self._store.list(text=text, limit=60, cursor=cursor)
        shown = [show_summary(each) for each in page.items if each.message_count and not is_inner(each.root)]
        return JSONResponse({"conversations": shown, "cursor": page.cursor})

    async def _show(self, request: Request) -> Response:
        talk = await self._open(request)
        snapshot, conversation = talk.snapshot, talk.client.conversation
        end = _number(request, "before", len(conversation.messages))
        live = talk.turn if talk.busy else None
        if live is not None:
            end = min(end, live.base)
        first = max(0, end - _PAGE)
        return _json(
            {
                "id": talk.id,
                "title": snapshot.title,
                "model": talk.client.model,
                "system": conversation.system,
                "forked_from": snapshot.forked_from,
                "count": len(conversation.messages),
                "first": first,
                "messages": [
                    show_message(message, first + place, talk.id)
                    for place, message in enumerate(conversation.messages[first:end])
                ],
                "pending": [] if talk.busy else self._pending(talk),
                "live": None if live is None else show_live(live, talk.id),
                "usage": conversation.usage,
                "cost": conversation_cost(conversation.messages),
            }
        )

    def _pending(self, talk: Talk) -> list[dict[str, object]]:
        """The pending calls, with the rules that could be remembered."""
        uncertain = {each.call.id for each in talk.client.uncertain}
        return [
            {
                **show_call(each.call),
                "fingerprint": fingerprint(each.call),
                "reason": each.reason or each.call.asks,
                "uncertain": each.call.id in uncertain,
                "rules": [rule.text for rule in self._rules(talk, each)],
                "answered": fingerprint(each.call) in talk.answers,
            }
            for each in talk.client.pending
        ]

    def _rules(self, talk: Talk, pending: PendingApproval) -> Sequence[Rule]:
        try:
            return self._checker.suggest(pending.call, pending.tool_among(talk.client.tools.tools))
        except ToolError:  # its arguments are not valid
            return ()

    async def _trace(self, request: Request) -> Response:
        talk = await self._open(request)
        return _json({"turns": timeline(talk.client.conversation)})

    async def _export(self, request: Request) -> Response:
        snapshot = (await self._open(request)).snapshot
        is_json = request.query_params.get("format") == "json"
        name = f"{snapshot.root}.{'json' if is_json else 'md'}"
        return Response(
            format_document(snapshot, "json" if is_json else "markdown"),
            media_type="application/json" if is_json else "text/markdown; charset=utf-8",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )

    async def _media(self, request: Request) -> Response:
        talk = await self._open(request)
        found = find_media(talk.client.history, **request.path_params)
        if found is None or found.data is None:
            return JSONResponse({"error": "There is no such file."}, 404)
        shown = found.mime_type in SHOWN_IMAGES
        return Response(
            found.data,
            media_type=found.mime_type if shown else "application/octet-stream",
            headers={
                "content-disposition": "inline" if shown else "attachment",
                "content-security-policy": "default-src 'none'; sandbox",
                "cache-control": "private, max-age=31536000, immutable",
            },
        )

    # --- writing ---

    async def _begin(self, request: Request) -> Response:
        given = await read_body(request, NewMessage, _MAX_BODY_BYTES)
        id = new_id()
        if given.model is not None:
            self._chosen[id] = given.model
        talk = await self._talks.open(id)
        return await self._start(talk, given)

    async def _say(self, request: Request) -> Response:
        given = await read_body(request, NewMessage, _MAX_BODY_BYTES)
        return await self._start(await self._open(request), given)

    async def _start(self, talk: Talk, given: NewMessage) -> Response:
        talk.start(PageEncoder(), None if given.go_on else Message.user(*given.blocks()))
        return JSONResponse({"id": talk.id}, 202)

    async def _answer(self, request: Request) -> Response:
        """Answers about pending calls; the turn continues when all are answered."""
        given = await read_body(request, list[Answer], _MAX_BODY_BYTES)
        talk = await self._open(request)
        talk.refuse_if_busy()
        waiting = {fingerprint(each.call): each for each in talk.client.pending}
        chosen: list[Rule] = []
        for each in given:
            pending = waiting.get(each.fingerprint)
            if each.approved and each.remember is not None and pending is not None:
                rules = {rule.text: rule for rule in self._rules(talk, pending)}
                if each.remember not in rules:
                    raise ConfigurationError("There is no such rule.", hint="Look at the conversation again.")
                chosen.append(rules[each.remember])
        answers = talk.answer([(each.fingerprint, each.approved, each.reason) for each in given])
        for rule in chosen:
            self._checker.remember(rule)
        if answers:
            talk.start(PageEncoder(), None, answers)
        return JSONResponse({"id": talk.id, "started": bool(answers)}, 202)

    async def _stop(self, request: Request) -> Response:
        talk = self._talks.find(request.path_params["id"])
        if talk is not None:
            await talk.stop()
        return JSONResponse({})

    async def _fork(self, request: Request) -> Response:
        """A new conversation that starts like this one, up to a message of the user, which is replaced."""
        given = await read_body(request, ForkMessage, _MAX_BODY_BYTES)
        snapshot = (await self._open(request)).snapshot
        if not 0 <= given.at < len(snapshot.messages) or snapshot.messages[given.at].role != "user":
            raise ConfigurationError("A fork begins at a message of the user.", hint="Choose one.")
        blocks = [*given.blocks(), *kept_media(snapshot.messages[given.at], given.keep)]
        fork = msgspec.structs.replace(snapshot.fork(), conversation=snapshot.conversation.up_to(given.at))
        await self._store.save(fork)
        talk = await self._talks.open(fork.id)
        talk.start(PageEncoder(), Message.user(*blocks))
        return JSONResponse({"id": fork.id}, 202)

    async def _switch(self, request: Request) -> Response:
        """Continue with another model. With `check`, only report what it would not get of the conversation."""
        wanted = await read_body(request, ChosenModel, _MAX_BODY_BYTES)
        talk = await self._open(request)
        talk.refuse_if_busy()
        if wanted.check:
            async with await self._make(talk.id, wanted.model) as other:
                losses, model = other.engine.losses(talk.client.conversation), other.model
        else:
            losses = await talk.client.switch(wanted.model, **self._engine_options(wanted.model))
            await talk.client.save()
            model = talk.client.model
            self._models[model] = None
        return JSONResponse({"model": model, "losses": [str(loss) for loss in losses]})

    async def _rename(self, request: Request) -> Response:
        title = (await read_body(request, Title, _MAX_BODY_BYTES)).title.strip()[:200]
        if not title:
            raise ConfigurationError("A title needs at least one letter.", hint="Write one.")
        talk = await self._open(request)
        if talk.client.uncertain:  # another snapshot would hide that these calls had started
            raise ConfigurationError("This conversation was interrupted.", hint="Continue it first.")
        await talk.rewrite(lambda conversation: conversation, title=title)
        return JSONResponse({"title": title})

    async def _delete(self, request: Request) -> Response:
        await self._talks.close(request.path_params["id"])
        await self._store.delete(request.path_params["id"])
        return JSONResponse({})

    async def _events(self, request: Request) -> Any:
        """The events of the running or last turn, after the last one that the page has seen."""
        turn = self._talks.last_turn(request.path_params["id"])
        after = None if turn is None else read_position(request, turn.log)
        if turn is None or after is None:
            return Response(status_code=204)  # tells the browser not to reconnect
        return EventStream(turn.log, after=after)

    async def _open(self, request: Request) -> Talk:
        """The conversation, also by the id of one of its snapshots. Raises SnapshotNotFoundError."""
        id = request.path_params["id"]
        return await self._talks.open(id if self._talks.find(id) is not None else (await self._store.latest(id)).root)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"cache-control": "no-store"})


def _number(request: Request, name: str, otherwise: int) -> int:
    given = request.query_params.get(name, "")
    return min(int(given), otherwise) if given.isdecimal() and len(given) < 12 else otherwise


# --- files of the page ------------------------------------------------------------------------------------------------

_ASSETS: Final = frozenset([f"assets/{file.name}" for file in _STATIC.glob("assets/*")])
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


async def _static(request: Request) -> Response:
    """A file of the page; at any other path the page itself, which knows what to show there."""
    path = request.path_params["path"]
    name = path if path.startswith("assets/") else "index.html"
    if path.startswith("api/") or (name != "index.html" and name not in _ASSETS):
        return JSONResponse({"error": "There is no such file."}, 404)
    file = _STATIC / name
    age = "no-store" if name == "index.html" else "private, max-age=31536000, immutable"
    return Response(
        file.read_bytes(),
        media_type=f"{_TYPES.get(file.suffix, 'application/octet-stream')}; charset=utf-8",
        headers={"cache-control": age},
    )
