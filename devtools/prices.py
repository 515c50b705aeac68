"""Bring the table of prices up to date: `python -m devtools.prices`, in the environment of development.

The data are those of the installed genai-prices (MIT licence); `python3 dev.py lock --upgrade` brings a newer one. Its
code is not used in the library: it would cost more than a call of a model does. What is packed, and how it is read, is
told in src/dragoman/providers/prices.py; tests/providers/test_prices.py compares the two on random replies.
"""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

TABLE: Final = Path(__file__).parents[1] / "src/dragoman/providers/prices.json.gz"

PROVIDERS: Final = (
    *("anthropic", "aws", "azure", "cerebras", "cohere", "deepseek", "fireworks", "google", "groq", "mistral"),
    *("moonshotai", "openai", "openrouter", "together", "voyageai", "x-ai", "zai"),
)
"""Those that engines speak to, and those whose models they have."""

COLUMNS: Final = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "audio_input": "input_audio_mtok",
    "audio_output": "output_audio_mtok",
    "audio_cache_read": "cache_audio_read_mtok",
}
"""The fields of `Prices`, in order, and what they are called there."""

_FEES: Final = frozenset(["web_searches_kcount", "storage_searches_kcount", "code_executions_kcount"])
"""For what is used beside tokens; a reply without it costs its tokens."""

_SIGNS: Final = {"equals": "=", "starts_with": "^", "ends_with": "$", "contains": "*", "regex": "~"}


def make_table(day: str) -> dict[str, Any]:
    """The table as JSON data."""
    from genai_prices.data import providers

    found = {each.id: each for each in providers}
    return {
        "source": f"genai-prices {version('genai-prices')}",
        "date": day,
        "providers": {name: _pack_provider(found[name]) for name in PROVIDERS},
    }


def makes_vectors(provider: Any, model: Any) -> bool:
    """Whether a model embeds texts, and writes none."""
    return provider.id == "voyageai" or "embed" in model.id


def _pack_provider(provider: Any) -> dict[str, Any]:
    models = [_pack_model(each, vectors=makes_vectors(provider, each)) for each in provider.models]
    packed: dict[str, Any] = {"models": models}
    fallbacks: list[str] = provider.fallback_model_providers or []
    others = [name for name in fallbacks if name in PROVIDERS]
    return packed | ({"others": others} if others else {})


def _pack_model(model: Any, *, vectors: bool) -> list[Any]:
    offers = cast("list[Any]", model.prices if isinstance(model.prices, list) else [model.prices])
    packed = [_pack_offer(each, vectors=vectors) for each in offers]
    row = [_pack_match(model.match), model.context_window, [] if None in packed else packed]
    return row if row[2] else row[:2]


def _pack_offer(offer: Any, *, vectors: bool) -> list[Any] | None:
    """When these prices hold, and the prices; None if a reply's cost would depend on what we do not count.

    Vectors are made of texts alone here, and have no price of their own.
    """
    prices = {name: each for name, each in getattr(offer, "prices", offer).__dict__.items() if each is not None}
    if vectors and "input_mtok" in prices:
        prices = {"input_mtok": prices["input_mtok"], "output_mtok": prices.get("output_mtok", 0)}
    named = [prices.get(name) for name in COLUMNS.values()]
    if None in named[:2] or prices.keys() - COLUMNS.values() - _FEES:
        return None
    while named[-1] is None:
        named.pop()
    return [_pack_constraint(getattr(offer, "constraint", None)), [_pack_price(price) for price in named]]


def _pack_price(price: Any) -> Any:
    if not hasattr(price, "tiers"):
        return None if price is None else _number(price)
    return [_number(price.base), *[number for tier in price.tiers for number in (tier.start, _number(tier.price))]]


def _number(price: Any) -> float:
    return int(price) if price == int(price) else float(price)


def _pack_constraint(constraint: Any) -> str | None:
    if constraint is None:
        return None
    if hasattr(constraint, "start_date"):
        return constraint.start_date.isoformat()
    for time in (constraint.start_time, constraint.end_time):
        assert time.utcoffset() in (None, UTC.utcoffset(None)), "the table knows times in UTC"
    return f"{constraint.start_time:%H:%M}-{constraint.end_time:%H:%M}"


def _pack_match(clause: Any) -> Any:
    [(kind, value)] = cast("dict[str, Any]", vars(clause)).items()
    if kind == "or_":
        return [_pack_match(each) for each in value]
    if kind == "and_":
        return ["&", *[_pack_match(each) for each in value]]
    return _SIGNS[kind] + (value if kind == "regex" else value.lower())


def write_table() -> None:
    """Write the table of today."""
    text = json.dumps(make_table(datetime.now(UTC).date().isoformat()), separators=(",", ":"))
    TABLE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{TABLE.name}: {len(text):,} bytes, {TABLE.stat().st_size:,} packed")


if __name__ == "__main__":
    write_table()
