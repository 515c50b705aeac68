"""From a call to a request.

Owns: the members of the body and their order, the conversation's turns, cache marks, headers.
Must not know: how blocks are written (history.py), and the rules of thinking (thinking.py).

The body is joined from bytes: the messages' wire forms are kept beside the messages, so a turn on a long history costs
its new messages and a join. What stands around the messages depends on the terms of the call and on little else, and is
written once for all calls on the same terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from dragoman.conversation import Message, OneTool
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import GAP, Adaptation, Call, Encoded, Loss, WireRequest, around_gaps, per_terms
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ModelOptions
from dragoman.providers.parameters import effective_options, refuse_or_adapt

from .betas import beta_header
from .history import MODEL_SPEAKS, Rules, Sent, Turn, joined, sent, wire_turn, wire_turns
from .thinking import BINDING_BETA, Thinking, asked_thinking, checked_sampling
from .tools import format_schema, wire_tools
from .wire import READER, members, text, written

__all__ = ["encoded_call"]

_PATH: Final = "/v1/messages"
_VERSION: Final = "2023-06-01"
"""The next version of the API takes no sampling parameters from any model, and gives nothing that this one does not."""

_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
_MOST_MARKS: Final = 4
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


class _Terms(NamedTuple):
    """What the terms of a call decide."""

    options: ModelOptions
    adaptations: tuple[Adaptation, ...]
    """Those that the options needed."""
    names: ToolNames
    rules: Rules
    frames: dict[tuple[bool, bool], _Frame]
    """By whether there is a system prompt, and whether thinking is sent along."""
    systems: dict[str, bytes]
    """The last system prompt and its wire form: from turn to turn it is the same."""


class _Frame(NamedTuple):
    """A request but for its system prompt and its messages."""

    before: bytes
    """The body up to the system prompt."""
    between: bytes
    behind: bytes
    takes_system: bool
    takes_messages: bool
    """Whether ours are put in: there may be none, and the caller may give their own."""
    marks: int
    """How many of the user's turns are marked for the cache."""
    headers: dict[str, str]
    adaptations: tuple[Adaptation, ...]


def encoded_call(call: Call) -> Encoded:
    """The request for this call, and what had to be changed or left out to make it."""
    terms = _terms(call)
    conversation, rules = call.conversation, terms.rules
    history = sent(conversation, rules)
    unusual = history.unusual
    if unusual and any(turn.server_calls for _, turn in unusual):
        history = joined(Sent(), _turns(conversation.messages, rules))
        unusual = history.unusual
    if not history.pieces:
        message = "There is nothing to send: the conversation holds no message that this provider can take."
        raise ConfigurationError(message, hint="Add a message of the user.")
    system = conversation.system
    if system is not None and (not system or system.isspace()):  # the API refuses an empty one
        system = None
    frame = _frame(call, terms, system=system is not None, thinks=bool(unusual) and any(t.thinks for _, t in unusual))
    if frame.marks:
        turns = _turns(conversation.messages, rules)
        history = joined(Sent(), turns, dict.fromkeys(_last_user_turns(turns, frame.marks), _MARK))
    body = (
        frame.before,
        _system(system, terms) if frame.takes_system and system is not None else b"",
        frame.between,
        *(history.pieces if frame.takes_messages else ()),
        frame.behind,
    )
    return Encoded(
        request=WireRequest(path=_PATH, body=b"".join(body), headers=frame.headers),
        adaptations=frame.adaptations,
        losses=tuple([Loss(at, *loss) for at, turn in unusual for loss in turn.losses]) if unusual else (),
        tool_names=terms.names.to_own,
    )


@per_terms
def _terms(call: Call) -> _Terms:
    adaptations: list[Adaptation] = []
    options = effective_options(call, adaptations)
    names = ToolNames([spec.name for spec in call.tools], call.profile.tool_limits)
    return _Terms(options, tuple(adaptations), names, _rules(call, names), {}, {})


def _frame(call: Call, terms: _Terms, *, system: bool, thinks: bool) -> _Frame:
    container = _container(call, terms.options)
    if container is not None:  # another one in every conversation
        return _new_frame(call, terms, container, system=system, thinks=thinks)
    frame = terms.frames.get((system, thinks))
    if frame is None:
        frame = terms.frames[system, thinks] = _new_frame(call, terms, None, system=system, thinks=thinks)
    return frame


def _new_frame(call: Call, terms: _Terms, container: str | None, *, system: bool, thinks: bool) -> _Frame:
    options, names, adaptations = terms.options, terms.names, list(terms.adaptations)
    thinking = asked_thinking(call, options, adaptations, replayed=thinks)
    tools, marks = wire_tools(call, names, adaptations), _Marks(options)
    on_turns = marks.take()
    on_system, on_tools = marks.take(system), marks.take(bool(tools))
    body: dict[str, bytes] = {"model": written(call.model), "max_tokens": written(thinking.max_tokens)}
    if system:
        body["system"] = GAP
    if tools and on_tools:
        tools[-1] = tools[-1][:-1] + _MARK
    tools += [bytes(raw) for raw in options.server_tools]
    if tools:
        body["tools"] = b"[" + b",".join(tools) + b"]"
    for name, value in _parameters(call, options, thinking, names, adaptations, container=container).items():
        body[name] = written(value)
    body["messages"] = GAP
    body |= {name: written(value) for name, value in options.extra_body.items()}
    before, between, behind = around_gaps(body, ("system", "messages"))
    takes_system, takes_messages = system and not body["system"], not body["messages"]
    if takes_system:
        before, between = before + b"[", (_MARK if on_system else b"}") + b"]" + between
    return _Frame(
        before=before,
        between=between,
        behind=b"]}]" + behind if takes_messages else behind,
        takes_system=takes_system,
        takes_messages=takes_messages,
        marks=on_turns + marks.take() if on_turns else 0,
        headers=_headers(options, thinking),
        adaptations=tuple(adaptations),
    )


# --- the conversation ---


def _rules(call: Call, names: ToolNames) -> Rules:
    profile = call.profile
    kinds = (profile.media, profile.media_urls, profile.tool_result_media)
    depends_on = (
        profile.provider,
        *[",".join(sorted(kind)) for kind in kinds],
        profile.reasoning_replayed,
        profile.tool_limits.name_pattern,
        profile.tool_limits.max_name_length,
        sorted(names.to_own.items()),
    )
    return Rules(
        key=f"{READER} {depends_on}",
        media=profile.media,
        media_urls=profile.media_urls,
        result_media=profile.tool_result_media,
        thinking=profile.reasoning_replayed,
        name_of=names.wire,
    )


def _turns(messages: Sequence[Message], rules: Rules) -> list[Turn]:
    """All messages' wire forms, without calls that the provider ran itself and never answered.

    It refuses such a call, except while its result may still come: nothing follows it but results of tools.
    """
    turns = wire_turns(messages, rules)
    calling = [(at, turn) for at, turn in enumerate(turns) if not turn.plain and turn.server_calls]
    if calling:
        answered = frozenset[str]().union(*[turn.server_results for turn in turns])
        for at, turn in calling:
            lost = [block for block, id in turn.server_calls if id not in answered]
            if lost and (messages[at].interrupted or any(later.role != "tool" for later in messages[at + 1 :])):
                turns[at] = wire_turn(messages[at], msgspec.structs.replace(rules, left_out=frozenset(lost)))
    return turns


def _last_user_turns(turns: Sequence[Turn], count: int) -> list[int]:
    """Where the user's last turns end. Two marks let the cache be found again although a turn added many blocks."""
    found: list[int] = []
    inside = False
    for at in range(len(turns) - 1, -1, -1):
        turn = turns[at]
        if turn.opening is MODEL_SPEAKS:
            inside = inside and not turn.content
        elif turn.content and not inside:
            inside = True
            if turn.markable:
                found.append(at)
            if len(found) == count:
                break
    return found


class _Marks:
    """The cache marks that are left: a request may hold four, and the caller's own tools may hold some already."""

    def __init__(self, options: ModelOptions) -> None:
        taken = sum([b'"cache_control"' in bytes(raw) for raw in options.server_tools])
        taken += "cache_control" in options.extra_body
        self._left: int = max(_MOST_MARKS - taken, 0) if options.cache else 0

    def take(self, wanted: bool = True) -> int:
        """1 if a mark may be set, else 0."""
        if not wanted or not self._left:
            return 0
        self._left -= 1
        return 1


# --- everything else ---


def _system(text: str, terms: _Terms) -> bytes:
    """The one block of the system prompt, but for its end, where a mark may be put."""
    known = terms.systems.get(text)
    if known is None:
        known = written({"type": "text", "text": text})[:-1]
        terms.systems.clear()
        terms.systems[text] = known
    return known


def _parameters(
    call: Call,
    options: ModelOptions,
    thinking: Thinking,
    names: ToolNames,
    adaptations: list[Adaptation],
    *,
    container: str | None,
) -> dict[str, object]:
    found: dict[str, object] = {}
    if choice := _tool_choice(call, options, thinking, names, adaptations):
        found["tool_choice"] = choice
    if thinking.config is not None:
        found["thinking"] = thinking.config
    output: dict[str, object] = {} if thinking.effort is None else {"effort": thinking.effort}
    if (schema := format_schema(call, options, adaptations)) is not None:
        output["format"] = {"type": "json_schema", "schema": schema}
    if output:
        found["output_config"] = output
    found |= checked_sampling(call, options, thinking, adaptations)
    if stops := _stops(call, options, adaptations):
        found["stop_sequences"] = stops
    if options.user is not None:
        found["metadata"] = {"user_id": options.user}
    if container:
        found["container"] = container
    if call.stream:
        found["stream"] = True
    return found


def _tool_choice(
    call: Call, options: ModelOptions, thinking: Thinking, names: ToolNames, adaptations: list[Adaptation]
) -> dict[str, object] | None:
    if not call.tools and not options.server_tools:
        return None  # the API refuses a choice without tools
    wanted = options.tool_choice
    if thinking.budgeted and wanted not in {"auto", "none"}:
        why = "a tool call cannot be forced while the model thinks"
        refuse_or_adapt(call, adaptations, "tool_choice", why, "Leave reasoning or tool_choice out.")
        wanted = "auto"
    if isinstance(wanted, OneTool):
        choice: dict[str, object] = {"type": "tool", "name": names.wire(wanted.name)}
    else:
        choice = {"type": _CHOICES[wanted]}
    if options.parallel_tool_calls is False and wanted != "none":
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _stops(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> list[str]:
    blank = [stop for stop in options.stop if not stop or stop.isspace()]
    if blank:
        why = "a stop sequence must hold more than white space"
        refuse_or_adapt(call, adaptations, f"stop={blank[0]!r}", why, "Leave it out.")
    return [stop for stop in options.stop if stop not in blank]


def _container(call: Call, options: ModelOptions) -> str | None:
    """The sandbox of the last reply that had one: code that the provider runs finds its files there again."""
    if not options.server_tools:
        return None
    for message in reversed(call.conversation.messages):
        native = message.native
        if native is not None and native.provider == READER and "container" in native.fields:
            return text(members(native.fields["container"]).get("id"))
    return None


def _headers(options: ModelOptions, thinking: Thinking) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.extra_headers.items()}
    needed = [BINDING_BETA] if thinking.config is not None and "block_binding" in thinking.config else []
    betas = beta_header(needed, options.server_tools, options.extra_body, given.pop("anthropic-beta", None))
    return {"anthropic-version": _VERSION, **({"anthropic-beta": betas} if betas else {}), **given}
