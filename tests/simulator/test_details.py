"""Citations, logprobs and choices, through the chat clients of both colours and in every dialect."""

from __future__ import annotations

import asyncio

import pytest

from dragoman import AsyncChatClient, ChatClient, ModelOptions, RunResult
from dragoman.conversation import Citation, Text, conversation_from_json, conversation_to_json
from dragoman.errors import ProviderError
from dragoman.simulator import Reply, Simulator

PAGE = Citation(url="https://a.ch/x", title="A", start=7, end=8, quote="Sun")
SAID = Text("Zürich 🙂 is nice.", citations=(PAGE, Citation(url="https://b.ch", title="B")))
MODELS = {
    "openai_chat": "openai:gpt-4o",
    "openai_responses": "openai-responses:gpt-4o",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-flash",
    "bedrock": "bedrock:amazon.nova-lite-v1:0",
}
every_dialect = pytest.mark.parametrize("dialect", MODELS)


def results(dialect: str, options: ModelOptions) -> list[RunResult]:
    """The same turn whole and streamed, plain and async, each followed by one that sends the answer back."""
    model, provider = MODELS[dialect], MODELS[dialect].partition(":")[0]
    with Simulator([Reply(SAID, delta=5), "Yes."] * 4) as simulator:
        where = {"key": "any", "base_url": simulator.base_url(provider), "options": options}
        found: list[RunResult] = []
        for streams in (False, True):
            with ChatClient(model, **where) as client:
                if streams:
                    with client.stream_chat("Hi") as stream:
                        list(stream)
                found.append(stream.result if streams else client.chat("Hi"))
                assert client.chat("Sure?").text == "Yes."

        async def both() -> None:
            for streams in (False, True):
                async with AsyncChatClient(model, **where) as client:
                    if streams:
                        async with client.stream_chat("Hi") as stream:
                            async for _ in stream:
                                pass
                    found.append(stream.result if streams else await client.chat("Hi"))
                    assert (await client.chat("Sure?")).text == "Yes."

        asyncio.run(both())
        return found


@every_dialect
def test_citations(dialect: str) -> None:
    first, *others = results(dialect, ModelOptions())
    assert [(one.url, one.title) for one in first.citations] == [("https://a.ch/x", "A"), ("https://b.ch", "B")]
    if dialect in ("anthropic", "bedrock"):
        assert [(one.start, one.quote) for one in first.citations] == [(None, "Sun"), (None, None)]
    else:
        assert [SAID.text[one.start : one.end] for one in first.citations] == ["🙂", SAID.text]
    assert [each.citations for each in others] == [first.citations] * 3
    talk = first.conversation
    assert conversation_from_json(conversation_to_json(talk)) == talk


@every_dialect
def test_logprobs_and_choices(dialect: str) -> None:
    found = [each.replies[-1] for each in results(dialect, ModelOptions(logprobs=2, choices=3, adapt=True))]
    for reply in found:
        assert reply.choices[0] is reply.message
        assert reply.safety == ()
        left_out = {each.what for each in reply.adaptations}
        if "logprobs" in left_out:
            assert reply.logprobs == ()
        else:
            assert "".join([one.token for one in reply.logprobs]) == SAID.text
            assert all(len(one.alternatives) == 2 and one.logprob < 0 for one in reply.logprobs)
        assert [each.text for each in reply.choices] == [SAID.text] * (1 if "choices" in left_out else 3)
        assert reply.logprobs == found[0].logprobs
        assert [each.blocks for each in reply.choices[1:]] == [each.blocks for each in found[0].choices[1:]]
    assert (dialect in ("openai_chat", "gemini")) == (len(found[0].choices) == 3)


def test_citation_without_url_is_refused() -> None:
    with (
        Simulator([Reply(Text("Hi", citations=(Citation(document=1),)))]) as simulator,
        ChatClient("openai:gpt-4o", key="any", base_url=simulator.base_url("openai")) as client,
        pytest.raises(ProviderError, match="give each citation a url"),
    ):
        client.chat("Hi")
