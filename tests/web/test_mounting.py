"""The app for other people's pages inside of the frameworks that they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman import AsyncScriptedEngine, MemoryStore
from dragoman.web import FrontEnd, WebServer
from tests.web.asking import ask


def front_end() -> FrontEnd:
    return FrontEnd(AsyncScriptedEngine(["Hello!"]), store=MemoryStore())


def in_starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    return Starlette(routes=[Mount("/api", front_end())])


def in_fastapi() -> Any:
    from fastapi import FastAPI

    app = FastAPI()
    app.mount("/api", front_end())
    return app


def in_litestar() -> Any:
    from litestar import Litestar, asgi

    return Litestar([asgi("/api", is_mount=True, copy_scope=True)(front_end())])


def in_django() -> Any:
    from django.conf import settings
    from django.core.asgi import get_asgi_application

    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="x" * 50)
    django, ours = get_asgi_application(), front_end()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith("/api/"):
            await ours({**scope, "root_path": "/api"}, receive, send)
        else:
            await django(scope, receive, send)

    return app


urlpatterns: list[object] = []


@pytest.mark.parametrize("make", [in_starlette, in_fastapi, in_litestar, in_django])
@pytest.mark.filterwarnings("ignore")  # of the frameworks, about themselves
def test_mounting_in_other_frameworks(make: Callable[[], Any]) -> None:
    message = {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    with WebServer(make()) as server:
        answer = ask(server.port, "POST", "/api/chat", {"id": "a", "messages": [message]})
    assert answer.status == 200
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert '"delta":"Hello!"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
