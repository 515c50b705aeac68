"""Costs of replies: compared with genai-prices, by custom prices, and unknown ones."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from msgspec import Raw
from msgspec.structs import replace

from devtools.prices import COLUMNS, TABLE, make_table
from dragoman.conversation import Message, Native, StopReason, Usage
from dragoman.errors import ConfigurationError
from dragoman.providers import Prices, conversation_cost, cost_of, price_table, prices_of, total_cost, window_of
from tests.providers.prices import compare

USAGE = Usage(input=1_000_000, output=1_000_000)
SAID = Message(role="assistant", provider="openai", model="gpt-5", usage=USAGE, stop_reason=StopReason.END)


def test_random_replies_cost_what_genai_prices_says() -> None:
    known, unknown = compare(400, seed=17)
    assert known >= 200
    assert unknown >= 20


def test_the_table_is_up_to_date_with_the_script() -> None:
    table = json.loads(gzip.decompress(TABLE.read_bytes()))
    assert table == json.loads(json.dumps(make_table(table["date"])))
    assert TABLE.stat().st_size < 30_000
    assert list(COLUMNS) == list(Prices.__struct_fields__)
    assert (price_table().source, price_table().date) == (table["source"], table["date"])


def test_the_table_is_loaded_on_demand() -> None:
    program = (
        "import dragoman\n"
        "from dragoman.providers.prices import price_table\n"
        "client = dragoman.ChatClient('openai:gpt-5', key='k' * 20)\n"
        "dragoman.ChatClient(dragoman.ScriptedEngine(['hi'])).chat('hello')\n"
        "assert price_table.cache_info().currsize == 0\n"
        "assert client.cost == 0.0 and client.engine.priced\n"
        "assert price_table.cache_info().currsize == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("changes", "cost"),
    [
        ({}, 11.25),
        ({"provider": "openai-responses"}, 11.25),
        ({"usage": None}, None),
        ({"usage": Usage(input=5)}, None),
        ({"usage": Usage(input=5, output=5, cache_read=6)}, None),
        ({"usage": USAGE + Usage()}, None),
        ({"model": None}, None),
        ({"model": "nobody"}, None),
        ({"provider": None}, None),
        ({"provider": "ollama"}, None),
        ({"provider": "openai-compatible"}, None),
        ({"stop_reason": StopReason.INTERRUPTED}, None),
        ({"native": Native("openai", {"service_tier": Raw(b'"flex"')})}, None),
        ({"native": Native("openai", {"service_tier": Raw(b'"default"')})}, 11.25),
        ({"provider": "local", "model": "nobody", "usage": None}, 0.0),
        ({"model": "nobody", "usage": replace(USAGE, charged=0.5)}, 0.5),
        ({"usage": replace(USAGE, charged=0.5)}, 0.5),
        ({"usage": replace(USAGE, charged=0.5), "stop_reason": StopReason.INTERRUPTED}, None),
    ],
)
def test_an_unknown_cost_is_none(changes: dict[str, object], cost: float | None) -> None:
    message = replace(SAID, **changes)
    assert cost_of(message) == (None if cost is None else pytest.approx(cost))
    asked, example = Message.user("?"), Message.assistant("put into its mouth")
    if message.provider is not None or message.usage is not None:
        assert conversation_cost([asked, example, message]) == cost_of(message)
    assert conversation_cost([SAID, message]) == total_cost([cost_of(SAID), cost_of(message)])


def test_prices_change_with_the_hour() -> None:
    for hour, cost in ((2, 2), (5, 1)):
        time = datetime(2026, 11, 1, hour, tzinfo=UTC)
        found = prices_of("deepseek", "deepseek-v4-flash", time=time)
        usual = prices_of("deepseek", "deepseek-v4-flash", time=datetime(2026, 11, 1, 5, tzinfo=UTC))
        assert found is not None
        assert usual is not None
        assert found.input == pytest.approx(usual.input * cost)
    assert prices_of("deepseek", "deepseek-v4-flash") is None  # the time is not known


def test_custom_prices() -> None:
    prices = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75)
    usage = Usage(input=1_000_000, output=100_000, cache_read=600_000, cache_write=200_000)
    assert prices.cost(usage) == pytest.approx(0.2 * 3.0 + 0.1 * 15.0 + 0.6 * 0.3 + 0.2 * 3.75)
    assert prices.cost(Usage()) is None
    assert Prices(input=1, output=2).cost(Usage(input=1_000_000, output=0, cache_read=500_000)) == 1.0
    with pytest.raises(ConfigurationError):
        Prices(input=-1, output=2)


def test_context_windows() -> None:
    assert window_of("openai", "gpt-5-2025-08-07") == 400_000
    assert window_of("openai", "nobody") is None
    assert window_of("nobody", "gpt-5") is None
