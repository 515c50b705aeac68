"""The app for other people's pages inside of the frameworks that they use."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import AsyncScriptedEngine, MemoryStore
from dragoman.web import FrontEnd, WebServer


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
def test_it_is_mounted_in_three_lines(make: Callable[[], Any]) -> None:
    with WebServer(make()) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        message = {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}
        connection.request("POST", "/api/chat", json.dumps({"id": "a", "messages": [message]}))
        response = connection.getresponse()
        said = response.read().decode()
        connection.close()
    assert response.status == 200
    assert response.getheader("x-vercel-ai-ui-message-stream") == "v1"
    assert '"delta":"Hello!"' in said
    assert said.endswith("data: [DONE]\n\n")
