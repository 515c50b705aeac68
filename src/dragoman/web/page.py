"""The app of `dragoman web`: the page's files, and the JSON API behind it.

What the page sends is one thing each: a message, answers about calls, a stop, a fork point, another model or title. The
conversation is the server's; the page shows what the server has, and while a turn is under way what its events say.
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
from dragoman.conversation import Conversation, Message, ToolCall
from dragoman.engines import EngineOptions
from dragoman.errors import ConfigurationError, DragomanError, SnapshotNotFoundError, ToolError
from dragoman.providers import conversation_cost
from dragoman.stores import (
    AsyncConversationStore,
    Recovered,
    Snapshot,
    aresume,
    format_document,
    is_inner,
    new_id,
)
from dragoman.toolkit import PermissionChecker, Rule
from dragoman.tools import AnyTool, PendingApproval, fingerprint

from .frontends import read_body, read_position, report_error
from .guard import Access, guard
from .log import App, EventStream, Receive, Scope, Send
from .trace import timeline
from .turns import Talk, Talks
from .views import (
    SHOWN_IMAGES,
    Answer,
    ChosenModel,
    ForkedSaid,
    PageEncoder,
    Said,
    Title,
    as_it_stands,
    find_media,
    kept_media,
    show_call,
    show_live,
    show_message,
    show_summary,
    write,
)

MAX_UPLOAD_BYTES: Final = 32 * 1024 * 1024
"""Of all files of one message, before base64."""
_MAX_BODY_BYTES: Final = MAX_UPLOAD_BYTES * 4 // 3 + 1024 * 1024
_READ_LAST: Final = 4
_PAGE: Final = 200
"""How many messages are sent at once."""
_STATIC: Final = Path(__file__).with_name("static")

MakePageClient: TypeAlias = Callable[[str, str], Awaitable[AsyncChatClient]]
"""A client on the page's store, for the conversation of this id and this model."""


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
        """What a model is spoken to with, when a conversation goes on with it."""
        self._talks: Talks = Talks(self._make_client, store)
        self._store: AsyncConversationStore = store
        self._checker: PermissionChecker = checker
        self._model: str = model
        self._models: dict[str, None] = dict.fromkeys([model, *models])
        self._chosen: dict[str, str] = {}
        """The models of conversations that are about to begin."""
        self._workspace: str = workspace
        self._read_last: dict[str, Recovered] = {}
        """Conversations that were looked at last: a long one is looked at in many parts."""
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
        """A client with the model that was chosen, else the one that the conversation had, else the default."""
        chosen = self._chosen.pop(id, None)
        if chosen is None:
            try:
                latest = await self._store.latest(id)
                return await self._make(id, f"{latest.provider}:{latest.model}")
            except SnapshotNotFoundError:
                pass
            except DragomanError:  # its key is gone, or its provider; the page says which model answers
                pass
        return await self._make(id, chosen or self._model)

    async def _read(self, request: Request) -> tuple[Snapshot, Talk | None, frozenset[str]]:
        """A conversation as far as it has come, and whether it is open here; no model is needed to look at it.

        Last come the ids of calls that had begun when a program ended, and may have done their work.
        """
        id = request.path_params["id"]
        talk = self._talks.find(id)
        try:
            recovered = await self._recover(id)
        except SnapshotNotFoundError:
            if talk is None:
                raise
            provider, _, model = talk.client.model.partition(":")  # it has just begun
            first = Snapshot.first(talk.client.conversation, provider=provider, model=model, id=id)
            return first, talk, frozenset()
        talk = self._talks.find(recovered.snapshot.root)  # the id may be that of a snapshot
        newest = recovered.snapshot.id, recovered.position
        if talk is not None and not talk.busy and talk.client.kept_as != newest:
            talk = None  # another program went on with it; it is taken up when something is said here
        if talk is None:
            conversation, uncertain = as_it_stands(recovered), recovered.uncertain_calls
        else:
            conversation, uncertain = talk.client.conversation, [each.call for each in talk.client.uncertain]
        found = msgspec.structs.replace(recovered.snapshot, conversation=conversation)
        return found, talk, frozenset([call.id for call in uncertain])

    async def _recover(self, id: str) -> Recovered:
        """What the store has of a conversation; read anew only if somebody went on with it."""
        journal = await self._store.journal(id)
        known = self._read_last.pop(id, None)
        if known is None or (known.snapshot.id, known.position) != (journal.snapshot, journal.position):
            known = await aresume(self._store, id)
        self._read_last[id] = known
        while len(self._read_last) > _READ_LAST:
            del self._read_last[next(iter(self._read_last))]
        return known

    # --- what there is ---

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
        snapshot, talk, uncertain = await self._read(request)
        conversation = snapshot.conversation
        end = _number(request, "before", len(conversation.messages))
        live = talk.turn if talk is not None and talk.busy else None
        if live is not None:
            end = min(end, live.base)
        first = max(0, end - _PAGE)
        return _json(
            {
                "id": snapshot.root,
                "title": snapshot.title,
                "model": talk.client.model if talk is not None else f"{snapshot.provider}:{snapshot.model}",
                "system": conversation.system,
                "forked_from": snapshot.forked_from,
                "count": len(conversation.messages),
                "first": first,
                "messages": [
                    show_message(message, first + place, snapshot.root)
                    for place, message in enumerate(conversation.messages[first:end])
                ],
                "pending": self._pending(conversation, talk, uncertain),
                "live": None if live is None else show_live(live, snapshot.root),
                "usage": conversation.usage,
                "cost": conversation_cost(conversation.messages),
            }
        )

    def _pending(
        self, conversation: Conversation, talk: Talk | None, uncertain: frozenset[str]
    ) -> list[dict[str, object]]:
        """The calls that wait for a person, with what could be remembered of an answer."""
        if talk is not None and talk.busy:
            return []
        known = talk.client.pending if talk is not None else ()
        waiting = known or tuple(
            [PendingApproval(call=call, reason=call.asks) for call in conversation.pending_tool_calls]
        )
        return [
            {
                **show_call(each.call),
                "fingerprint": fingerprint(each.call),
                "reason": each.reason,
                "uncertain": each.call.id in uncertain,
                "rules": [rule.text for rule in self._rules(each.call, _tool_of(talk, each))],
                "answered": talk is not None and fingerprint(each.call) in talk.answers,
            }
            for each in waiting
        ]

    def _rules(self, call: ToolCall, tool: AnyTool | None) -> Sequence[Rule]:
        try:
            return self._checker.suggest(call, tool)
        except ToolError:  # nobody can read its arguments
            return ()

    async def _trace(self, request: Request) -> Response:
        snapshot, *_ = await self._read(request)
        return _json({"turns": timeline(snapshot.conversation)})

    async def _export(self, request: Request) -> Response:
        snapshot, *_ = await self._read(request)
        is_json = request.query_params.get("format") == "json"
        name = f"{snapshot.root}.{'json' if is_json else 'md'}"
        return Response(
            format_document(snapshot, "json" if is_json else "markdown"),
            media_type="application/json" if is_json else "text/markdown; charset=utf-8",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )

    async def _media(self, request: Request) -> Response:
        snapshot, *_ = await self._read(request)
        found = find_media(snapshot.messages, **request.path_params)
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

    # --- what is said ---

    async def _begin(self, request: Request) -> Response:
        said = await read_body(request, Said, _MAX_BODY_BYTES)
        id = new_id()
        if said.model is not None:
            self._chosen[id] = said.model
        talk = await self._talks.open(id)
        return await self._start(talk, said)

    async def _say(self, request: Request) -> Response:
        said = await read_body(request, Said, _MAX_BODY_BYTES)
        return await self._start(await self._open(request), said)

    async def _start(self, talk: Talk, said: Said) -> Response:
        talk.start(PageEncoder(), None if said.go_on else Message.user(*said.blocks()))
        return JSONResponse({"id": talk.id}, 202)

    async def _answer(self, request: Request) -> Response:
        """Answers about calls that wait; the turn goes on when the last of them is answered."""
        given = await read_body(request, list[Answer], _MAX_BODY_BYTES)
        talk = await self._open(request)
        talk.refuse_if_busy()
        waiting = {fingerprint(each.call): each for each in talk.client.pending}
        chosen: list[Rule] = []
        for each in given:
            pending = waiting.get(each.fingerprint)
            if each.approved and each.remember is not None and pending is not None:
                rules = {rule.text: rule for rule in self._rules(pending.call, _tool_of(talk, pending))}
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
        """Another conversation that begins like this one, up to a message of the user, which is said anew."""
        said = await read_body(request, ForkedSaid, _MAX_BODY_BYTES)
        snapshot, *_ = await self._read(request)
        if not 0 <= said.at < len(snapshot.messages) or snapshot.messages[said.at].role != "user":
            raise ConfigurationError("A fork begins at a message of the user.", hint="Choose one.")
        blocks = [*said.blocks(), *kept_media(snapshot.messages[said.at], said.keep)]
        fork = msgspec.structs.replace(snapshot.fork(), conversation=snapshot.conversation.up_to(said.at))
        await self._store.save(fork)
        talk = await self._talks.open(fork.id)
        talk.start(PageEncoder(), Message.user(*blocks))
        return JSONResponse({"id": fork.id}, 202)

    async def _switch(self, request: Request) -> Response:
        """Go on with another model; what it would not get of the conversation is said first, with `check`."""
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
        id = await self._root(request)
        if self._talks.find(id) is not None:
            talk = await self._talks.open(id)
            await talk.rewrite(lambda conversation: conversation, title=title)
        else:
            recovered = await aresume(self._store, id)
            if recovered.uncertain_calls or recovered.done_results:
                raise ConfigurationError("This conversation was interrupted.", hint="Continue it first.")
            following = recovered.snapshot.next(recovered.conversation)
            await self._store.save(msgspec.structs.replace(following, title=title), after=recovered.position)
        return JSONResponse({"title": title})

    async def _delete(self, request: Request) -> Response:
        await self._talks.close(request.path_params["id"])
        await self._store.delete(request.path_params["id"])
        return JSONResponse({})

    async def _events(self, request: Request) -> Any:
        """The events of the turn that is under way, or was the last, behind the one that the page saw last."""
        turn = self._talks.last_turn(request.path_params["id"])
        after = None if turn is None else read_position(request, turn.log)
        if turn is None or after is None:
            return Response(status_code=204)  # which tells the browser not to come back
        return EventStream(turn.log, after=after)

    async def _open(self, request: Request) -> Talk:
        return await self._talks.open(await self._root(request))

    async def _root(self, request: Request) -> str:
        """The conversation's id, where the id of one of its snapshots may be given. Raises SnapshotNotFoundError."""
        id = request.path_params["id"]
        return id if self._talks.find(id) is not None else (await self._store.latest(id)).root


def _tool_of(talk: Talk | None, pending: PendingApproval) -> AnyTool | None:
    return None if talk is None else pending.tool_among(talk.client.tools.tools)


def _json(value: object) -> Response:
    return Response(write(value), media_type="application/json", headers={"cache-control": "no-store"})


def _number(request: Request, name: str, otherwise: int) -> int:
    given = request.query_params.get(name, "")
    return min(int(given), otherwise) if given.isdecimal() and len(given) < 12 else otherwise


# --- files of the page ------------------------------------------------------------------------------------------------

_ASSETS: Final = frozenset([f"assets/{file.name}" for file in _STATIC.glob("assets/*")])
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


async def _static(request: Request) -> Response:
    """A file of the page; every address that is none of them is the page itself, which knows what to show there."""
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
