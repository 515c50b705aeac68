"""Compare our costs with those of genai-prices; `python -m tests.providers.prices 20000` compares so many replies."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from genai_prices import Usage as TheirUsage, calc_price
from genai_prices.data import providers

from devtools.prices import PROVIDERS, makes_vectors
from dragoman.conversation import Message, Usage
from dragoman.providers import cost_of

OURS = {"aws": "bedrock-mantle", "azure": "azure-responses", "google": "gemini", "voyageai": "voyage", "x-ai": "xai"}
THEIRS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "cache_write_1h": "cache_write_1h_tokens",
    "reasoning": "output_reasoning_tokens",
    "audio_input": "input_audio_tokens",
    "audio_output": "output_audio_tokens",
    "audio_cache_read": "cache_audio_read_tokens",
}


def random_replies(count: int, seed: int) -> Iterator[Message]:
    """Replies of models that genai-prices knows, of all sizes and times, and a few that nobody knows."""
    chance = random.Random(seed)
    known = [each for each in providers if each.id in PROVIDERS]
    for _ in range(count):
        provider = chance.choice(known)
        model = chance.choice(provider.models) if provider.models else None
        name = chance.choice([*_names(model.match), model.id]) if model is not None else "nobody"
        vectors = model is not None and makes_vectors(provider, model)
        name += chance.choice([*[""] * 12, "-20250929", "-2025-08-07", "-preview", ":free"])
        yield Message(
            role="assistant",
            provider=OURS.get(provider.id, provider.id),
            model=name.upper() if chance.random() < 0.05 else name,
            usage=Usage(input=chance.randint(0, 300_000), output=0) if vectors else _random_usage(chance),
            time=datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(60 * 24 * 365 * 3)),
        )


def _names(clause: Any) -> list[str]:
    [(kind, value)] = vars(clause).items()
    if kind in ("or_", "and_"):
        return [name for each in value for name in _names(each)]
    return [] if kind == "regex" else [value]


def _random_usage(chance: random.Random) -> Usage:
    def part(of: int) -> int:
        return chance.choice([0, 0, chance.randint(0, of), of])

    size = chance.choice([10, 5_000, 150_000, 300_000, 1_200_000])
    total, output = chance.randint(0, size), chance.randint(0, 50_000)
    read = part(total)
    wrote = part(total - read)
    heard = part(total - read - wrote)
    heard_cached = part(read)
    return Usage(
        input=total,
        output=output,
        cache_read=read,
        cache_write=wrote,
        cache_write_1h=part(wrote),
        reasoning=part(output),
        audio_input=heard + heard_cached,
        audio_output=part(output),
        audio_cache_read=heard_cached,
    )


def their_cost(message: Message) -> float | None:
    """What genai-prices says; None if it does not know the model, or prices it by what a chat does not count."""
    counts = {theirs: getattr(message.usage, ours) or 0 for ours, theirs in THEIRS.items()}
    name = {ours: theirs for theirs, ours in OURS.items()}.get(message.provider or "", message.provider)
    try:
        found = calc_price(
            TheirUsage(**counts), message.model or "", provider_id=name, genai_request_timestamp=message.time
        )
    except LookupError:
        return None
    if makes_vectors(found.provider, found.model):
        return float(found.total_price)
    prices = found.model.prices if isinstance(found.model.prices, list) else [found.model]
    for each in prices:
        columns = {key for key, price in each.prices.__dict__.items() if price is not None}
        if not {"input_mtok", "output_mtok"} <= columns:
            return None
        if any(word in key for key in columns for word in ("image", "video", "hours", "mchars", "kpages", "messages")):
            return None
        if any(key.startswith("output_reasoning") for key in columns):
            return None
    return float(found.total_price)


def compare(count: int, seed: int) -> tuple[int, int]:
    """How many of so many random replies have a cost, and how many none; both libraries agree about all of them."""
    known = unknown = 0
    for message in random_replies(count, seed):
        ours, theirs = cost_of(message), their_cost(message)
        assert ours == (theirs if theirs is None else pytest.approx(theirs, rel=1e-9, abs=1e-12)), (message, theirs)
        known, unknown = known + (ours is not None), unknown + (ours is None)
    return known, unknown


if __name__ == "__main__":
    known, unknown = compare(int(sys.argv[1]), random.randrange(10**9))
    print(f"{known} replies have the same cost, {unknown} have none in both.")  # noqa: T201 - what the command is for
