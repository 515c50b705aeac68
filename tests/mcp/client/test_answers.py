"""A client that answers the questions of servers, signs in, and says what it is that keeps it out; in both colours."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from dragoman import errors, tool
from dragoman.mcp import (
    HttpDoor,
    HttpServer,
    LocalServer,
    McpServer,
    McpServers,
    Question,
    ServerOptions,
    StdioServer,
    TokenFile,
    ask_client,
    ask_user,
    oauth,
)
from tests.mcp.client.colours import HOSTILE, Call, Colour, hostile

NAME: dict[str, object] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}},
    "required": ["name"],
}


@tool
def greet() -> str:
    """Ask who is there."""
    return f"hello {ask_user('Who are you?', NAME)}"


@tool
def think() -> str:
    """Ask the client's model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(text="Think."))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=9)
    answer = ask_client(thought=types.CreateMessageRequest(params=params))["thought"]
    return f"{answer and answer.content}"  # type: ignore[union-attr]


@pytest.mark.parametrize(("protocol", "is_async"), [("legacy", False), ("auto", True)])
def test_questions_are_passed_to_the_functions(colour: Colour, protocol: str, is_async: bool) -> None:
    asked: list[Question] = []

    def plain(question: Question) -> dict[str, Any] | None:
        asked.append(question)
        time.sleep(0.7)  # people take their time, and a call's time does not run meanwhile
        return {"name": "Ada"} if len(asked) == 1 else None

    async def later(question: Question) -> dict[str, Any] | None:
        return await asyncio.to_thread(plain, question)

    def body(_servers: McpServers, call: Call) -> None:
        assert call("greet").text == "hello {'age': 7, 'name': 'Ada'}"
        assert call("greet").text == "hello None"
        assert "deep" in call("think").text

    options = ServerOptions(prefix="", call_timeout=0.5 if protocol == "legacy" else 20, protocol=protocol)  # type: ignore[arg-type]
    server = LocalServer(McpServer([greet, think]), options)
    colour(McpServers({"it": server}, elicit=later if is_async else plain, sample=lambda _: "deep"), body)
    assert asked[0] == Question(server="it", message="Who are you?", schema=NAME)


@pytest.mark.parametrize("function", [None, lambda _: None, lambda _: 1 / 0])
def test_unanswered_questions_are_declined(colour: Colour, function: Callable[..., Any] | None) -> None:
    def body(_servers: McpServers, call: Call) -> None:
        said = json.loads(call("ok").text)
        assert said["roots/list"] in (-32600, -32601)
        assert said["sampling/createMessage"] in (-32600, -32601)
        assert said["elicitation/create"] in (-32600, -32601, {"action": "decline"})

    server = StdioServer(sys.executable, ["-S", str(HOSTILE), "ask"], options=ServerOptions(prefix=""))
    colour(McpServers({"bad": server}, elicit=function, sample=function), body)


def test_endless_questions_end_the_call(colour: Colour) -> None:
    def body(_servers: McpServers, call: Call) -> None:
        assert "10 times" in call("ok").text

    servers = hostile("ask-again", max_questions=20)
    servers._home.elicit = lambda _: {}
    colour(servers, body)


# --- who may come in ---


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
def test_a_missing_token_is_reported(colour: Colour, protocol: str) -> None:
    options = ServerOptions(protocol=protocol)  # type: ignore[arg-type]
    with (
        McpServer([greet]) as server,
        HttpDoor(server, token="a-token-of-some-length") as door,
        pytest.raises(errors.McpConnectionError, match="refused access: it answered with HTTP 401") as caught,
    ):
        colour(McpServers({"ours": HttpServer(door.url, options=options)}), lambda *_: None)
    assert "oauth" in str(caught.value.hint)


def test_tokens_are_kept_in_a_file_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tokens.json"
    store = TokenFile(path)
    known = OAuthClientInformationFull(client_id="me", redirect_uris=[AnyUrl("http://127.0.0.1/callback")])

    async def main() -> None:
        assert await store.get_tokens() is None
        await store.set_tokens(OAuthToken(access_token="s3cret"))
        await store.set_client_info(known)
        again = TokenFile(str(path))
        tokens, client = await again.get_tokens(), await again.get_client_info()
        assert tokens is not None
        assert client is not None
        assert (tokens.access_token, client.client_id) == ("s3cret", "me")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [each.name for each in path.parent.iterdir()] == ["tokens.json"]
        path.write_text("{broken")
        with pytest.raises(errors.ConfigurationError, match="cannot be read"):
            await again.get_tokens()

    asyncio.run(main())


def test_the_redirect_of_the_browser_is_received() -> None:
    async def main() -> None:
        pages: list[str] = []
        page = "https://mcp.dragoman.dev/agree?state=s"
        provider = oauth("https://mcp.dragoman.dev/mcp", "unused.json", show=pages.append, port=0)
        context = provider.context
        (back,) = [str(each) for each in context.client_metadata.redirect_uris or []]
        assert context.redirect_handler is not None
        assert context.callback_handler is not None
        for query, code in (("code=c&state=s&iss=i", "c"), ("error=access_denied&state=s", None)):
            await context.redirect_handler(page)
            async with httpx2.AsyncClient() as browser:
                assert (await browser.get(back.replace("callback", "favicon.ico"))).status_code == 404
                for stranger in ("code=evil", "code=evil&state=", "code=evil&state=t", "error=x", "error=x&state=st"):
                    assert (await browser.get(f"{back}?{stranger}")).status_code == 404
                assert (await browser.get(f"{back}?{query}")).status_code == 200
            if code is None:
                with pytest.raises(errors.McpConnectionError, match="refused"):
                    await context.callback_handler()
                continue
            brought = await context.callback_handler()
            assert (brought.code, brought.state, brought.iss) == ("c", "s", "i")
        assert pages == [page] * 2

    asyncio.run(main())
