"""What models can do over the Responses API, as rows.

The models of OpenAI, which other services have too, are those of openai_chat/profiles.py. Quirks:

    reasons_on_request       reasons only with an effort; takes sampling parameters without one
    reasons_unless_told      reasons unless the effort is `none`; takes sampling parameters only then
    no_reasoning_summary     has no summaries
    no_encrypted_reasoning   has plain reasoning, and refuses or ignores the request to encrypt it
    reply_scoped_call_ids    ids of calls are unique within one reply only
"""

from __future__ import annotations

from typing import Final

from dragoman.providers.openai_chat.profiles import openai_rows
from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, row, words

_NEVER: Final = words("seed stop top_k choices")
"""The API has no such parameters."""

BASE: Final = Profile(
    provider="openai-responses",
    dialect="openai_responses",
    media=words("image document"),
    media_urls=words("image document"),
    tool_result_media=words("image document"),
    tool_limits=ToolLimits(max_tools=128),
    strict_tools=True,
    tool_schema="openai_strict",
    structured="native",
    structured_schema="openai_strict",
    # An unknown model may reason or not: what is asked for is sent.
    reasoning="effort",
    efforts=words("none low medium high xhigh max"),
    unsupported=_NEVER,
)


ROWS: Final[tuple[ProfileRow, ...]] = (
    row("openai-responses", counts_tokens=True),
    *openai_rows("openai-responses", unsupported=_NEVER),
    # A request may hold 128 tools, and the search is one.
    row("openai-responses", "gpt-5.4* gpt-5.5* gpt-5.6* gpt-6*", tool_search=127),
    row("openai-responses", "gpt-5.4-nano*", tool_search=0),
    *openai_rows("openrouter-responses", "openai/", unsupported=_NEVER),
    row("bedrock-mantle", quirks=words("reply_scoped_call_ids")),
    *openai_rows("bedrock-mantle", "openai.", unsupported=_NEVER, quirks=words("reply_scoped_call_ids")),
    row("bedrock-mantle", "openai.gpt-oss*", quirks=words("no_encrypted_reasoning")),
)
