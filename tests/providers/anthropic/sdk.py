"""The provider's own SDK as an oracle: what it reads from a reply, and which requests its types allow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anthropic.types.beta.message_create_params as beta_params
import anthropic.types.message_create_params as plain_params
from anthropic._models import construct_type
from anthropic._streaming import SSEDecoder
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent

from tests.providers.strict_types import problems

# --- replies ---------------------------------------------------------------------------------------------------------


def message_of(body: bytes, *, streamed: bool) -> dict[str, Any]:
    """The message that the SDK makes of these bytes, as plain data."""
    if not streamed:
        return construct_type(value=json.loads(body), type_=BetaMessage).to_dict(mode="json")
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in SSEDecoder().iter_bytes(iter([body])):
        if event.event in {None, "ping"}:
            continue
        value = construct_type(value=event.json(), type_=BetaRawMessageStreamEvent)
        snapshot = accumulate_event(event=value, current_snapshot=snapshot, json_bufs=buffers, request_headers={})
    return snapshot.to_dict(mode="json")


# --- requests --------------------------------------------------------------------------------------------------------

NOT_IN_THE_TYPES = {
    # The SDK speaks a later version of the API, in which no model takes them; see `_VERSION` in encode.py.
    "temperature": float,
    "top_p": float,
    "top_k": int,
}


def problems_of(body: Mapping[str, Any], *, beta: bool) -> list[str]:
    """What the SDK's parameter types do not allow, unknown keys included."""
    params = beta_params if beta else plain_params
    kind = params.MessageCreateParamsStreaming if body.get("stream") else params.MessageCreateParamsNonStreaming
    rest = dict(body)
    found: list[str] = []
    for name, expected in NOT_IN_THE_TYPES.items():
        if name in rest:
            found += problems(rest.pop(name), expected, name)
    return found + problems(rest, kind)
