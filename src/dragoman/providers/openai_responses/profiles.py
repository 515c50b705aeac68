"""What is known of models that are reached through the Responses API.

Owns: rows of data: which efforts a model knows, whether it takes sampling parameters, what a server does differently.

Efforts and sampling are what OpenAI's guide to reasoning and its error texts say of each model. Quirks:

    reasons_on_request       does not reason unless an effort is given; takes sampling parameters only then
    reasons_unless_told      reasons unless the effort is `none`; takes sampling parameters only with that
    no_reasoning_summary     has no summaries to ask for
    no_encrypted_reasoning   gives its reasoning in plain words, and refuses or ignores the request to encrypt it
    reply_scoped_call_ids    ids of calls are unique within one reply only
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, row, words

# The API has no such parameters.
_NEVER: Final = words("seed stop top_k choices")
_NO_SAMPLING: Final = _NEVER | {"temperature", "top_p", "logprobs"}

_LOW_TO_HIGH: Final = words("low medium high")
_LOW_TO_XHIGH: Final = _LOW_TO_HIGH | {"xhigh"}
_NONE_TO_XHIGH: Final = _LOW_TO_XHIGH | {"none"}
_NONE_TO_MAX: Final = _NONE_TO_XHIGH | {"max"}
_NOTHING: Final = words()

BASE: Final = Profile(
    provider="openai-responses",
    dialect="openai_responses",
    media=words("image document"),
    media_urls=words("image document"),
    tool_result_media=words("image document"),
    tool_limits=ToolLimits(max_tools=128, max_description_length=1024),
    strict_tools=True,
    tool_schema="openai_strict",
    structured="native",
    structured_schema="openai_strict",
    # A name that no row knows may reason or not: what is asked for is sent, and the service judges.
    reasoning="effort",
    efforts=_NONE_TO_MAX,
    unsupported=_NEVER,
)


def _plain(**more: Any) -> Mapping[str, Any]:
    return {"reasoning": "none", "efforts": _NOTHING, "unsupported": _NEVER, "quirks": _NOTHING, **more}


def _always(efforts: frozenset[str], **more: Any) -> Mapping[str, Any]:
    return {"reasoning": "effort", "efforts": efforts, "unsupported": _NO_SAMPLING, "quirks": _NOTHING, **more}


def _sometimes(efforts: frozenset[str], when: str) -> Mapping[str, Any]:
    return {"reasoning": "effort", "efforts": efforts, "unsupported": _NEVER, "quirks": words(when)}


_REQUESTED: Final = "reasons_on_request"
_UNLESS_TOLD: Final = "reasons_unless_told"
_OLD: Final[Mapping[str, Any]] = {"structured": "tool", "media": _NOTHING}

# OpenAI's models, the general before the particular: later rows win.
_MODELS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("gpt-4* chatgpt-4o* ft:gpt-4*", _plain(context_window=128_000)),
    ("gpt-4.1* ft:gpt-4.1*", {"context_window": 1_047_576}),
    ("gpt-4 gpt-4-0* gpt-4-1106* gpt-4-turbo* gpt-4o-2024-05-13", {"structured": "tool"}),
    ("gpt-4 gpt-4-0613", {"media": _NOTHING, "context_window": 8_192}),
    ("gpt-3.5* ft:gpt-3.5*", _plain(**_OLD, context_window=16_385)),
    # Asking for one call at a time is refused by the o-series.
    ("o1* o3* o4*", _always(_LOW_TO_HIGH, single_tool_calls=False, context_window=200_000)),
    ("o1*", {"quirks": words("no_reasoning_summary")}),
    ("o3-mini*", {"media": _NOTHING, "tool_result_media": _NOTHING}),
    ("*-deep-research*", {"efforts": words("medium")}),
    ("codex-mini*", _always(_LOW_TO_HIGH)),
    ("computer-use-preview*", _always(_LOW_TO_HIGH, structured="tool")),
    ("gpt-5*", _always(_LOW_TO_HIGH | {"minimal"}, context_window=400_000)),
    ("gpt-5-codex*", {"efforts": _LOW_TO_HIGH}),
    ("gpt-5-pro*", {"efforts": words("high")}),
    ("gpt-5-chat*", _plain()),
    ("gpt-5.1*", _sometimes(_LOW_TO_HIGH | {"none"}, _REQUESTED)),
    ("gpt-5.1-codex*", _always(_LOW_TO_HIGH)),
    ("gpt-5.1-codex-max*", {"efforts": _LOW_TO_XHIGH}),
    ("gpt-5.2* gpt-5.3* gpt-5.4*", _sometimes(_NONE_TO_XHIGH, _REQUESTED)),
    ("gpt-5.2-codex*", _always(_LOW_TO_XHIGH)),
    ("gpt-5.5*", _sometimes(_NONE_TO_XHIGH, _UNLESS_TOLD)),
    ("gpt-5.4* gpt-5.5* gpt-5.6*", {"context_window": 1_050_000}),
    ("gpt-5.4-mini* gpt-5.4-nano*", {"context_window": 400_000}),
    ("gpt-5.6* gpt-6*", _sometimes(_NONE_TO_MAX, _UNLESS_TOLD)),
    ("gpt-5.[2-5]-pro*", _always(words("medium high xhigh"))),
    ("gpt-5.[123]-chat*", _always(words("medium"), context_window=128_000)),
    # The open models think aloud.
    (
        "gpt-oss*",
        {
            **_sometimes(_LOW_TO_HIGH, "no_encrypted_reasoning"),
            "media": _NOTHING,
            "tool_result_media": _NOTHING,
            "context_window": 131_072,
        },
    ),
)


def _rows(provider: str, prefix: str = "", quirk: str = "") -> list[ProfileRow]:
    """OpenAI's models at a provider that puts a prefix before their names and has a quirk of its own."""
    rows: list[ProfileRow] = []
    for patterns, fields in _MODELS:
        changed = {**fields, "quirks": fields["quirks"] | words(quirk)} if "quirks" in fields else fields
        rows.append(row(provider, " ".join([prefix + one for one in patterns.split()]), **changed))
    return rows


ROWS: Final[tuple[ProfileRow, ...]] = (
    row("openai-responses", counts_tokens=True),
    *_rows("openai-responses"),
    # A request may hold 128 tools, and the search is one.
    row("openai-responses", "gpt-5.4* gpt-5.5* gpt-5.6* gpt-6*", tool_search=127),
    row("openai-responses", "gpt-5.4-nano*", tool_search=0),
    *_rows("openrouter-responses", "openai/"),
    row("bedrock-mantle", quirks=words("reply_scoped_call_ids")),
    *_rows("bedrock-mantle", "openai.", "reply_scoped_call_ids"),
    row("bedrock-mantle", "openai.gpt-oss*", quirks=words("no_encrypted_reasoning")),
)
