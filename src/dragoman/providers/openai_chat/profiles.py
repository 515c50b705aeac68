"""What OpenAI's models can do over chat completions, and the ground that all servers of the dialect stand on.

Owns: the base profile and the rows of OpenAI's models; servers.py has the rows of the other servers.
Must not know: how anything is encoded.

The base describes a server of which only the address is known: nothing is refused that many servers take.

Quirks that the codec of this dialect understands:

    any_arguments             arguments of past calls may be any text; elsewhere they are made valid JSON
    assistant_after_tool      a user's message may not follow results; a word of the model is put between
    bare_thinking_switch      thinking is on or off: {"thinking": {"type": …}}
    cache_marks               the prompt is cached where a `cache_control` says so
    call_id_of_9, _of_40      what ids of calls may look like
    content_always            a message of the model must have `content`, even an empty one
    document_url              documents are parts of type `document_url`
    done_is_enough            `[DONE]` without any finish reason ends a reply properly
    effort_default            efforts are none and "default"
    no_stream_options         usage comes unasked; asking for it is an error
    plain_history             members of replies that we do not know are refused when they are sent back
    plain_input_audio         audio is base64 text, without a format
    reasoning_format          `reasoning_format` says where reasoning is put
    reasoning_object          reasoning is asked for by an object: {"reasoning": {"effort" or "max_tokens": …}}
    reasoning_with_calls      a message that called tools must show reasoning, even an empty one
    sampling_without_effort   temperature and top_p are refused together with a reasoning effort
    sampling_wants_no_effort  … and also without one, unless it is none
    think_tags                reasoning stands at the start of the text, between <think> and </think>
    thinking_switch           thinking has a switch beside its effort
    tools_without_effort      tools are refused together with a reasoning effort
    tools_want_no_effort      … and also without one, unless it is none
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.providers.profile import Profile, ProfileRow, ToolLimits

from .servers import SERVERS

__all__ = ["BASE", "ROWS"]

BASE: Final = Profile(
    provider="openai-compatible",
    dialect="openai_chat",
    reasoning="effort",  # without a list of efforts: whatever is asked for is sent
)

_QUIRKS: Final = frozenset(["any_arguments", "call_id_of_40", "plain_history"])
_LOW_TO_HIGH: Final = frozenset(["low", "medium", "high"])
_FROM_NONE: Final = _LOW_TO_HIGH | {"none"}
_TO_XHIGH: Final = _FROM_NONE | {"xhigh"}
# https://developers.openai.com/api/docs/guides/reasoning: no sampling parameters; `stop` is refused since o3.
_FIXED: Final = frozenset(["temperature", "top_p", "top_k"])
_FIXED_AND_NO_STOP: Final = _FIXED | {"stop"}


def _row(*models: str, **fields: Any) -> ProfileRow:
    return ProfileRow(provider="openai", models=models, fields=fields)


ROWS: Final[tuple[ProfileRow, ...]] = (
    *SERVERS,
    _row(
        "*",
        media=frozenset(["image", "document"]),
        renamed={"max_tokens": "max_completion_tokens", "user": "safety_identifier"},
        tool_limits=ToolLimits(max_tools=128, max_description_length=1024),
        strict_tools=True,
        tool_schema="openai_strict",
        structured_schema="openai_strict",
        reasoning="none",
        unsupported=frozenset(["top_k"]),
        quirks=_QUIRKS,
    ),
    # Before structured replies of a given schema, which came with gpt-4o-2024-08-06.
    _row("gpt-3.5*", "gpt-4", "gpt-4-*", "gpt-4o-2024-05-13", structured="tool", strict_tools=False),
    _row("gpt-3.5*", "gpt-4", "gpt-4-0*", "gpt-4-32k*", media=frozenset()),
    _row("gpt-4o*", "chatgpt-4o*", "gpt-4.5*", context_window=128_000),
    _row("gpt-4.1*", context_window=1_047_576),
    _row("gpt-audio*", "gpt-4o*audio*", media=frozenset(["audio"]), media_urls=frozenset(), structured="tool"),
    _row("gpt-4o*search*", tools=False, unsupported=frozenset(["temperature", "top_p", "top_k", "seed", "stop"])),
    # --- models that reason ---
    _row(
        "o1*",
        "o3*",
        "o4*",
        system_role="developer",
        reasoning="effort",
        efforts=_LOW_TO_HIGH,
        unsupported=_FIXED,
        parallel_tool_calls=False,
        context_window=200_000,
    ),
    _row("o3", "o3-2*", "o4*", unsupported=_FIXED_AND_NO_STOP),
    _row("o3-mini*", media=frozenset()),
    # The first two took neither tools nor instructions.
    _row(
        "o1-mini*",
        "o1-preview*",
        system_role="user",
        media=frozenset(),
        tools=False,
        structured="prompt",
        reasoning="none",
        context_window=128_000,
    ),
    _row(
        "gpt-5*",
        "gpt-6*",
        system_role="developer",
        reasoning="effort",
        efforts=_LOW_TO_HIGH | {"minimal"},
        unsupported=_FIXED_AND_NO_STOP,
        context_window=400_000,
    ),
    # From 5.1 on a model may be told not to reason, which is the default up to 5.4; then it takes sampling parameters.
    _row("gpt-5.1*", efforts=_FROM_NONE, unsupported=frozenset(["top_k", "stop"])),
    _row("gpt-5.1*", quirks=_QUIRKS | {"sampling_without_effort"}),
    # From 5.2 on, with tools, it must be told not to over this API.
    _row(
        "gpt-5.2*",
        "gpt-5.3*",
        "gpt-5.4*",
        efforts=_TO_XHIGH,
        unsupported=frozenset(["top_k", "stop"]),
        quirks=_QUIRKS | {"sampling_without_effort", "tools_without_effort"},
    ),
    # From 5.5 on reasoning is on unless the request says otherwise.
    _row(
        "gpt-5.5*",
        "gpt-5.6*",
        "gpt-6*",
        efforts=_TO_XHIGH,
        unsupported=frozenset(["top_k", "stop"]),
        quirks=_QUIRKS | {"sampling_wants_no_effort", "tools_without_effort", "tools_want_no_effort"},
        context_window=1_050_000,
    ),
    _row("gpt-5.6*", "gpt-6*", efforts=_TO_XHIGH | {"max"}),
    # Cannot stop reasoning, and so takes no tools over this API.
    _row(
        "gpt-6-astra*",
        efforts=_LOW_TO_HIGH | {"xhigh"},
        unsupported=_FIXED_AND_NO_STOP,
        quirks=_QUIRKS,
        tools=False,
        structured="native",
    ),
    _row("gpt-5*-chat*", reasoning="none", efforts=frozenset(), unsupported=frozenset(["top_k"]), quirks=_QUIRKS),
)
