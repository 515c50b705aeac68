"""A model call as a request of the Responses API.

Owns: the body's parameters and tools, and what an option becomes.
Must not know: how messages become items (history.py).

Requests are stateless unless the caller's `extra_body` says otherwise: nothing is stored, the whole conversation is
sent, and reasoning comes back encrypted so that it can be sent again.

What stands around the items depends on the terms of the call, and on whether there is a system prompt: it is written
once for all calls on the same terms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Message, OneTool, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import (
    GAP,
    Adaptation,
    Call,
    Encoded,
    WireRequest,
    around_gaps,
    per_terms,
    remembered,
)
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ModelOptions, ResponseFormat
from dragoman.providers.parameters import effective_options, refuse_or_adapt
from dragoman.providers.schema import NOT_STRICT, convert

from .history import HistoryWriter, Style
from .reasoning import reasoning_of, without_sampling
from .wire import READER, encode, value_of

__all__ = ["encode_call"]

_ENCRYPTED: Final = "reasoning.encrypted_content"


class _Terms(NamedTuple):
    """What the terms of a call decide."""

    before: bytes
    """The body up to the instructions."""
    between: bytes
    behind: bytes
    takes_system: bool
    takes_input: bool
    """Whether ours are put in: the caller may give their own."""
    history: HistoryWriter
    headers: dict[str, str]
    adaptations: tuple[Adaptation, ...]
    names: ToolNames
    systems: dict[str, bytes]
    """The last system prompt as JSON: from turn to turn it is the same."""


def encode_call(call: Call) -> Encoded:
    """The request for this call."""
    conversation, extra = call.conversation, call.options.extra_body
    system = conversation.system
    terms = _with_system(call) if system else _without_system(call)
    first = _first(conversation.messages, extra) if extra else 0
    pieces, losses = terms.history.write(conversation, first)
    body = (
        terms.before,
        _instructions(system, terms) if system and terms.takes_system else b"",
        terms.between,
        b",".join(pieces) if terms.takes_input else b"",
        terms.behind,
    )
    return Encoded(
        request=WireRequest(path="/responses", body=b"".join(body), headers=terms.headers),
        adaptations=terms.adaptations,
        losses=losses,
        tool_names=terms.names.to_own,
    )


@per_terms
def _with_system(call: Call) -> _Terms:
    return _terms(call, {"model": encode(call.model), "instructions": GAP, "input": GAP})


@per_terms
def _without_system(call: Call) -> _Terms:
    return _terms(call, {"model": encode(call.model), "input": GAP})


def _terms(call: Call, begin: dict[str, bytes]) -> _Terms:
    """The terms of a body that begins so."""
    adaptations: list[Adaptation] = []
    options = effective_options(call, adaptations)
    tools = _offered(call, adaptations)
    names = ToolNames([tool.name for tool in tools], call.profile.tool_limits)
    members: dict[str, object] = {}
    members.update(_tool_members(call, tools, options, names.to_wire, adaptations))
    members.update(_parameters(call, options, adaptations))
    extra = call.options.extra_body
    members.update(_state(call, extra))
    if call.stream:
        members["stream"] = True
    for name, value in extra.items():
        members[name] = _merged(name, members.get(name), value)
    body = {**begin, **{name: encode(value) for name, value in members.items()}}
    before, between, behind = around_gaps(body, ("instructions", "input"))
    takes_input = not body["input"]
    return _Terms(
        before=before,
        between=between + b"[" if takes_input else between,
        behind=b"]" + behind if takes_input else behind,
        takes_system=body.get("instructions") == GAP,
        takes_input=takes_input,
        history=HistoryWriter(Style(call.profile, stateless=members.get("store") is False, names=names.to_wire)),
        headers=dict(call.options.extra_headers),
        adaptations=tuple(adaptations),
        names=names,
        systems={},
    )


def _instructions(system: str, terms: _Terms) -> bytes:
    known = terms.systems.get(system)
    if known is None:
        known = encode(system)
        terms.systems.clear()
        terms.systems[system] = known
    return known


# --- the caller's own members ----------------------------------------------------------------------------------------


def _merged(name: str, ours: object, theirs: object) -> object:
    """Theirs wins. Objects are joined member by member, and what is to be included is added to what we include."""
    if isinstance(ours, dict) and isinstance(theirs, Mapping):
        return {**cast("dict[str, object]", ours), **cast("Mapping[str, object]", theirs)}
    if name == "include" and isinstance(ours, list) and isinstance(theirs, list | tuple):
        mine, added = cast("list[object]", ours), list(cast("list[object]", theirs))
        return [*mine, *[what for what in added if what not in mine]] if added else added
    return theirs


def _state(call: Call, extra: Mapping[str, object]) -> dict[str, object]:
    """Who remembers the conversation: only the caller, unless the caller asks for a feature that needs storage."""
    state: dict[str, object] = {}
    if not extra.get("background") and not extra.get("conversation"):
        state["store"] = False
    profile = call.profile
    if profile.reasoning != "none" and "no_encrypted_reasoning" not in profile.quirks and not extra.get("background"):
        state["include"] = [_ENCRYPTED]
    return state


def _first(messages: tuple[Message, ...], extra: Mapping[str, object]) -> int:
    """The first message that the service does not have yet, where the caller names what it has."""
    previous, conversation = extra.get("previous_response_id"), extra.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = cast("Mapping[str, object]", conversation).get("id")
    if not previous and not conversation:
        return 0
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "assistant" and (
            (previous and message.id == previous) or (conversation and _conversation_of(message) == conversation)
        ):
            return index + 1
    return 0


def _conversation_of(message: Message) -> object:
    native = message.native
    found = value_of(native.fields.get("conversation")) if native is not None and native.provider == READER else None
    return cast("dict[str, object]", found).get("id") if isinstance(found, dict) else None


# --- tools -----------------------------------------------------------------------------------------------------------


def _offered(call: Call, adaptations: list[Adaptation]) -> tuple[ToolSpec, ...]:
    if call.tools and not call.profile.tools:
        refuse_or_adapt(call, adaptations, "tools", "this model does not call tools", "Leave the tools out.")
        return ()
    return call.tools


def _tool_members(
    call: Call,
    tools: tuple[ToolSpec, ...],
    options: ModelOptions,
    names: Mapping[str, str],
    adaptations: list[Adaptation],
) -> dict[str, object]:
    written = [_tool(call, tool, names.get(tool.name, tool.name), adaptations) for tool in tools]
    written += options.server_tools
    if not written:
        return {}
    members: dict[str, object] = {"tools": written}
    choice = options.tool_choice
    if isinstance(choice, OneTool):
        if choice.name not in {tool.name for tool in tools}:
            message = f"tool_choice names the tool {choice.name!r}, which is not among the tools of this call."
            raise ConfigurationError(message, hint="Offer the tool, or choose one of those that are offered.")
        members["tool_choice"] = {"type": "function", "name": names.get(choice.name, choice.name)}
    elif choice != "auto":
        members["tool_choice"] = choice
    if options.parallel_tool_calls is not None and call.profile.parallel_tool_calls:
        members["parallel_tool_calls"] = options.parallel_tool_calls
    return members


def _tool(call: Call, tool: ToolSpec, name: str, adaptations: list[Adaptation]) -> Raw:
    # The API's own default for a missing `strict` is true, so it is always said.
    strict = tool.strict is True
    if strict and not call.profile.strict_tools:
        what, why = f"strict schema of tool {tool.name!r}", "this model does not hold itself to schemas"
        refuse_or_adapt(call, adaptations, what, why, "Leave strict out.")
        strict = False
    style = call.profile.tool_schema

    def make() -> tuple[Raw, tuple[str, ...]]:
        schema, notes = convert(tool.schema, style, strict=strict)
        described = {"description": tool.description} if tool.description else {}
        held = strict and not _too_free(notes)
        wire = {"type": "function", "name": name, **described, "parameters": schema, "strict": held}
        return Raw(encode(wire)), notes

    raw, notes = remembered(tool, f"{READER}:{style}:{strict}:{name}", make)
    adaptations += [Adaptation(f"schema of tool {tool.name!r}", note) for note in notes]
    if name != tool.name:
        adaptations.append(Adaptation(f"name of tool {tool.name!r}", f"sent as {name!r}"))
    return raw


def _too_free(notes: tuple[str, ...]) -> bool:
    """Whether a schema allows more than a strict one may; it is then sent as a plain one."""
    return any(note.startswith(NOT_STRICT) for note in notes)


# --- parameters ------------------------------------------------------------------------------------------------------


def _parameters(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object]:
    renamed = call.profile.renamed
    options = without_sampling(call, options, adaptations)
    members: dict[str, object] = {
        renamed.get("max_tokens", "max_output_tokens"): options.max_tokens,
        renamed.get("temperature", "temperature"): options.temperature,
        renamed.get("top_p", "top_p"): options.top_p,
        # `user` is the older name of this, kept by other servers.
        renamed.get("user", "safety_identifier"): options.user,
        "reasoning": reasoning_of(call, options.reasoning, adaptations),
        "text": _text(call, options.response_format, adaptations),
    }
    return {name: value for name, value in members.items() if value is not None}


def _text(call: Call, wanted: ResponseFormat | None, adaptations: list[Adaptation]) -> dict[str, object] | None:
    if wanted is None:
        return None
    parsed = cast("dict[str, object]", msgspec.json.decode(wanted.schema))
    schema, notes = convert(parsed, call.profile.structured_schema, strict=wanted.strict)
    adaptations += [Adaptation("schema of the reply", note) for note in notes]
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", wanted.name)[:64] or "answer"
    if name != wanted.name:
        adaptations.append(Adaptation(f"name {wanted.name!r} of the reply's schema", f"sent as {name!r}"))
    described = {"description": wanted.description} if wanted.description else {}
    strict = wanted.strict and not _too_free(notes)
    shape = {"type": "json_schema", "name": name, **described, "schema": schema, "strict": strict}
    return {"format": shape}
