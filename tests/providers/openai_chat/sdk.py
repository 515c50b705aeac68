"""The official SDK as an oracle: what it reads from the same bytes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from openai._streaming import SSEDecoder
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk


class Read(NamedTuple):
    """What a caller of the SDK sees."""

    text: str
    refusal: str
    calls: list[tuple[str, Any]]
    finish_reason: str
    input: int | None
    output: int | None
    total: int | None
    cached: int | None
    reasoning: int | None


def read_whole(body: str) -> Read:
    return _read(ChatCompletion.construct(**json.loads(body)))


def read_stream(body: str) -> Read:
    """The SDK's own events, gathered by the SDK's own accumulator."""
    state: Any = ChatCompletionStreamState()
    for event in SSEDecoder().iter_bytes(iter([body.encode()])):
        if event.data.startswith("[DONE]"):
            break
        state.handle_chunk(ChatCompletionChunk.construct(**event.json()))
    return _read(state.current_completion_snapshot)


def _read(completion: Any) -> Read:
    choice = completion.choices[0]
    message, usage = choice.message, completion.usage
    content = message.content
    if isinstance(content, list):  # Mistral; the SDK's type says text
        content = "".join(part["text"] for part in content if part["type"] == "text")
    details = getattr(usage, "prompt_tokens_details", None)
    written = getattr(usage, "completion_tokens_details", None)
    # Mistral's and Together's names, which the SDK passes on as it finds them.
    others = [getattr(usage, name, None) for name in ("num_cached_tokens", "cached_tokens")]
    return Read(
        text=content or "",
        refusal=message.refusal or "",
        calls=[(call.function.name, json.loads(call.function.arguments or "{}")) for call in message.tool_calls or []],
        finish_reason=choice.finish_reason or "",
        input=getattr(usage, "prompt_tokens", None),
        output=getattr(usage, "completion_tokens", None),
        total=getattr(usage, "total_tokens", None),
        cached=next((count for count in (getattr(details, "cached_tokens", None), *others) if count is not None), None),
        reasoning=getattr(written, "reasoning_tokens", None),
    )
