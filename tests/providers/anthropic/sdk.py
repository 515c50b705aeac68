"""The provider's own SDK as an oracle: what it reads from a reply, and which requests its types allow."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin

import anthropic.types.beta.message_create_params as beta_params
import anthropic.types.message_create_params as plain_params
from anthropic._models import construct_type
from anthropic._streaming import SSEDecoder
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from typing_extensions import get_type_hints, is_typeddict

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
            found += _problems(rest.pop(name), expected, f"/{name}")
    return found + _problems(rest, kind, "")


@cache
def _fields(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _bare(kind: Any) -> Any:
    while get_origin(kind) in {Required, NotRequired, typing.Annotated, typing.Required, typing.NotRequired}:
        kind = get_args(kind)[0]
    return kind


def _problems(value: Any, kind: Any, at: str) -> list[str]:
    """pydantic would leave iterables unread and TypedDicts open; this does neither."""
    kind = _bare(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        found = [_problems(value, one, at) for one in arguments]
        return min(found, key=len) if all(found) else []
    if origin is Literal:
        return [] if value in arguments else [f"{at}: {value!r} is none of {arguments}"]
    if is_typeddict(kind):
        return _problems_of_dict(value, kind, at)
    if kind is Any or kind is object:
        return []
    if kind is float:
        return [] if isinstance(value, int | float) and not isinstance(value, bool) else [f"{at}: not a number"]
    if origin in {dict, Mapping} or kind is dict:
        return [] if isinstance(value, dict) else [f"{at}: not an object"]
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if not isinstance(value, list):
            return [f"{at}: not an array"]
        return [problem for index, one in enumerate(value) for problem in _problems(one, arguments[0], f"{at}/{index}")]
    if getattr(kind, "__name__", "") == "SequenceNotStr" or origin is Sequence:
        return [] if isinstance(value, list) else [f"{at}: not an array"]
    if kind is types.NoneType or kind is None:
        return [] if value is None else [f"{at}: not null"]
    right = isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    return [] if right else [f"{at}: {value!r} is not {kind}"]


def _problems_of_dict(value: Any, kind: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at}: not an object"]
    fields = _fields(kind)
    found = [f"{at}/{name}: unknown to {kind.__name__}" for name in value if name not in fields]
    required = [name for name, field in fields.items() if get_origin(field) in {Required, typing.Required}]
    found += [f"{at}/{name}: missing in {kind.__name__}" for name in required if name not in value]
    for name in value.keys() & fields.keys():
        found += _problems(value[name], fields[name], f"{at}/{name}")
    return found
