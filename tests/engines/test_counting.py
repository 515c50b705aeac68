"""How many tokens a conversation has: asked of the provider where it can be, estimated elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from typing import Any
from urllib.parse import unquote

import botocore.session
import pytest
from anthropic.types import MessageCountTokensParams
from botocore.validate import ParamValidator
from msgspec import Raw
from openai.types.responses import InputTokenCountParams

from dragoman._stop import CURRENT, Stop
from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult, ToolSpec, Usage
from dragoman.engines import ScriptedEngine, async_engine, engine
from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    ProtocolError,
    StoppedError,
)
from dragoman.providers import (
    PROVIDERS,
    ModelOptions,
    Reasoning,
    ResponseFormat,
    TokenCount,
    codec_of,
    counting_codec,
    read_refusal,
)
from dragoman.simulator import Malformed, Reply, Simulator, Stall, Status
from dragoman.transport import RetryPolicy
from tests.engines.talking import MODELS
from tests.providers.calls import call_of
from tests.providers.recorded import FOLDER, exchanges

ADD = ToolSpec("add", "Adds two numbers.", Raw(b'{"type":"object","properties":{"a":{"type":"number"}}}'))
TALK = Conversation("Be brief.").plus(
    Message.user("What is 1 + 2?"),
    Message.assistant("Let me see.", ToolCall("call_1", "add", '{"a":1}')),
    Message.tool([ToolResult("call_1", "add", (Text("3"),))]),
)
CLOUDS = {
    "vertex": "vertex:gemini-2.5-flash",
    "vertex-claude": "vertex:claude-sonnet-4-5@20250929",
    "bedrock-arn": "bedrock:arn:aws:bedrock:eu-west-1:123:inference-profile/eu.anthropic.claude-sonnet-4-20250514-v1:0",
}
COUNTED = {name: model for name, model in MODELS.items() if name != "openai_chat"} | CLOUDS
ENDINGS = {
    "anthropic": "/messages/count_tokens",
    "openai_responses": "/responses/input_tokens",
    "gemini": "/models/gemini-2.5-flash:countTokens",
    "bedrock": "/model/anthropic.claude-sonnet-4-5-20250929-v1:0/count-tokens",
    "bedrock-arn": "/model/anthropic.claude-sonnet-4-20250514-v1:0/count-tokens",
    "vertex": "/publishers/google/models/gemini-2.5-flash:countTokens",
    "vertex-claude": "/publishers/anthropic/models/count-tokens:rawPredict",
}


@pytest.mark.parametrize(
    "model", ["azure-responses:gpt-5", "bedrock-mantle:openai.gpt-oss-120b", "bedrock:amazon.nova-lite-v1:0"]
)
def test_where_a_cloud_does_not_count_it_is_estimated(model: str) -> None:
    with Simulator() as simulator:
        assert _count_plain(simulator, model).source == "estimate"
        assert simulator.requests == ()


def test_a_model_of_bedrock_that_cannot_be_counted_is_estimated() -> None:
    """As Bedrock says it of some that its list has."""
    said = Status(400, "The provided model doesn't support counting tokens.", "ValidationException")
    with Simulator([], faults=[said]) as simulator:
        assert _count_plain(simulator, MODELS["bedrock"]).source == "estimate"
        assert len(simulator.requests) == 1
    with Simulator([], faults=[Status(400, "messages: wrong")]) as simulator, pytest.raises(InvalidRequestError):
        _count_plain(simulator, MODELS["bedrock"])


def _count_plain(simulator: Simulator, model: str, conversation: Conversation = TALK, **how: Any) -> TokenCount:
    asked = {"tools": how.pop("tools", ()), "options": how.pop("ask", None)}
    with engine(model, key="test-key", base_url=simulator.base_url(model.partition(":")[0]), **how) as one:
        return one.count(conversation, **asked)


def _count_on_loop(simulator: Simulator, model: str, conversation: Conversation = TALK, **how: Any) -> TokenCount:
    asked = {"tools": how.pop("tools", ()), "options": how.pop("ask", None)}

    async def main() -> TokenCount:
        base_url = simulator.base_url(model.partition(":")[0])
        async with async_engine(model, key="test-key", base_url=base_url, **how) as one:
            return await one.count(conversation, **asked)

    return asyncio.run(main())


both_colours = pytest.mark.parametrize("count", [_count_plain, _count_on_loop], ids=["plain", "async"])


@pytest.mark.parametrize("name", ["openai_chat", *COUNTED])
@both_colours
def test_the_provider_is_asked_where_it_counts(name: str, count: Any) -> None:
    with Simulator([], api_key="test-key") as simulator:
        counted = count(simulator, (MODELS | COUNTED)[name], tools=[ADD])
        if name == "openai_chat":  # which has no such endpoint
            assert (counted.source, simulator.requests) == ("estimate", ())
            assert str(counted) == f"about {counted.tokens} tokens"
            return
        [request] = simulator.requests
        assert counted == TokenCount(tokens=len(request.raw) // 4, source="provider")
        assert str(counted) == f"{counted.tokens} tokens"
        assert unquote(request.path).endswith(ENDINGS[name])
        assert (request.system, request.tools) == ("Be brief.", ("add",))
        assert ["3" in result.text for result in request.tool_results] == [True]


def test_an_endpoint_gets_no_member_that_it_does_not_know() -> None:
    """By the types of the official SDKs."""
    asked = ModelOptions(
        max_tokens=3000,
        stop=("x",),
        reasoning=Reasoning(budget=1024),
        cache="1h",
        user="u",
        response_format=ResponseFormat(schema=Raw(b'{"type":"object","properties":{"n":{"type":"integer"}}}')),
        extra_body={"service_tier": "auto"},
    )
    few = ModelOptions(max_tokens=300, user="u", reasoning=Reasoning(effort="low"), parallel_tool_calls=False)
    with Simulator([]) as simulator:
        _count_plain(simulator, COUNTED["anthropic"], ask=asked)
        _count_plain(simulator, COUNTED["openai_responses"], tools=[ADD], ask=few)
        _count_plain(simulator, COUNTED["gemini"], tools=[ADD], ask=ModelOptions(max_tokens=300))
        _count_plain(
            simulator, COUNTED["bedrock"], tools=[ADD], ask=ModelOptions(max_tokens=3000, stop=("x",), cache=True)
        )
        _count_plain(simulator, COUNTED["vertex-claude"], tools=[ADD], ask=ModelOptions(max_tokens=3000))
        bodies: list[Any] = [request.body for request in simulator.requests]
    assert set(bodies[0]) <= set(MessageCountTokensParams.__annotations__)
    assert {"thinking", "output_config", "messages", "system"} <= set(bodies[0])
    assert set(bodies[1]) <= set(InputTokenCountParams.__annotations__)
    assert {"reasoning", "tools", "input", "instructions", "parallel_tool_calls"} <= set(bodies[1])
    whole = bodies[2]["generateContentRequest"]
    assert (list(bodies[2]), whole["model"]) == (["generateContentRequest"], "models/gemini-2.5-flash")
    assert {"contents", "systemInstruction", "tools"} <= set(whole)
    shape = botocore.session.get_session().get_service_model("bedrock-runtime").shape_for("CountTokensRequest")
    assert not ParamValidator().validate({"modelId": "m", **bodies[3]}, shape).has_errors()
    assert set(bodies[3]["input"]["converse"]) == {"messages", "system", "toolConfig"}
    assert set(bodies[4]) <= {"anthropic_version", *MessageCountTokensParams.__annotations__}
    assert bodies[4]["model"] == "claude-sonnet-4-5@20250929"


def test_an_estimate_begins_where_the_model_last_reported() -> None:
    scripted = ScriptedEngine([])
    asked = Conversation("s" * 400).plus(Message.user("u" * 40))
    assert scripted.count(asked) == TokenCount(tokens=100 + 4 + 10, source="estimate")
    spec = ToolSpec("t" * 40, "d" * 358, Raw(b"{}"))
    assert scripted.count(asked, tools=[spec]).tokens == 100 + 4 + 10 + 100
    reported = asked.plus(Message(role="assistant", blocks=(Text("a"),), usage=Usage(input=1000, output=5)))
    assert scripted.count(reported.plus(Message.user("u" * 40)), tools=[spec]).tokens == 1005 + 4 + 10


@both_colours
def test_counting_fails_and_is_tried_again_as_any_call(count: Any) -> None:
    claude = COUNTED["anthropic"]
    with Simulator([], faults=[Status(529, headers={"retry-after-ms": "1"})]) as simulator:
        with pytest.raises(OverloadedError) as failed:
            count(simulator, claude, retry=RetryPolicy(max_attempts=3))
        assert [attempt.status for attempt in failed.value.attempts] == [529] * 3
        assert len(simulator.requests) == 3
    with Simulator([], api_key="another") as simulator, pytest.raises(AuthenticationError) as refused:
        count(simulator, claude)
    assert "test-key" not in str(refused.value)
    with Simulator([], faults=[Malformed()]) as simulator, pytest.raises(ProtocolError):
        count(simulator, claude, retry=RetryPolicy(max_attempts=1))


def test_counting_ends_when_it_is_told_to_stop() -> None:
    stop = Stop()
    before = CURRENT.set(stop)
    try:
        with Simulator([], faults=[Stall()]) as simulator:
            threading.Timer(0.05, stop.cancel).start()
            with pytest.raises(StoppedError):
                _count_plain(simulator, COUNTED["gemini"])
    finally:
        CURRENT.reset(before)


def test_a_profile_says_whether_a_server_counts() -> None:
    with Simulator([]) as simulator:
        assert _count_plain(simulator, COUNTED["anthropic"], profile={"counts_tokens": False}).source == "estimate"
        with pytest.raises(ConfigurationError, match="openai_chat"):
            _count_plain(simulator, MODELS["openai_chat"], profile={"counts_tokens": True})
        assert not simulator.requests


def test_what_is_counted_is_not_taken_for_a_request_before() -> None:
    with Simulator([Reply("One."), Reply("Two.")]) as simulator:
        base_url = simulator.base_url("anthropic")
        with engine(COUNTED["anthropic"], key="k", base_url=base_url) as claude:
            claude.count(TALK)
            assert claude.reply(TALK).cache.eligible is None
            assert claude.reply(TALK).cache.eligible is not None


# --- as the providers have answered -----------------------------------------------------------------------------------


def _recorded() -> list[Any]:
    rows: list[tuple[str, str, Any, int, str]] = []
    if (FOLDER / "count_tokens.jsonl.gz").exists():
        with gzip.open(FOLDER / "count_tokens.jsonl.gz", "rt", encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
        rows = [(row["name"], row["url"], row["request"], row["status"], row["body"]) for row in found]
    rows += [(r.name, r.url, r.request, r.status, r.body) for r in exchanges("responses") if "/input_tokens" in r.url]
    rows += [(r.name, r.url, r.request, r.status, r.body) for r in exchanges("embeddings") if ":countTokens" in r.url]
    ours = [row for row in rows if "invokeModel" not in row[2].get("input", ())]  # where we count what Converse takes
    reason = pytest.mark.skip(reason="the recorded exchanges are not here")
    return [pytest.param(*row[1:], id=row[0]) for row in ours] or [pytest.param(*[None] * 4, marks=reason)]


@pytest.mark.recorded
@pytest.mark.parametrize(("url", "asked", "status", "body"), _recorded())
def test_recorded_counts(url: str, asked: Any, status: int, body: str) -> None:
    """What we ask is what was asked, where that holds nothing but texts; each answer is read."""
    path = url.partition("?")[0].partition(".com")[2]
    asked = asked["input"]["converse"] if "amazonaws" in url else asked
    system, said = None, _messages(asked.get("messages") or asked.get("input") or asked["contents"])
    if "anthropic.com" in url:
        target = f"anthropic:{asked['model']}"
    elif "openai.com" in url:
        target, system = f"openai-responses:{asked['model']}", asked.get("instructions")
        path = path.removeprefix("/v1")
    elif "amazonaws" in url:
        target = f"bedrock:us.{unquote(path.split('/')[2])}" if status == 200 else "bedrock:does-not-exist-model-v1:0"
    elif "aiplatform" in url:
        target = f"vertex:{path.rpartition('/')[2].removesuffix(':countTokens')}"
        system, path = asked["systemInstruction"]["parts"][0]["text"], path[path.index("/publishers") :]
    else:
        target = f"gemini:{path.rpartition('/')[2].removesuffix(':countTokens')}"
    call = call_of(target, *said, system=system)
    codec = counting_codec(codec_of(PROVIDERS[call.profile.provider].dialect))
    encoded = codec.encode(call)
    assert encoded.request.path == path
    if status != 200:
        assert isinstance(read_refusal(status, {}, body.encode(), call), ModelNotFoundError)
        return
    sent = json.loads(encoded.request.body)
    sent = sent.get("generateContentRequest", sent)
    sent = sent["input"]["converse"] if "amazonaws" in url else sent
    for name in {"model", "messages", "contents"} & asked.keys() if said else ():
        assert sent[name] == asked[name]
    for pieces in ([body], list(body)):
        decoder, events = codec.decoder(call, encoded), list[Any]()
        for piece in pieces:
            decoder.feed(piece.encode(), events)
        decoder.finish(events)
        told = json.loads(body)
        assert events[0].usage.input == told.get("input_tokens", told.get("totalTokens", told.get("inputTokens")))


def _messages(given: list[Any]) -> list[Message]:
    """The messages, if they are nothing but texts of the user; none otherwise."""
    found: list[Message] = []
    for each in given:
        content = each.get("parts") or each["content"]
        parts: list[Any] = [{"text": content}] if isinstance(content, str) else content
        if each["role"] != "user" or any("text" not in part for part in parts):
            return []
        found.append(Message.user(*[part["text"] for part in parts]))
    return found
