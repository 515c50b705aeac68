"""What models and servers can do over chat completions: rows of data.

The base describes a server of which only the address is known: nothing is refused that many servers take. OpenAI's own
models come first, then the other servers.

Quirks that the codec of this dialect understands:

    any_arguments             arguments of past calls may be any text; elsewhere they are made valid JSON
    assistant_after_tool      a user's message may not follow results; a word of the model is put between
    bare_thinking_switch      thinking is on or off: {"thinking": {"type": …}}
    cache_marks               the prompt is cached where a `cache_control` says so
    call_id_of_9, _of_40      what ids of calls may look like
    content_always            a message of the model must have `content`, even an empty one
    document_url              documents are parts of type `document_url`
    effort_default            efforts are none and "default"
    no_stream_options         usage comes unasked; asking for it is an error
    plain_history             members of replies that we do not know are refused when they are sent back
    plain_input_audio         audio is base64 text, without a format
    reasoning_format          `reasoning_format` says where reasoning is put
    reasoning_object          reasoning is asked for by an object: {"reasoning": {"effort" or "max_tokens": …}}
    reasoning_with_calls      a message that called tools must show reasoning, even an empty one
    reasons_on_request        temperature and top_p are refused together with a reasoning effort
    reasons_unless_told       … and also without one, unless it is none
    thinking_switch           thinking has a switch beside its effort
    tools_without_effort      tools are refused together with a reasoning effort
    tools_want_no_effort      … and also without one, unless it is none
    web_search_options        searches the web, as a member of the request says
    web_search_tool           has a tool of its own that searches the web
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, row, words

BASE: Final = Profile(
    provider="openai-compatible",
    dialect="openai_chat",
    reasoning="effort",  # without a list of efforts: whatever is asked for is sent
    # Many servers refuse a schema for the reply beside tools (Groq), or hold the model to it from its first word on, so
    # that it never calls one (llama.cpp, Ollama, vLLM).
    native_beside_tools=False,
)


_NONE: Final = words()
_IMAGE: Final = words("image")
_LOW_TO_HIGH: Final = words("low medium high")
_TO_XHIGH: Final = words("none low medium high xhigh")
_NEW_MAX_TOKENS: Final = {"max_tokens": "max_completion_tokens"}
_STRICT: Final[dict[str, Any]] = {
    "strict_tools": True,
    "tool_schema": "openai_strict",
    "structured_schema": "openai_strict",
}
# https://developers.openai.com/api/docs/guides/reasoning: no sampling parameters; `stop` is refused since o3.
_FIXED: Final = words("temperature top_p top_k logprobs")
_FIXED_AND_NO_STOP: Final = _FIXED | {"stop"}
_OPENAI_QUIRKS: Final = words("any_arguments call_id_of_40 plain_history")
_OPENROUTER_QUIRKS: Final = words("reasoning_object web_search_tool")

_OPENAI: Final[tuple[ProfileRow, ...]] = (
    row(
        "openai",
        media=words("image document"),
        renamed={"max_tokens": "max_completion_tokens", "user": "safety_identifier"},
        tool_limits=ToolLimits(max_tools=128, max_description_length=1024),
        reasoning="none",
        unsupported=words("top_k"),
        quirks=_OPENAI_QUIRKS,
        native_beside_tools=True,
        **_STRICT,
    ),
    # Before structured replies of a given schema, which came with gpt-4o-2024-08-06.
    row("openai", "gpt-3.5* gpt-4 gpt-4-* gpt-4o-2024-05-13", structured="tool", strict_tools=False),
    row("openai", "gpt-3.5* gpt-4 gpt-4-0* gpt-4-32k*", media=_NONE),
    row("openai", "gpt-4o* chatgpt-4o* gpt-4.5*", context_window=128_000),
    row("openai", "gpt-4.1*", context_window=1_047_576),
    row("openai", "gpt-audio* gpt-4o*audio*", media=words("audio"), media_urls=_NONE, structured="tool"),
    row(
        "openai", "gpt-4o*search*", tools=False, unsupported=words("temperature top_p top_k seed stop logprobs choices")
    ),
    row("openai", "gpt-4o*search* gpt-5-search*", quirks=_OPENAI_QUIRKS | {"web_search_options"}),
    # --- models that reason ---
    row(
        "openai",
        "o1* o3* o4*",
        system_role="developer",
        reasoning="effort",
        efforts=_LOW_TO_HIGH,
        unsupported=_FIXED,
        single_tool_calls=False,
        context_window=200_000,
    ),
    row("openai", "o3 o3-2* o4*", unsupported=_FIXED_AND_NO_STOP),
    row("openai", "o3-mini*", media=_NONE),
    row(
        "openai",
        "gpt-5* gpt-6*",
        system_role="developer",
        reasoning="effort",
        efforts=_LOW_TO_HIGH | {"minimal"},
        unsupported=_FIXED_AND_NO_STOP,
        context_window=400_000,
    ),
    # From 5.1 on a model may be told not to reason, which is the default up to 5.4; then it takes sampling parameters.
    row("openai", "gpt-5.1*", efforts=_LOW_TO_HIGH | {"none"}, unsupported=words("top_k stop")),
    row("openai", "gpt-5.1*", quirks=_OPENAI_QUIRKS | {"reasons_on_request"}),
    # From 5.2 on, with tools, it must be told not to over this API.
    row(
        "openai",
        "gpt-5.2* gpt-5.3* gpt-5.4*",
        efforts=_TO_XHIGH,
        unsupported=words("top_k stop"),
        quirks=_OPENAI_QUIRKS | {"reasons_on_request", "tools_without_effort"},
    ),
    # From 5.5 on reasoning is on unless the request says otherwise.
    row(
        "openai",
        "gpt-5.5* gpt-5.6* gpt-6*",
        efforts=_TO_XHIGH,
        unsupported=words("top_k stop"),
        quirks=_OPENAI_QUIRKS | {"reasons_unless_told", "tools_without_effort", "tools_want_no_effort"},
        context_window=1_050_000,
    ),
    row("openai", "gpt-5.6* gpt-6*", efforts=_TO_XHIGH | {"max"}),
    # Cannot stop reasoning, and so takes no tools over this API.
    row("openai", "gpt-6-astra*", efforts=_TO_XHIGH - {"none"}, unsupported=_FIXED_AND_NO_STOP),
    row("openai", "gpt-6-astra*", quirks=_OPENAI_QUIRKS, tools=False, structured="native"),
    row("openai", "gpt-5*-chat*", reasoning="none", efforts=_NONE),
    row("openai", "gpt-5*-chat*", unsupported=words("top_k"), quirks=_OPENAI_QUIRKS),
)

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
        tool_choices=words("auto none"),
        structured="prompt",
        efforts=_TO_XHIGH | {"max"},  # it reads "low" and "medium" as "high", and "xhigh" as "max"
        quirks=words("content_always reasoning_with_calls thinking_switch"),
    ),
    # The old names stand for one model with thinking on and off.
    row("deepseek", "deepseek-chat*", reasoning="none"),
    row("deepseek", "deepseek-chat*", tool_choices=words("auto none required tool"), structured="tool"),
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
    # --- Mistral: strict about unknown members, about ids, and about who speaks after whom ---
    row(
        "mistral",
        media=words("image document"),
        media_urls=words("image document"),
        renamed={"seed": "random_seed"},
        unsupported=words("top_k user logprobs"),
        reasoning="none",
        quirks=words(
            "assistant_after_tool call_id_of_9 document_url no_stream_options plain_history plain_input_audio"
        ),
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
