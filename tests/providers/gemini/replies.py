"""The recorded exchanges of this dialect: their calls, and what the official SDK reads from their bytes."""

from __future__ import annotations

import base64
import json
import re
import warnings
from typing import Any, NamedTuple

from google.genai import types

from dragoman.providers import Call
from tests.providers.gemini.case import a_call
from tests.providers.recorded import Exchange


def model_of(exchange: Exchange) -> str:
    found = re.search(r"models/([^:?]+):", exchange.url)
    assert found is not None
    return found[1]


def call_of(exchange: Exchange) -> Call:
    return a_call(model=model_of(exchange), stream=exchange.streamed)


class Oracle(NamedTuple):
    """What the SDK reads from a reply."""

    text: str
    thoughts: str
    calls: list[tuple[str | None, str | None, dict[str, Any]]]
    """Id, name and arguments."""
    signatures: list[bytes]
    finish: str | None
    block: str | None
    usage: types.GenerateContentResponseUsageMetadata | None
    model: str | None
    id: str | None


def oracle(exchange: Exchange) -> Oracle:
    """The SDK has no accumulation of its own for streams: its user sees the chunks, one after the other."""
    responses = [_response(data) for data in _chunks(exchange)]
    found = [part for response in responses for part in response.parts or []]
    candidates = [response.candidates[0] for response in responses if response.candidates]
    finishes = [candidate.finish_reason for candidate in candidates if candidate.finish_reason]
    feedback = [response.prompt_feedback for response in responses if response.prompt_feedback]
    usages = [response.usage_metadata for response in responses if response.usage_metadata]
    return Oracle(
        text="".join(part.text for part in found if part.text and not part.thought),
        thoughts="".join(part.text for part in found if part.text and part.thought),
        calls=[(call.id, call.name, call.args or {}) for part in found if (call := part.function_call)],
        signatures=[part.thought_signature for part in found if part.thought_signature],
        finish=finishes[-1].value if finishes else None,
        block=feedback[-1].block_reason.value if feedback and feedback[-1].block_reason else None,
        usage=usages[-1] if usages else None,
        model=responses[0].model_version,
        id=responses[0].response_id,
    )


def _chunks(exchange: Exchange) -> list[Any]:
    if not exchange.streamed:
        return [json.loads(exchange.body)]
    lines = exchange.body.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def _response(data: Any) -> types.GenerateContentResponse:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about words that are newer than the SDK
        return types.GenerateContentResponse._from_response(response=data, kwargs={})


# --- contents, freed from what two clients may write differently ------------------------------------------------------


def normal(value: Any) -> Any:
    """Contents in one spelling: the API takes names in both cases, base64 in both alphabets, and leaves empty
    arguments out or not. Ids that a client made up are left out."""
    if isinstance(value, list):
        return [normal(each) for each in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, inner in value.items():
        name = re.sub(r"_(\w)", lambda found: found[1].upper(), key)
        if name == "thoughtSignature":
            result[name] = base64.b64decode(inner.replace("-", "+").replace("_", "/"))
        elif name in {"args", "response"}:
            result[name] = inner
        else:
            result[name] = normal(inner)
    if result.get("args") == {}:
        del result["args"]
    if str(result.get("id", "")).startswith(("pyd_ai_", "call_gem_")):
        del result["id"]
    return result
