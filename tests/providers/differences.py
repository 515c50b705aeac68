"""Where we read or replay a recorded exchange differently from its provider's SDK or from the client that recorded it.

One table for each comparison, {id of the exchange: the reason}; none without a reason, and a test fails when a listed
difference is no longer there. Replies are compared with what the official SDK reads from the same bytes; histories with
what the next recorded request of the same conversation carried.
"""

from __future__ import annotations

_BRANCH = "the next request goes on from an earlier reply, not from this one"
_NULLS = "the client filled absent members with null"
_THINK_TAGS = "that client wrote reasoning into the text; here it goes back in its own field, or not at all"

ANTHROPIC_HISTORY: dict[str, str] = {
    "test_anthropic_thinking_agui_0_1_10_drops_prefix-1": _BRANCH,
    "test_anthropic_thinking_roundtrip_wire_stable[ag_ui-0_1_13]-1": _BRANCH,
    "test_anthropic_thinking_roundtrip_wire_stable[vercel]-1": _BRANCH,
    "test_anthropic_mcp_servers-0": _NULLS,
    "test_anthropic_web_fetch_tool-0": _NULLS,
}
"""Replies that the recorded client did not send back unchanged: {exchange id: why}."""

GEMINI_HISTORY: dict[str, str] = {
    "test_google_model_file_search_grounding_gemini_3[False]-4": (
        "the client wrote the results, which came as grounding metadata, into the empty toolResponse"
    ),
    "test_google_model_file_search_grounding_gemini_3[True]-4": (
        "the client wrote the results, which came as grounding metadata, into the empty toolResponse"
    ),
    "test_google_model_structured_output-1": (
        "the client put the word for unsigned calls on a call to gemini-2.0, which does not ask for signatures"
    ),
}
"""Requests that did not carry the reply before them as it came, and why. None without a reason."""

CHAT_REPLIES: dict[str, str] = {
    "test_groq_model_web_search_tool_stream-0": "usage stands in x_groq, where the SDK does not look",
    "test_openai_moderation_stream-0": "the SDK lets a chunk that comes after the usage and has none erase it",
    "test_openrouter_web_search_annotations_stream-0": "the SDK cannot put annotations of two chunks together",
}
"""Exchanges that we read otherwise than the SDK, and why."""

CHAT_HISTORY: dict[str, str] = {
    "test_cerebras_zai_reasoning_replayed_as_think_tags-0": _THINK_TAGS,
    "test_tool_use_failed_error-1": _THINK_TAGS,
    "test_tool_use_failed_error_streaming-1": _THINK_TAGS,
    "test_groq_model_thinking_part-0": "that client split reasoning off a text that had it; here text stays as it is",
    "test_hf_model_thinking_part-0": "the same, and put it together again with another line break",
    "test_compatible_api_with_tool_calls_without_id-0": (
        "the call had no id, and each side makes up its own; we also send back the signature that came with it"
    ),
}
"""Replies that we send back otherwise than that client did, and why."""

RESPONSES_HISTORY: dict[str, str] = {
    "test_openai_responses_prompt_cache_e2e-0": "the same question again, not a second turn",
    "test_openrouter_responses_prompt_cache_e2e-0": "the same question again, not a second turn",
    "test_openai_include_raw_annotations_non_streaming-0": "another question, not a second turn",
    "test_openai_include_raw_annotations_streaming-0": "another question, not a second turn",
    "test_openai_include_raw_annotations_streaming-1": "another question, not a second turn",
    "test_openai_responses_compact_messages-2": "a compacted history: the items before are not sent",
    "test_openai_responses_compact_stateful_mode_stream-0": "the service holds the conversation",
    "test_openai_responses_compact_stateful_mode_stream-1": "the service holds the conversation",
    "test_openai_responses_compact_stateful_mode_stream-2": "the service holds the conversation",
    "test_openai_responses_compact_with_auto_previous_response_id_chain-2": "a compacted history",
    "test_openai_responses_compact_with_auto_previous_response_id_chain-4": "a compacted history",
    "test_openai_responses_compact_with_auto_previous_response_id_chain-6": "a compacted history",
    "test_openai_responses_model_file_search_tool-3": "that client does not send this item back",
    "test_openai_responses_phase_streamed_on_part_start-0": "the recorder replaced typographic quotes in the request",
    "test_openai_responses_stream-0": "an old recording: the item's id was sent as the call's",
    "test_openai_responses_thinking_with_modified_history-0": "a test of changing the history",
    "test_openai_native_tool_search_gpt_5_6-0": "the id that the service did not give is made up",
    "test_openai_native_tool_search_round_trip-0": "the id that the service did not give is made up",
    "test_openai_native_tool_search_streaming-0": "the id that the service did not give is made up",
}
"""Replies of which the next request does not carry everything: {exchange: why}."""
