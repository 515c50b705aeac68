"""What replies cost, and how much models can read: a table of models, and prices of one's own.

The table is `prices.json.gz` beside this file: the prices and context windows of genai-prices (MIT licence, Copyright
Pydantic Services Inc.), packed by `python -m devtools.prices`; `TABLE` says of which version and day. It is read when
somebody first asks, so that nobody else pays for it.

What is not known is None, all the way up: never nothing, and never the part of a sum that happens to be known. Counted
are tokens. Fees for each search of the web, prices of batches and of other service tiers have no place here yet: they
would be further columns of a row, chosen by what the message says of itself.

Must not know: the clock. The day and the hour that decide about a price are those of the message.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._checks import CheckedMeta, NotNegative
from dragoman.conversation import Message, Usage

from .codec import remembered

# --- prices -----------------------------------------------------------------------------------------------------------


class Prices(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens cost, in US dollars. A kind without a price costs as much as what it is a part of."""

    input: NotNegative
    output: NotNegative
    cache_read: NotNegative | None = None
    cache_write: NotNegative | None = None
    cache_write_1h: NotNegative | None = None
    audio_input: NotNegative | None = None
    audio_output: NotNegative | None = None
    audio_cache_read: NotNegative | None = None

    def cost(self, usage: Usage) -> float | None:
        """The price of these tokens; None if the provider did not count them, or contradicts itself."""
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
"""The kinds of tokens, and those that each of them contains; the parts come first."""


def cost_of(message: Message) -> float | None:
    """What a model's reply cost, in US dollars; None if that is not known."""
    return remembered(message, "providers.cost", lambda: _calculate_cost(message))


def _calculate_cost(message: Message) -> float | None:
    usage, broken_off = message.usage, message.interrupted
    if usage is not None and usage.charged is not None and not broken_off:
        return usage.charged
    if message.provider in _FREE:
        return 0.0
    if usage is None or broken_off:  # what was counted before it broke off is not all of it
        return None
    if message.provider is None or message.model is None or _service_tier(message) in _OTHER_TIERS:
        return None
    prices = prices_of(message.provider, message.model, time=message.time, tokens=usage.input or 0)
    return None if prices is None else prices.cost(usage)


def conversation_cost(messages: Iterable[Message]) -> float | None:
    """What all replies among these cost, and models behind tools; None if a part of it is not known.

    What no model has said is free.
    """
    costs = list[float | None]()
    for each in messages:
        if each.role == "assistant" and (each.provider or each.usage):
            costs.append(cost_of(each))
        elif each.role == "tool":
            costs += [result.usage.charged for result in each.tool_results if result.usage is not None]
    return total_cost(costs)


def total_cost(costs: Iterable[float | None]) -> float | None:
    """The sum; None as soon as one of them is not known."""
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
"""What OpenAI calls the tiers that cost less, and more, than the table says."""
_FREE: Final = frozenset(["local"])
"""Models that this library runs on this machine. A server on this machine may be anybody's, so it is not known."""

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
"""Our names of providers that the table has under another one."""

_Match: TypeAlias = str | list[Any]
"""A sign and a text: `=` the model's name is this, `^` begins so, `$` ends so, `*` contains it, `~` fits this regular
expression. Of a list one must fit; of a list that begins with `&` all of the others."""

_Price: TypeAlias = float | list[float] | None
"""For a million tokens. A list is the first price, then pairs: above so many tokens of input, this price for all."""


class _Offer(Struct, frozen=True, array_like=True):
    """Prices in the order of the fields of `Prices`, and when they hold."""

    when: str | None
    """From a day on (`2025-09-01`), between two times of every day (`00:30-16:30`), both in UTC; None: always."""
    prices: list[_Price]


class _Row(Struct, frozen=True, array_like=True):
    match: _Match
    window: int | None = None
    offers: list[_Offer] = []
    """The last one that holds counts, else the first. None at all: the price depends on what nobody counts."""


class _Provider(Struct, frozen=True):
    models: list[_Row]
    """The first one that fits counts."""
    others: list[str] = []
    """Providers whose models it has, too."""


class PriceTable(Struct, frozen=True):
    """Where the table comes from."""

    source: str
    date: str
    providers: dict[str, Raw]


@cache
def price_table() -> PriceTable:
    """The table that came with this version of the library."""
    packed = Path(__file__).with_name("prices.json.gz").read_bytes()
    return msgspec.json.decode(zlib.decompress(packed, 31), type=PriceTable)  # 31: with the header of gzip


def prices_of(provider: str, model: str, *, time: datetime | None = None, tokens: int = 0) -> Prices | None:
    """What a model costs by the table, for a request of so many tokens at this time; None if that is not known."""
    if provider in _FREE:
        return Prices(input=0, output=0)
    row = _row_of(provider, model)
    if row is None or not row.offers:
        return None
    chosen = row.offers[0]
    for offer in reversed(row.offers):
        holds = _holds(offer.when, time)
        if holds is None:
            return None
        if holds:
            chosen = offer
            break
    at: dict[str, Any] = {
        kind: _price_at(price, tokens) for kind, price in zip(Prices.__struct_fields__, chosen.prices, strict=False)
    }
    return Prices(**at)


def window_of(provider: str, model: str) -> int | None:
    """How many tokens a model can read by the table; None if that is not known."""
    row = _row_of(provider, model)
    return None if row is None else row.window


def _holds(when: str | None, time: datetime | None) -> bool | None:
    """Whether this is such a time. One that is not known is after every day, but at no hour: None."""
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


# --- finding a model --------------------------------------------------------------------------------------------------


@cache
def _provider_of(name: str) -> _Provider | None:
    found = price_table().providers.get(name)
    return None if found is None else msgspec.json.decode(found, type=_Provider)


@lru_cache(maxsize=256)
def _row_of(provider: str, model: str) -> _Row | None:
    found, name = _provider_of(_NAMES.get(provider, provider)), model.lower()
    if found is None:
        return None
    for spelled in dict.fromkeys((name, _DAY.sub(r"-\1-\2-\3", name))):
        for row in found.models:
            if _fits(row.match, spelled):
                return row
        for other in filter(None, map(_provider_of, found.others)):
            for row in other.models:
                if _fits(row.match, spelled):
                    return row
    return None


_DAY: Final = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
"""A day at the end of a name, which OpenRouter writes without dashes."""


def _fits(match: _Match, name: str) -> bool:
    if not isinstance(match, str):
        if match[0] == "&":
            return all(_fits(each, name) for each in match[1:])
        return any(_fits(each, name) for each in match)
    text = match[1:]
    match match[0]:
        case "=":
            return name == text
        case "^":
            return name.startswith(text)
        case "$":
            return name.endswith(text)
        case "*":
            return text in name
        case _:
            return re.search(text, name) is not None
