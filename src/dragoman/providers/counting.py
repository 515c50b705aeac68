"""Count the tokens that a model would read: by the provider's endpoint, or estimated by length.

The endpoint gets the request itself, cut to the members that it takes, and its answer is read as a reply with usage and
no content. So counting is a call like any other, with the engine's key, retries, deadlines and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Block,
    Completed,
    Conversation,
    Json,
    Media,
    Message,
    Opaque,
    ReplyEvent,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    UsageReported,
)
from dragoman.errors import ConfigurationError, ProviderError

from .codec import Call, Codec, Encoded
from .wire import DecoderBase, document, join_members, read_members, read_number


class TokenCount(Struct, frozen=True, kw_only=True):
    """How many tokens a model would read, and who counted."""

    tokens: int
    source: Literal["provider", "estimate"]
    """The provider's own count (a reply may report a few more, which it adds itself), or our estimate by length."""

    def __str__(self) -> str:
        return f"{'' if self.source == 'provider' else 'about '}{self.tokens:,} tokens"


# --- estimates --------------------------------------------------------------------------------------------------------

CHARACTERS_PER_TOKEN: Final = 4
_TOKENS_PER_MEDIA: Final = 1500
_TOKENS_PER_MESSAGE: Final = 4


def estimated_tokens(conversation: Conversation, tools: Sequence[ToolSpec] = ()) -> int:
    """About how many tokens the model would read: its last reported usage, plus a token for four later characters."""
    tokens = 0
    for message in reversed(conversation.messages):
        if message.role == "assistant" and message.usage is not None and message.usage.tokens is not None:
            return tokens + message.usage.tokens  # which includes system prompt and tools
        tokens += _TOKENS_PER_MESSAGE + length_of_message(message) // CHARACTERS_PER_TOKEN
    return tokens + (len(conversation.system or "") + sum(map(length_of_tool, tools))) // CHARACTERS_PER_TOKEN


def length_of_message(message: Message) -> int:
    """The characters that a model reads of a message; media count for what they usually cost."""
    return sum(map(length_of_block, message.blocks))


def length_of_tool(spec: ToolSpec) -> int:
    """The characters that a model reads of a tool."""
    return 0 if spec.deferred else len(spec.name) + len(spec.description) + len(bytes(spec.parameters))


def length_of_block(block: Block | Json) -> int:
    """The characters that a model reads of a block."""
    match block:
        case Text() | Thinking():
            return len(block.text)
        case ToolCall():
            return len(block.name) + len(block.arguments)
        case ToolResult():
            return sum(map(length_of_block, block.content))
        case Media():
            return _TOKENS_PER_MEDIA * CHARACTERS_PER_TOKEN
        case Json() | Opaque():
            return len(bytes(block.raw))


# --- the providers' endpoints -----------------------------------------------------------------------------------------

_CLAUDE_TAKES: Final = """anthropic_version model messages system tools tool_choice thinking output_config
    cache_control speed context_management mcp_servers"""
_RESPONSES_TAKES: Final = "model input instructions tools tool_choice parallel_tool_calls reasoning text truncation"
_GEMINI_TAKES: Final = "contents systemInstruction tools toolConfig generationConfig cachedContent"
_VERTEX_TAKES: Final = "contents systemInstruction tools generationConfig"
_BEDROCK_TAKES: Final = "messages system toolConfig additionalModelRequestFields"
_COUNTED: Final = ("input_tokens", "totalTokens", "inputTokens")
"""The member of the answer that has the number."""


def counting_codec(codec: Codec) -> Codec:
    """A codec that asks for the number of tokens of a call, and reads the answer as a reply's usage."""
    return Codec(name=codec.name, encode=partial(_ask, codec), decoder=CountDecoder)


def _ask(codec: Codec, call: Call) -> Encoded:
    encoded = codec.encode(call)
    request = encoded.request
    members = read_members(request.body)
    rewrite = _ENDPOINTS.get(call.profile.dialect)
    if rewrite is None:
        message = f"There is no endpoint for counting tokens in the dialect {call.profile.dialect!r}."
        raise ConfigurationError(message, hint="Leave counts_tokens out of the profile, then they are estimated.")
    path, body = rewrite(request.path, members)
    return msgspec.structs.replace(
        encoded, request=msgspec.structs.replace(request, path=path, body=join_members(body))
    )


def _only(taken: str, members: dict[str, Raw]) -> dict[str, Raw]:
    """The members that an endpoint knows; it refuses others."""
    return {name: members[name] for name in taken.split() if name in members}


def _ask_claude(path: str, members: dict[str, Raw]) -> tuple[str, dict[str, Raw]]:
    taken = _only(_CLAUDE_TAKES, members)
    if "/publishers/" not in path:
        return f"{path}/count_tokens", taken
    # On Vertex AI a model of this name counts for the others, and the body names the model.
    place, _, model = path.removesuffix(":rawPredict").rpartition("/")
    return f"{place}/count-tokens:rawPredict", {"model": Raw(msgspec.json.encode(model)), **taken}


def _ask_bedrock(path: str, members: dict[str, Raw]) -> tuple[str, dict[str, Raw]]:
    """The endpoint takes the model itself, not an inference profile (`us.anthropic.…`)."""
    place, maker, model = path.removesuffix("/converse").rpartition("anthropic.")
    converse = Raw(join_members({"converse": Raw(join_members(_only(_BEDROCK_TAKES, members)))}))
    return f"{'/model/' if maker else place}{maker}{model}/count-tokens", {"input": converse}


def cannot_count(error: ProviderError) -> bool:
    """Whether the error says that tokens cannot be counted for this model, as for some on Bedrock."""
    return error.status == 400 and "support counting tokens" in error.message


def _ask_responses(path: str, members: dict[str, Raw]) -> tuple[str, dict[str, Raw]]:
    return f"{path}/input_tokens", _only(_RESPONSES_TAKES, members)


def _ask_gemini(path: str, members: dict[str, Raw]) -> tuple[str, dict[str, Raw]]:
    """Vertex AI takes the members themselves; the Gemini API counts only contents unless it gets the whole request."""
    place = path.removesuffix(":generateContent")
    _, version, model = place.split("/", 2)
    if version in ("v1beta1", "publishers"):
        return f"{place}:countTokens", _only(_VERTEX_TAKES, members)
    whole = {"model": msgspec.json.encode(model), **_only(_GEMINI_TAKES, members)}
    return f"{place}:countTokens", {"generateContentRequest": Raw(join_members(whole))}


_ENDPOINTS: Final[dict[str, Callable[[str, dict[str, Raw]], tuple[str, dict[str, Raw]]]]] = {
    "anthropic": _ask_claude,
    "openai_responses": _ask_responses,
    "gemini": _ask_gemini,
    "bedrock": _ask_bedrock,
}


class CountDecoder(DecoderBase):
    """Reads the answer of a counting endpoint."""

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        members = document(body)
        counted = next((read_number(members[name]) for name in _COUNTED if name in members), None)
        if counted is None or counted < 0:
            raise self.broken("it does not say how many tokens there are")
        events += (UsageReported(Usage(input=counted)), Completed(StopReason.END))
        self.ended = True

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        raise self.broken("it is a stream of events, not a number")
