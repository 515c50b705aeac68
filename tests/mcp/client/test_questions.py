"""What a server may ask: only during a call, so many for each, one at a time, and counted; in both colours."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import mcp_types as types
import msgspec
import pytest

from dragoman import ChatClient, Conversation, Message, ToolCall, ToolResult, tool
from dragoman.conversation import Usage
from dragoman.engines import ScriptedEngine
from dragoman.loop import LimitReached, Limits
from dragoman.mcp import (
    HttpDoor,
    HttpServer,
    LocalServer,
    McpServer,
    McpServers,
    Question,
    ServerOptions,
    StdioServer,
    ask_client,
)
from dragoman.mcp.questions import Questions
from tests.mcp.client.colours import HOSTILE, Call, Colour

KINDS = ["elicitation/create", "sampling/createMessage"]
HERE: Any = None
"""The SDK's context, which does not matter."""
CALLING = Message.assistant(ToolCall("1", "think", "{}"))


class Asked:
    """A person, and a model, that count how often they are asked, and by how many at once."""

    def __init__(self) -> None:
        self.count: int = 0
        self.most: int = 0
        self._now: int = 0
        self._lock: threading.Lock = threading.Lock()

    def __call__(self, question: object) -> Any:
        with self._lock:
            self.count += 1
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.01)  # long enough for others to come
        with self._lock:
            self._now -= 1
        return {} if isinstance(question, Question) else "text"


def questioning(mode: str, kind: str, asked: Asked, **options: Any) -> McpServers:
    command = ["-S", str(HOSTILE), mode, kind]
    server = StdioServer(sys.executable, command, options=ServerOptions(prefix="", **options))
    return McpServers({"bad": server}, elicit=asked, sample=asked)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("options", "most"), [({}, 8), ({"max_questions": 2}, 2), ({"max_questions": 0}, 0)])
def test_so_many_questions_are_answered_in_a_call_one_at_a_time(
    colour: Colour, kind: str, options: dict[str, Any], most: int
) -> None:
    asked = Asked()

    def body(_servers: McpServers, call: Call) -> None:
        for calls in (1, 2):  # each call has its own
            assert call("ok").text == f"{30 - most} refused"
            assert asked.count == calls * most

    colour(questioning("questions-during", kind, asked, **options), body)
    assert asked.most == min(most, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["questions-before", "questions-after"])
def test_no_question_is_answered_outside_a_call(colour: Colour, mode: str, kind: str) -> None:
    asked = Asked()

    def body(_servers: McpServers, call: Call) -> None:
        if mode == "questions-after":
            assert call("ok").text == "done"

    colour(questioning(mode, kind, asked), body)
    assert asked.count == 0


def test_a_question_ends_with_its_call() -> None:
    """The person has not answered; the server learns that nobody will."""

    async def main() -> None:
        begun, never = asyncio.Event(), asyncio.Event()

        async def elicit(_question: object) -> None:
            begun.set()
            await never.wait()

        questions = Questions("it", 8, elicit, None)
        assert questions.on_elicitation is not None
        params = types.ElicitRequestFormParams(message="?", requested_schema={"type": "object", "properties": {}})
        with questions.during(None):
            first, second = (asyncio.create_task(questions.on_elicitation(HERE, params)) for _ in range(2))
            await begun.wait()
        assert [each.action for each in await asyncio.gather(first, second)] == ["decline"] * 2  # type: ignore[union-attr]
        with questions.during(None):  # the next one has its turn
            begun.clear()
            third = asyncio.create_task(questions.on_elicitation(HERE, params))
            await begun.wait()
        await third

    asyncio.run(main())


def test_odd_questions_are_answered_or_refused() -> None:
    shown: list[str] = []

    async def main() -> None:
        questions = Questions("it", 8, lambda question: shown.append(question.url) or {}, None)  # type: ignore[func-returns-value]
        assert questions.on_elicitation is not None
        schema = {"type": "object", "properties": {"a": {"default": 1}, "b": 5}}
        with questions.during(None):
            form = types.ElicitRequestFormParams(message="?", requested_schema=schema)
            answer = await questions.on_elicitation(HERE, form)
            assert isinstance(answer, types.ElicitResult)
            assert answer.content == {"a": 1}
            for url in ("javascript:alert(1)", "file:///etc/passwd", "https://one.dev/"):
                page = types.ElicitRequestURLParams(message="?", elicitation_id="1", url=url)
                refused = isinstance(await questions.on_elicitation(HERE, page), types.ErrorData)
                assert refused is not url.startswith("https:")

    asyncio.run(main())
    assert shown == ["", "https://one.dev/"]


# --- what they cost ---


@tool
def think() -> str:
    """Ask the client's model twice."""
    message = types.SamplingMessage(role="user", content=types.TextContent(text="Think."))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=9)
    request = types.CreateMessageRequest(params=params)
    first = ask_client(first=request)["first"]
    second = ask_client(second=request)["second"]
    return f"{first and first.content} {second and second.content}"  # type: ignore[union-attr]


USED = Usage(input=90, output=10, charged=0.5)


def paid() -> Message:
    return msgspec.structs.replace(Message.assistant("deep"), usage=USED)


def by_client(_: object) -> Any:
    return ChatClient(ScriptedEngine([paid()])).chat("Think.")


def by_engine(_: object) -> Any:
    return ScriptedEngine([paid()]).reply(Conversation().plus(Message.user("Think.")))


def by_hand(_: object) -> Any:
    return "deep"


def failing(_: object) -> Any:
    raise OSError("after it was paid")


@pytest.mark.parametrize(
    ("sample", "calls", "charged", "said"),
    [
        (by_client, 2, 1.0, "deep"),
        (by_engine, 2, 1.0, "deep"),
        (by_hand, 2, None, "deep"),  # what it cost is not known
        (failing, 2, None, "None"),
        (lambda _: None, 0, 0.0, "None"),
    ],
)
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("protocol", ["legacy", "auto"])
def test_what_a_model_was_asked_counts_for_the_turn(
    sample: Callable[[object], Any], calls: int, charged: float | None, said: str, protocol: Any, remote: bool
) -> None:
    if said == "None" and protocol == "auto":
        said, calls = "declined", min(calls, 1)  # the first refusal ends the call
    options = ServerOptions(prefix="", protocol=protocol)
    with ExitStack() as stack:
        server = stack.enter_context(McpServer([think]))
        url = stack.enter_context(HttpDoor(server)).url if remote else ""
        chosen = HttpServer(url, options=options) if remote else LocalServer(server, options)
        servers = stack.enter_context(McpServers({"it": chosen}, sample=sample))
        client = stack.enter_context(ChatClient(ScriptedEngine([CALLING, "Done."]), servers.tools))
        result = client.chat("Go.")
    assert result.text == "Done."
    (thought,) = result.conversation.messages[-2].blocks
    assert isinstance(thought, ToolResult)
    assert said in thought.text
    assert (result.besides.charged if result.besides else None) == (charged if calls else None)
    assert result.spent.model_calls == 2 + calls
    assert result.spent.tokens == (200 if charged else 0)


def test_questions_end_a_turn_at_its_limit() -> None:
    with (
        McpServer([think]) as server,
        McpServers({"it": LocalServer(server, ServerOptions(prefix=""))}, sample=by_client) as servers,
        ChatClient(
            ScriptedEngine([CALLING, "Never."]), servers.tools, limits=Limits(model_calls=3), on_limit="return"
        ) as client,
    ):
        result = client.chat("Go.")
    assert isinstance(result.ending, LimitReached)
    assert result.spent.model_calls == 3
