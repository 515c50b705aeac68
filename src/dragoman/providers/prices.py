"""Prices and context windows of models, and what replies cost.

The table is `prices.json.gz` beside this file: the prices and context windows of genai-prices (MIT licence, Copyright
Pydantic Services Inc.), packed by `python -m devtools.prices`; `price_table()` has its version and date. It is loaded
when first needed.

A cost that is not known is None, and so is a sum with an unknown part. Only tokens are counted, not fees for web
searches, and not the prices of batches and other service tiers. The time that decides about a price is the message's.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Raw, Struct

from dragoman._checks import CheckedMeta, NotNegative
from dragoman._decoding import decode_as
from dragoman.conversation import Message, Usage

from .codec import remembered

# --- prices -----------------------------------------------------------------------------------------------------------


class Prices(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of a million tokens, in US dollars. A kind without a price costs as much as the kind that contains it."""

    input: NotNegative
    output: NotNegative
    cache_read: NotNegative | None = None
    cache_write: NotNegative | None = None
    cache_write_1h: NotNegative | None = None
    audio_input: NotNegative | None = None
    audio_output: NotNegative | None = None
    audio_cache_read: NotNegative | None = None

    def cost(self, usage: Usage) -> float | None:
        """The price of these tokens; None if they were not counted, or the counts contradict each other."""
        if not usage.known or usage.partial:
            return None
        total, counted = 0.0, dict[str, int]()
        for kind, parts in _PARTS.items():
            price: float | None = getattr(self, kind)
            if price is not None:
                count: int | None = getattr(usage, kind)
                tokens = counted[kind] = (count or 0) - sum([counted.get(part, 0) for part in parts])
                if tokens < 0:
                    return None
                total += tokens * price
        return total / 1_000_000


_PARTS: Final = {
    "audio_cache_read": (),
    "cache_write_1h": (),
    "audio_output": (),
    "cache_read": ("audio_cache_read",),
    "cache_write": ("cache_write_1h",),
    "audio_input": ("audio_cache_read",),
    "input": ("cache_read", "cache_write", "cache_write_1h", "audio_input", "audio_cache_read"),
    "output": ("audio_output",),
}
"""The kinds of tokens, and the kinds that each of them contains; the parts come first."""


def cost_of(message: Message) -> float | None:
    """The cost of a model's reply in US dollars; None if it is not known."""
    return remembered(message, "providers.cost", lambda: _calculate_cost(message))


def _calculate_cost(message: Message) -> float | None:
    usage, broken_off = message.usage, message.interrupted
    if usage is not None and usage.charged is not None and not broken_off:
        return usage.charged
    if message.provider in _FREE:
        return 0.0
    if usage is None or broken_off:  # the usage of an interrupted reply is incomplete
        return None
    if message.provider is None or message.model is None or _service_tier(message) in _OTHER_TIERS:
        return None
    prices = prices_of(message.provider, message.model, time=message.time, tokens=usage.input or 0)
    return None if prices is None else prices.cost(usage)


def conversation_cost(messages: Iterable[Message]) -> float | None:
    """The cost of all replies among these messages, and of models behind tools; None if a part of it is not known."""
    return total_cost(_costs_in(messages))


def known_cost(messages: Iterable[Message]) -> float:
    """As much of the cost of these messages as is known."""
    return sum([cost for cost in _costs_in(messages) if cost is not None])


def _costs_in(messages: Iterable[Message]) -> list[float | None]:
    costs = list[float | None]()
    for each in messages:
        if each.role == "assistant" and (each.provider or each.usage):
            costs.append(cost_of(each))
        elif each.role == "tool":
            costs += [result.usage.charged for result in each.tool_results if result.usage is not None]
    return costs


def total_cost(costs: Iterable[float | None]) -> float | None:
    """The sum; None if one of them is not known."""
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


def _service_tier(message: Message) -> bytes | None:
    found = None if message.native is None else message.native.fields.get("service_tier")
    return None if found is None else bytes(found)


_OTHER_TIERS: Final = frozenset([b'"flex"', b'"priority"'])
"""OpenAI's tiers with other prices than those in the table."""
_FREE: Final = frozenset(["local"])
"""Models that this library runs itself. The cost of a server on this machine is not known."""

# --- the table --------------------------------------------------------------------------------------------------------

_NAMES: Final = {
    "azure-responses": "azure",
    "bedrock": "aws",
    "bedrock-mantle": "aws",
    "bedrock-mantle-chat": "aws",
    "claude-local": "anthropic",
    "gemini": "google",
    "openai-responses": "openai",
    "openrouter-responses": "openrouter",
    "vertex": "google",
    "vertex-claude": "google",
    "voyage": "voyageai",
    "xai": "x-ai",
}
"""Our names of providers that have another name in the table."""

_Match: TypeAlias = str | list[Any]
"""An operator and a text: the model's name `=` is, `^` starts with, `$` ends with, `*` contains or `~` matches (as a
regular expression) the text. One item of a list must match; after `&` all of them."""

_Price: TypeAlias = float | list[float] | None
"""Per million tokens. A list is a price, then pairs: above so many input tokens, this price for all tokens."""


class _Offer(Struct, frozen=True, array_like=True):
    """Prices in the order of the fields of `Prices`, and when they apply."""

    when: str | None
    """From a date on (`2025-09-01`), or between two times of every day (`00:30-16:30`), in UTC; None: always."""
    prices: list[_Price]


class _Row(Struct, frozen=True, array_like=True):
    match: _Match
    window: int | None = None
    offers: list[_Offer] = []
    """The last one that applies counts, else the first. Empty: the price depends on something that is not counted."""


class _Provider(Struct, frozen=True):
    models: list[_Row]
    """The first one that matches counts."""
    others: list[str] = []
    """Providers whose models it has too."""


class PriceTable(Struct, frozen=True):
    """The table and its source."""

    source: str
    date: str
    providers: dict[str, Raw]


@cache
def price_table() -> PriceTable:
    """The table that came with this version of the library."""
    packed = Path(__file__).with_name("prices.json.gz").read_bytes()
    return decode_as(zlib.decompress(packed, 31), PriceTable)  # 31: with the header of gzip


def prices_of(provider: str, model: str, *, time: datetime | None = None, tokens: int = 0) -> Prices | None:
    """The prices of a model for a request of so many tokens at this time; None if they are not known."""
    if provider in _FREE:
        return Prices(input=0, output=0)
    row = _row_of(provider, model)
    if row is None or not row.offers:
        return None
    chosen = row.offers[0]
    for offer in reversed(row.offers):
        applies = _applies(offer.when, time)
        if applies is None:
            return None
        if applies:
            chosen = offer
            break
    at: dict[str, Any] = {
        kind: _price_at(price, tokens) for kind, price in zip(Prices.__struct_fields__, chosen.prices, strict=False)
    }
    return Prices(**at)


def window_of(provider: str, model: str) -> int | None:
    """The context window of a model in tokens, by the table; None if it is not known."""
    row = _row_of(provider, model)
    return None if row is None else row.window


def _applies(when: str | None, time: datetime | None) -> bool | None:
    """Whether an offer applies. An unknown time is after every date, but for an hour of the day the result is None."""
    if when is None:
        return True
    utc = time if time is None or time.tzinfo is None else time.astimezone(UTC)
    if ":" not in when:
        return utc is None or utc.date().isoformat() >= when
    if utc is None:
        return None
    (begin, end), now = when.split("-"), utc.time().isoformat()
    return begin <= now < end if begin <= end else now >= begin or now < end


def _price_at(price: _Price, tokens: int) -> float | None:
    if not isinstance(price, list):
        return price
    first, *steps = price
    for above, then in zip(steps[-2::-2], steps[::-2], strict=True):
        if tokens > above:
            return then
    return first


# --- looking up a model -----------------------------------------------------------------------------------------------


@cache
def _provider_of(name: str) -> _Provider | None:
    found = price_table().providers.get(name)
    return None if found is None else decode_as(found, _Provider)


@lru_cache(maxsize=256)
def _row_of(provider: str, model: str) -> _Row | None:
    found, name = _provider_of(_NAMES.get(provider, provider)), model.lower()
    if found is None:
        return None
    providers = [found, *filter(None, map(_provider_of, found.others))]
    for spelled in dict.fromkeys((name, _DAY.sub(r"-\1-\2-\3", name))):
        for row in [row for provider in providers for row in provider.models]:
            if _matches(row.match, spelled):
                return row
    return None


_DAY: Final = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
"""A date at the end of a name, which OpenRouter writes without dashes."""


_OPERATORS: Final[dict[str, Callable[[str, str], bool]]] = {
    "=": str.__eq__,
    "^": str.startswith,
    "$": str.endswith,
    "*": str.__contains__,
    "~": lambda name, pattern: re.search(pattern, name) is not None,
}


def _matches(match: _Match, name: str) -> bool:
    if isinstance(match, str):
        return _OPERATORS[match[0]](name, match[1:])
    if match[0] == "&":
        return all(_matches(each, name) for each in match[1:])
    return any(_matches(each, name) for each in match)
