"""What models and servers can do over chat completions: rows of data.

The base profile is for unknown servers: it refuses nothing that many servers take. The models of OpenAI are also those
of the Responses API.

Quirks of this dialect:

    any_arguments             arguments of past calls may be any text; elsewhere they are made valid JSON
    bare_thinking_switch      thinking is on or off: {"thinking": {"type": …}}
    cache_marks               the prompt is cached up to a `cache_control`
    call_id_of_9, _of_40      the length of legal ids of calls
    content_always            a message of the model must have `content`, even an empty one
    document_url              documents are parts of type `document_url`
    effort_default            efforts are none and "default"
    ends_with_done            its streams always end with `[DONE]`, behind a count of tokens
    no_stream_options         usage is always sent; asking for it is an error
    plain_history             unknown members of replies are refused when they are sent back
    plain_input_audio         audio is base64 text, without a format
    reasoning_format          `reasoning_format` is where reasoning is put
    reasoning_object          {"reasoning": {"effort" or "max_tokens": …}}
    reasoning_with_calls      a message with calls must have reasoning, even an empty one
    reasons_on_request        temperature and top_p are refused together with a reasoning effort
    reasons_unless_told       … and also without one, unless it is none
    thinking_switch           thinking has a switch beside its effort
    tools_without_effort      tools are refused together with a reasoning effort
    tools_want_no_effort      … and also without one, unless it is none
    web_search_options        searches the web by a member of the request
    web_search_tool           searches the web by a tool of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, row, words

BASE: Final = Profile(
    provider="openai-compatible",
    dialect="openai_chat",
    reasoning="effort",  # without a list of efforts, any is sent
    # Many servers refuse a schema for the reply beside tools (Groq), or enforce it from the first word on, so that the
    # model never calls a tool (llama.cpp, Ollama, vLLM).
    native_beside_tools=False,
)


_NONE: Final = words()
_IMAGE: Final = words("image")
_LOW_TO_HIGH: Final = words("low medium high")
_LOW_TO_XHIGH: Final = _LOW_TO_HIGH | {"xhigh"}
_TO_XHIGH: Final = _LOW_TO_XHIGH | {"none"}
_NEW_MAX_TOKENS: Final = {"max_tokens": "max_completion_tokens"}
_STRICT: Final[dict[str, Any]] = {
    "strict_tools": True,
    "tool_schema": "openai_strict",
    "structured_schema": "openai_strict",
}

# --- OpenAI's models, over either API ---------------------------------------------------------------------------------

# https://developers.openai.com/api/docs/guides/reasoning: no sampling parameters; `stop` is refused since o3.
_FIXED: Final = words("temperature top_p logprobs")
_FIXED_AND_NO_STOP: Final = _FIXED | {"stop"}


def _plain(**more: Any) -> Mapping[str, Any]:
    return {"reasoning": "none", "efforts": _NONE, "unsupported": _NONE, "quirks": _NONE, **more}


def _always(efforts: frozenset[str], **more: Any) -> Mapping[str, Any]:
    """A model that always reasons."""
    fields = {"reasoning": "effort", "efforts": efforts, "unsupported": _FIXED_AND_NO_STOP, "quirks": _NONE}
    return {**fields, "system_role": "developer", **more}


def _sometimes(efforts: frozenset[str], when: str) -> Mapping[str, Any]:
    """A model that takes sampling parameters while it does not reason."""
    return {**_always(efforts), "unsupported": words("stop"), "quirks": words(when)}


_MODELS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("gpt-4* chatgpt-4o* ft:gpt-4*", _plain(context_window=128_000)),
    ("gpt-4.1* ft:gpt-4.1*", {"context_window": 1_047_576}),
    ("gpt-4 gpt-4-0613", {"context_window": 8_192}),
    ("gpt-4-32k*", {"context_window": 32_768}),
    ("gpt-3.5* ft:gpt-3.5*", _plain(context_window=16_385)),
    # Before structured replies of a given schema, which came with gpt-4o-2024-08-06.
    ("gpt-3.5* ft:gpt-3.5* gpt-4 gpt-4-* gpt-4o-2024-05-13", {"structured": "tool"}),
    ("gpt-3.5* ft:gpt-3.5* gpt-4 gpt-4-0* gpt-4-32k* o3-mini*", {"media": _NONE, "tool_result_media": _NONE}),
    # The o-series refuses to be asked for one call at a time.
    ("o1* o3* o4*", _always(_LOW_TO_HIGH, single_tool_calls=False, context_window=200_000)),
    ("o1* o3-mini*", {"unsupported": _FIXED}),
    ("o1*", {"quirks": words("no_reasoning_summary")}),
    ("*-deep-research*", {"efforts": words("medium")}),
    ("codex-mini*", _always(_LOW_TO_HIGH)),
    ("computer-use-preview*", _always(_LOW_TO_HIGH, structured="tool")),
    ("gpt-5* gpt-6*", _always(_LOW_TO_HIGH | {"minimal"}, context_window=400_000)),
    ("gpt-5-codex*", {"efforts": _LOW_TO_HIGH}),
    ("gpt-5-pro*", {"efforts": words("high")}),
    ("gpt-5-chat*", _plain()),
    # From 5.1 on a model may be told not to reason, which is the default up to 5.4.
    ("gpt-5.1*", _sometimes(_LOW_TO_HIGH | {"none"}, "reasons_on_request")),
    ("gpt-5.1-codex*", _always(_LOW_TO_HIGH)),
    ("gpt-5.1-codex-max*", {"efforts": _LOW_TO_XHIGH}),
    ("gpt-5.2* gpt-5.3* gpt-5.4*", _sometimes(_TO_XHIGH, "reasons_on_request")),
    ("gpt-5.2-codex*", _always(_LOW_TO_XHIGH)),
    ("gpt-5.4* gpt-5.5* gpt-5.6* gpt-6*", {"context_window": 1_050_000}),
    ("gpt-5.4-mini* gpt-5.4-nano*", {"context_window": 400_000}),
    ("gpt-5.5*", _sometimes(_TO_XHIGH, "reasons_unless_told")),
    ("gpt-5.6* gpt-6*", _sometimes(_TO_XHIGH | {"max"}, "reasons_unless_told")),
    ("gpt-5.[2-5]-pro*", _always(words("medium high xhigh"))),
    ("gpt-5.[123]-chat*", _always(words("medium"), context_window=128_000)),
    # The open models think aloud.
    ("gpt-oss*", _plain(reasoning="effort", efforts=_LOW_TO_HIGH, quirks=words("no_encrypted_reasoning"))),
    ("gpt-oss*", {"media": _NONE, "tool_result_media": _NONE, "context_window": 131_072}),
)
"""The general before the particular: later rows win."""


def openai_rows(provider: str, prefix: str = "", **added: frozenset[str]) -> list[ProfileRow]:
    """OpenAI's models at a provider that puts a prefix before their names; `added` to these fields of every row."""
    rows: list[ProfileRow] = []
    for patterns, fields in _MODELS:
        changed = {name: value | added.get(name, _NONE) for name, value in fields.items() if name in added}
        rows.append(row(provider, " ".join([prefix + one for one in patterns.split()]), **{**fields, **changed}))
    return rows


# --- OpenAI's own service ---------------------------------------------------------------------------------------------

_OPENAI_QUIRKS: Final = words("any_arguments call_id_of_40 plain_history")

_OPENAI: Final[tuple[ProfileRow, ...]] = (
    row(
        "openai",
        media=words("image document"),
        renamed={"max_tokens": "max_completion_tokens", "user": "safety_identifier"},
        tool_limits=ToolLimits(max_tools=128),
        reasoning="none",
        unsupported=words("top_k"),
        quirks=_OPENAI_QUIRKS,
        native_beside_tools=True,
        **_STRICT,
    ),
    *openai_rows("openai", unsupported=words("top_k"), quirks=_OPENAI_QUIRKS),
    row("openai", "gpt-3.5* gpt-4 gpt-4-* gpt-4o-2024-05-13", strict_tools=False),
    row("openai", "gpt-audio* gpt-4o*audio*", media=words("audio"), media_urls=_NONE, structured="tool"),
    row(
        "openai", "gpt-4o*search*", tools=False, unsupported=words("temperature top_p top_k seed stop logprobs choices")
    ),
    row("openai", "gpt-4o*search* gpt-5-search*", quirks=_OPENAI_QUIRKS | {"web_search_options"}),
    # From 5.2 on, a model with tools must be told not to reason over this API.
    row(
        "openai",
        "gpt-5.2* gpt-5.3* gpt-5.4*",
        quirks=_OPENAI_QUIRKS | {"reasons_on_request", "tools_without_effort"},
    ),
    row(
        "openai",
        "gpt-5.5* gpt-5.6* gpt-6*",
        quirks=_OPENAI_QUIRKS | {"reasons_unless_told", "tools_without_effort", "tools_want_no_effort"},
    ),
    # Cannot stop reasoning, and so takes no tools over this API.
    row("openai", "gpt-6-astra*", efforts=_LOW_TO_XHIGH, unsupported=_FIXED_AND_NO_STOP | {"top_k"}),
    row("openai", "gpt-6-astra*", quirks=_OPENAI_QUIRKS, tools=False, structured="native"),
    row("openai", "gpt-5*-chat*", reasoning="none", efforts=_NONE),
    row("openai", "gpt-5*-chat*", unsupported=words("top_k"), quirks=_OPENAI_QUIRKS),
)

# --- other servers ----------------------------------------------------------------------------------------------------

_OPENROUTER_QUIRKS: Final = words("reasoning_object web_search_tool")

_SERVERS: Final[tuple[ProfileRow, ...]] = (
    # --- Cerebras: strict about unknown members; reasoning goes back to gpt-oss only ---
    row("cerebras", media=_NONE, renamed=_NEW_MAX_TOKENS, unsupported=words("top_k"), **_STRICT),
    row("cerebras", reasoning="none", reasoning_replayed=False, quirks=words("plain_history")),
    row("cerebras", "gpt-oss*", reasoning="effort", efforts=_LOW_TO_HIGH, reasoning_replayed=True),
    row("cerebras", "zai-glm*", reasoning="effort", efforts=words("none")),
    # --- DeepSeek: thinks unless told otherwise; a turn that called tools must show its reasoning ---
    # https://api-docs.deepseek.com/guides/thinking_mode
    row(
        "deepseek",
        media=_NONE,
        unsupported=words("top_k user choices"),
        single_tool_calls=False,
        forced_while_reasoning=False,
        structured="prompt",
        efforts=_TO_XHIGH | {"max"},  # it reads "low" and "medium" as "high", and "xhigh" as "max"
        quirks=words("content_always reasoning_with_calls thinking_switch"),
    ),
    # The old names stand for one model with thinking on and off.
    row("deepseek", "deepseek-chat*", reasoning="none"),
    row("deepseek", "deepseek-chat*", forced_while_reasoning=True, structured="tool"),
    # --- Fireworks: strict about unknown members ---
    row("fireworks", quirks=words("plain_history")),
    # --- Groq: strict about unknown members; a schema for replies with few models only ---
    row(
        "groq",
        renamed=_NEW_MAX_TOKENS,
        unsupported=words("top_k logprobs choices"),
        tool_limits=ToolLimits(max_tools=128),
        structured="tool",
        reasoning="none",
        reasoning_replayed=False,
        quirks=words("plain_history"),
    ),
    row("groq", "llama-3* moonshotai/* openai/gpt-oss* qwen/qwen3-32b", media=_NONE),
    row("groq", "meta-llama/llama-4* moonshotai/*", structured="native"),
    row(
        "groq",
        "openai/gpt-oss*",
        structured="native",
        structured_schema="openai_strict",
        reasoning="effort",
        efforts=_LOW_TO_HIGH,
        reasoning_replayed=True,
        quirks=words("plain_history reasoning_format"),
    ),
    row("groq", "qwen/*", reasoning="effort", quirks=words("plain_history effort_default")),
    # It runs tools of its own, and none of the caller's.
    row("groq", "groq/compound* compound*", tools=False, structured="prompt", media=_NONE),
    # --- Hugging Face: a router before many servers, some of them strict ---
    row("huggingface", quirks=words("plain_history")),
    # --- programs on the user's machine ---
    row("llamacpp", media=words("image audio"), reasoning="none"),
    row("lmstudio", media_urls=_NONE, tool_choices=words("auto none required"), reasoning="none"),
    # Ollama fetches no URLs, and passes over `tool_choice`: https://docs.ollama.com/api/openai-compatibility
    row("ollama", media_urls=_NONE, unsupported=words("top_k user choices"), single_tool_calls=False),
    row("ollama", tool_choices=words("auto"), efforts=_LOW_TO_HIGH | {"none"}),
    row("vllm", media=words("image audio video"), media_urls=words("image audio video")),
    # --- Mistral: strict about unknown members and about ids ---
    row(
        "mistral",
        media=words("image document"),
        media_urls=words("image document"),
        renamed={"seed": "random_seed"},
        unsupported=words("top_k user logprobs"),
        reasoning="none",
        quirks=words("call_id_of_9 document_url no_stream_options plain_history plain_input_audio"),
    ),
    row("mistral", "voxtral*", media=words("audio"), media_urls=_NONE),
    row("mistral", "mistral-small* mistral-medium*", reasoning="effort", efforts=words("none high")),
    row("mistral", "mistral-small-2[0-5]* mistral-medium-2[0-5]*", reasoning="none"),
    # --- OpenRouter: a router before many models ---
    row("openrouter", media=words("image document audio video"), media_urls=words("image document video")),
    row("openrouter", strict_tools=True, efforts=_TO_XHIGH | {"minimal"}, quirks=_OPENROUTER_QUIRKS),
    row("openrouter", "openai/*", tool_schema="openai_strict", structured_schema="openai_strict"),
    # Others cache by themselves.
    row("openrouter", "anthropic/* google/* ~anthropic/* ~google/*", quirks=_OPENROUTER_QUIRKS | {"cache_marks"}),
    # --- xAI: few of its models take an effort; those that reason take no stop sequences ---
    row("xai", renamed=_NEW_MAX_TOKENS, unsupported=words("top_k"), reasoning="none"),
    row("xai", "grok-3-mini* grok-4* grok-code* grok-build*", unsupported=words("stop top_k")),
    row("xai", "*non-reasoning*", unsupported=words("top_k")),
    row("xai", "grok-3-mini*", reasoning="effort", efforts=words("low high")),
    row("xai", "grok-4.3*", reasoning="effort", efforts=_TO_XHIGH),
    row("xai", "grok-4.[4-9]*", reasoning="effort", efforts=_TO_XHIGH - {"none"}),
    # --- Z.ai: https://docs.z.ai/api-reference/llm/chat-completion ---
    row("zai", media=_NONE, renamed={"user": "user_id"}, unsupported=words("seed top_k logprobs choices")),
    row("zai", single_tool_calls=False, tool_choices=words("auto"), structured="prompt"),
    row("zai", quirks=words("thinking_switch")),
    row("zai", "glm-4*", quirks=words("bare_thinking_switch")),
    row("zai", "glm-*v*", media=_IMAGE | {"video"}, media_urls=_IMAGE | {"video"}),
)

ROWS: Final = _OPENAI + _SERVERS
