"""A web service: one client for all requests, and a conversation for each talk.

pip install starlette uvicorn
python examples/web_service.py --model anthropic:claude-sonnet-4-5 --port 8000
curl -d '{"prompt": "I am Ada."}' localhost:8000/talks/1
curl -d '{"prompt": "Who am I?"}' localhost:8000/talks/1
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from dragoman import AsyncChatClient, Conversation, Limits, errors

TALKS: dict[str, Conversation] = {}
"""Conversations are values: put them where the service keeps its data, as JSON if need be."""


async def answer(request: Request) -> JSONResponse:
    client: AsyncChatClient = request.app.state.client
    talk, said = request.path_params["talk"], await request.json()
    try:
        result = await client.chat(said["prompt"], conversation=TALKS.get(talk, Conversation("Be brief.")))
    except errors.LimitReachedError as error:
        return JSONResponse({"error": str(error)}, status_code=504)
    except errors.ProviderError as error:
        return JSONResponse({"error": str(error)}, status_code=502)
    TALKS[talk] = result.conversation
    return JSONResponse({"answer": result.text, "tokens": result.spent.tokens})


def make_app(model: str, base_url: str | None = None) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        client = AsyncChatClient(model, stateless=True, limits=Limits(seconds=60), base_url=base_url)
        async with client as app.state.client:
            yield

    return Starlette(routes=[Route("/talks/{talk}", answer, methods=["POST"])], lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a model over HTTP.")
    parser.add_argument("--model", default="anthropic:claude-sonnet-4-5")
    parser.add_argument("--base-url", help="where the model is, if not at its provider's own address")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    uvicorn.run(make_app(arguments.model, arguments.base_url), port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
