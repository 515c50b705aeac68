"""What a reply cost, from the wire to the caller: prices of one's own, and what providers count or charge."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import Raw

from dragoman import ChatClient, Limits, Prices, errors
from dragoman.conversation import Usage
from dragoman.engines import engine
from dragoman.providers.anthropic import decode as anthropic
from dragoman.providers.gemini import decode as gemini
from dragoman.providers.openai_chat import decode as openai_chat
from dragoman.providers.openai_responses import decode as openai_responses
from dragoman.simulator import Reply, Simulator
from tests.chat.talking import WAYS

USAGE = Usage(input=1_000_000, output=100_000)


@pytest.mark.parametrize(
    ("model", "prices", "cost"),
    [
        ("openai:gpt-5", None, 2.25),
        ("openai:gpt-5", Prices(input=1, output=1), 1.1),
        ("openai:nobody", None, None),
        ("openai:nobody", Prices(input=0, output=0), 0.0),
    ],
)
def test_every_view_of_a_turn_has_the_same_cost(model: str, prices: Prices | None, cost: float | None) -> None:
    """Whole and streamed, plain and async: the reply, the run and the client."""
    began, wanted = datetime.now(UTC), None if cost is None else pytest.approx(cost)
    with Simulator([Reply("Hi.", usage=USAGE)] * 4) as simulator:
        for kind, streamed in WAYS.values():
            base_url = simulator.base_url("openai")
            talk = kind(model, streamed=streamed, key="k" * 20, base_url=base_url, prices=prices)
            result, client = talk.chat("Hello"), talk.client
            talk.close()
            assert (client.cost, result.cost, result.replies[0].cost) == (wanted, wanted, wanted)
            time = client.history[-1].time
            assert time is not None
            assert began <= time <= datetime.now(UTC)


def test_a_limit_of_cost_asks_nothing_of_a_model_without_a_price() -> None:
    with Simulator([Reply("Hi.", usage=USAGE)] * 2) as simulator:
        options = {"key": "k" * 20, "base_url": simulator.base_url("openai"), "limits": Limits(cost=1)}
        with ChatClient("openai:nobody", **options) as client, pytest.raises(errors.UnknownCostError, match="prices="):
            client.chat("Hello")
        assert not simulator.requests
        with ChatClient("openai:nobody", prices=Prices(input=1, output=1), **options) as client:
            assert client.chat("Hello").spent.cost == pytest.approx(1.1)


def test_engines_know_windows_and_prices_without_being_told() -> None:
    with engine("openai:gpt-5", key="k" * 20) as known, engine("openai:nobody", key="k" * 20) as unknown:
        assert (known.context_window, known.priced) == (400_000, True)
        assert (unknown.context_window, unknown.priced) == (None, False)
    with engine("deepseek:deepseek-v4-flash", key="k" * 20) as by_the_hour:
        assert by_the_hour.priced
    with engine("openai:gpt-5", key="k" * 20, profile={"context_window": 5}) as told:
        assert told.context_window == 5


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        (
            openai_chat._read_usage(
                {"usage": Raw(b'{"prompt_tokens":9,"completion_tokens":4,"cost":0.25,"is_byok":false}')}
            ),
            {"charged": 0.25},
        ),
        (
            openai_chat._read_usage(
                {"usage": Raw(b'{"prompt_tokens":9,"completion_tokens":4,"cost":0.25,"is_byok":true}')}
            ),
            {"charged": None},
        ),
        (
            openai_chat._read_usage({"usage": Raw(b'{"prompt_tokens":9,"cost":{"total":1}}')}),
            {"charged": None},
        ),
        (
            openai_chat._read_usage(
                {
                    "usage": Raw(
                        b'{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"audio_tokens":3},'
                        b'"completion_tokens_details":{"audio_tokens":2}}'
                    )
                }
            ),
            {"audio_input": 3, "audio_output": 2},
        ),
        (openai_responses._read_usage({"input_tokens": 9, "output_tokens": 4, "cost": 0.5}), {"charged": 0.5}),
        (
            anthropic._read_usage(
                {
                    "input_tokens": 9,
                    "cache_creation_input_tokens": 7,
                    "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 5},
                }
            ),
            {"cache_write": 7, "cache_write_1h": 5},
        ),
        (
            anthropic._read_usage({"input_tokens": 9, "cache_creation_input_tokens": 7, "cache_creation": None}),
            {"cache_write": 7, "cache_write_1h": None},
        ),
        (
            gemini._read_usage(
                Raw(
                    b'{"promptTokenCount":9,"cachedContentTokenCount":4,"candidatesTokenCount":1,'
                    b'"promptTokensDetails":[{"modality":"TEXT","tokenCount":4},{"modality":"AUDIO","tokenCount":5}],'
                    b'"cacheTokensDetails":[{"modality":"AUDIO","tokenCount":4}]}'
                )
            ),
            {"audio_input": 5, "audio_cache_read": 4, "audio_output": None},
        ),
    ],
)
def test_what_providers_count_and_charge(usage: Usage, known: dict[str, object]) -> None:
    assert {name: getattr(usage, name) for name in known} == known
