"""From a call to a request: the members of the body, thinking, tools, cache marks and headers.

The body is joined from bytes. All but the system prompt and the messages depends on the terms of the call and on little
else, and is written once for all calls on the same terms; history.py writes the messages.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from dragoman.conversation import OneTool
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Adaptation, Call, Encoded, WireRequest, per_terms
from dragoman.providers.history import form_key
from dragoman.providers.options import Effort, ModelOptions, Reasoning
from dragoman.providers.requests import (
    ToldTool,
    ToolNames,
    declare_tools,
    effective_options,
    effort_of_budget,
    nearest_effort,
    refuse_or_adapt,
)
from dragoman.providers.schema import convert
from dragoman.providers.wire import as_object, read_members, read_text, value_of

from .history import CACHE_MARK, READER, Rules, write_history, write_marked_history
from .profiles import ALWAYS_THINKS, BOUND, BUDGETS_TOO, HIDDEN, OFF_BETWEEN_TOOLS, ONE_SAMPLER

_PATH: Final = "/v1/messages"
_VERSION: Final = "2023-06-01"
"""The next version of the API takes no sampling parameters from any model, and gives nothing that this one does not."""
_MOST_MARKS: Final = 4
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}

_encode = msgspec.json.encode


class _Frame(NamedTuple):
    """A request but for its system prompt and its messages."""

    head: bytes
    """The body without its closing brace."""
    system_end: bytes
    """The end of the system prompt's block, with a cache mark or without."""
    marks: int
    """How many of the user's turns are marked for the cache."""
    headers: dict[str, str]
    adaptations: tuple[Adaptation, ...]


def encode_call(call: Call) -> Encoded:
    """The request for this call, and what had to be changed or left out to make it."""
    conversation, own = call.conversation, call.options.extra_body
    terms = _decide_terms(call)
    rules = terms.rules
    history = write_history(conversation, rules)
    if not history.pieces:
        message = "There is nothing to send: the conversation holds no message that this provider can take."
        raise ConfigurationError(message, hint="Add a message of the user.")
    system = conversation.system
    if system is None or not system or system.isspace():  # the API refuses an empty one
        system = None
    frame = terms.frames.get(key := (system is not None, history.thinks))
    if frame is None:
        frame = terms.frames[key] = _make_frame(call, rules.names, *key)
    if frame.marks:
        history = write_marked_history(conversation, rules, frame.marks)
    body = [frame.head]
    if system is not None and "system" not in own:
        body += (b',"system":[', _encode({"type": "text", "text": system})[:-1], frame.system_end, b"]")
    if "container" not in own and (container := _find_container(call)):
        body += (b',"container":', _encode(container))
    if "messages" not in own:
        body += (b',"messages":', *history.pieces, b"]}]")
    body.append(b"}")
    return Encoded(
        request=WireRequest(path=_PATH, body=b"".join(body), headers=frame.headers),
        adaptations=frame.adaptations,
        losses=history.losses,
        tool_names=rules.names.to_own,
    )


class _Terms(NamedTuple):
    """What the terms of a call decide."""

    rules: Rules
    frames: dict[tuple[bool, bool], _Frame]
    """By whether there is a system prompt, and whether thinking is sent along."""


@per_terms
def _decide_terms(call: Call) -> _Terms:
    names = ToolNames([spec.name for spec in call.tools], call.profile.tool_limits)
    return _Terms(Rules(call.profile, names, form_key(call.profile, names)), {})


def _make_frame(call: Call, names: ToolNames, system: bool, thinks: bool) -> _Frame:
    adaptations: list[Adaptation] = []
    options = effective_options(call, adaptations)
    thinking = _ask_for_thinking(call, options, adaptations, replayed=thinks)
    tools = declare_tools(call, names, adaptations, _encode_tool)
    marks = _choose_marks(options, system=system, tools=bool(tools))
    if "tools" in marks:
        tools[-1] = tools[-1][:-1] + CACHE_MARK
    body: dict[str, object] = {"model": call.model, "max_tokens": thinking.max_tokens}
    if tools or options.server_tools:
        body["tools"] = [*map(Raw, tools), *options.server_tools]
    body |= _choose_parameters(call, options, thinking, names, adaptations)
    body |= options.extra_body
    return _Frame(
        head=_encode(body)[:-1],
        system_end=CACHE_MARK if "system" in marks else b"}",
        marks=marks.count("turn"),
        headers=_headers(options, thinking),
        adaptations=tuple(adaptations),
    )


def _choose_marks(options: ModelOptions, *, system: bool, tools: bool) -> list[str]:
    """What is marked for the cache: a request may hold four marks, and the caller's own tools may hold some already."""
    taken = sum([b'"cache_control"' in bytes(raw) for raw in options.server_tools])
    taken += "cache_control" in options.extra_body
    wanted = ["turn", *(["system"] if system else []), *(["tools"] if tools else []), "turn"]
    return wanted[: max(_MOST_MARKS - taken, 0)] if options.cache else []


def _find_container(call: Call) -> str | None:
    """The sandbox of the last reply that had one: code that the provider runs finds its files there again."""
    if not call.options.server_tools:
        return None
    for message in reversed(call.conversation.messages):
        native = message.native
        if native is not None and native.provider == READER and "container" in native.fields:
            return read_text(read_members(native.fields["container"]).get("id"))
    return None


# --- parameters -------------------------------------------------------------------------------------------------------


def _choose_parameters(
    call: Call, options: ModelOptions, thinking: _Thinking, names: ToolNames, adaptations: list[Adaptation]
) -> dict[str, object]:
    found: dict[str, object] = {}
    if choice := _choose_tool(call, options, thinking, names, adaptations):
        found["tool_choice"] = choice
    if thinking.config is not None:
        found["thinking"] = thinking.config
    output: dict[str, object] = {} if thinking.effort is None else {"effort": thinking.effort}
    if (schema := _convert_reply_schema(call, options, adaptations)) is not None:
        output["format"] = {"type": "json_schema", "schema": schema}
    if output:
        found["output_config"] = output
    found |= _check_sampling(call, options, thinking, adaptations)
    blank = [stop for stop in options.stop if not stop or stop.isspace()]
    if blank:
        why = "a stop sequence must hold more than white space"
        refuse_or_adapt(call, adaptations, f"stop={blank[0]!r}", why, "Leave it out.")
    if stops := [stop for stop in options.stop if stop not in blank]:
        found["stop_sequences"] = stops
    if options.user is not None:
        found["metadata"] = {"user_id": options.user}
    if call.stream:
        found["stream"] = True
    return found


def _choose_tool(
    call: Call, options: ModelOptions, thinking: _Thinking, names: ToolNames, adaptations: list[Adaptation]
) -> dict[str, object] | None:
    if not (call.tools and call.profile.tools) and not options.server_tools:
        return None  # the API refuses a choice without tools
    wanted = options.tool_choice
    if thinking.kind == "enabled" and wanted not in {"auto", "none"}:
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


def _check_sampling(
    call: Call, options: ModelOptions, thinking: _Thinking, adaptations: list[Adaptation]
) -> dict[str, object]:
    """Temperature and its kin as the API allows them. Thinking wants temperature 1, no top_k and top_p from 0.95."""
    asked = {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k}
    found: dict[str, object] = {name: value for name, value in asked.items() if value is not None}
    if "temperature" in found and "top_p" in found and ONE_SAMPLER in call.profile.quirks:
        why = "this model takes temperature or top_p, not both"
        refuse_or_adapt(call, adaptations, "top_p", why, "Leave one of them out.")
        del found["top_p"]
    if thinking.kind in {"enabled", "adaptive"}:
        forbidden = {
            "temperature": options.temperature not in {None, 1},
            "top_k": options.top_k is not None,
            "top_p": options.top_p is not None and not 0.95 <= options.top_p <= 1,
        }
        for name in [name for name, wrong in forbidden.items() if wrong and name in found]:
            why = "it cannot be combined with thinking"
            refuse_or_adapt(call, adaptations, name, why, f"Leave {name} or reasoning out.")
            del found[name]
    return found


# --- thinking ---------------------------------------------------------------------------------------------------------
# Two generations: models with a budget take `enabled` and a number of tokens; adaptive ones decide themselves and take
# an effort. A caller who says the one on a model that wants the other gets the nearest, and a report.

_LEAST_BUDGET: Final = 1024
_ROOM_FOR_ANSWER: Final = 1024
"""What is left of max_tokens for the answer where the budget is ours to choose."""
_BUDGETS: Final[dict[Effort, int]] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
"""How many tokens an effort stands for, from less to more."""


class _Thinking(NamedTuple):
    """What a request says about thinking."""

    config: dict[str, object] | None
    """The member `thinking`; None leaves it to the model."""
    effort: str | None
    """The member `effort` of `output_config`."""
    max_tokens: int

    @property
    def kind(self) -> object:
        """How it was asked for: "enabled" by a budget, "adaptive" by an effort."""
        return None if self.config is None else self.config["type"]


def _ask_for_thinking(call: Call, options: ModelOptions, adaptations: list[Adaptation], *, replayed: bool) -> _Thinking:
    """What to say about thinking. `replayed`: thinking of earlier turns is sent along."""
    profile, asked = call.profile, options.reasoning
    limit = 8192 if options.max_tokens is None else options.max_tokens
    if asked is None:
        found = _Thinking(None, None, limit)
    elif asked.effort == "none" and asked.budget is None:
        found = _turn_thinking_off(call, adaptations, limit)
    elif profile.reasoning == "budget" or (asked.budget is not None and BUDGETS_TOO in profile.quirks):
        found = _ask_by_budget(call, asked, adaptations, limit)
    else:
        effort = _choose_effort(call, asked, adaptations)
        found = _Thinking(_with_display(call, asked, {"type": "adaptive"}), effort, limit)
    if replayed and BOUND in profile.quirks and found.kind in {None, "enabled", "adaptive"}:
        # Histories here may be branched, mended or put under another system prompt. The provider would refuse a whole
        # request for one thought whose prefix changed; it shall drop that thought, and it says so in its reply.
        config = found.config or {"type": "adaptive"}
        found = found._replace(config={**config, "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    return found


def _turn_thinking_off(call: Call, adaptations: list[Adaptation], limit: int) -> _Thinking:
    quirks = call.profile.quirks
    if ALWAYS_THINKS in quirks:
        hint = 'Ask for effort="low".'
        refuse_or_adapt(call, adaptations, 'reasoning effort "none"', "this model always thinks", hint)
        return _Thinking(None, "low" if "low" in call.profile.efforts else None, limit)
    return _Thinking({"type": "between_tools" if OFF_BETWEEN_TOOLS in quirks else "disabled"}, None, limit)


def _ask_by_budget(call: Call, asked: Reasoning, adaptations: list[Adaptation], limit: int) -> _Thinking:
    budget, chosen = asked.budget, False
    effort = asked.effort if asked.effort in call.profile.efforts else None
    if budget is None:
        budget, chosen = _BUDGETS.get(asked.effort or "medium", _BUDGETS["medium"]), True
        if asked.effort is not None and effort is None:
            adaptations.append(Adaptation(f'reasoning effort "{asked.effort}"', f"sent as a budget of {budget} tokens"))
    if call.options.max_tokens is None:
        # Thinking counts into max_tokens: the default is room for the answer, so the budget goes on top.
        limit = min(limit + budget, call.profile.max_output or limit + budget)
    if chosen:
        budget = min(budget, max(limit - _ROOM_FOR_ANSWER, _LEAST_BUDGET))
    if budget < _LEAST_BUDGET:
        why = f"the least is {_LEAST_BUDGET} tokens"
        refuse_or_adapt(call, adaptations, f"a reasoning budget of {budget}", why, f"Ask for {_LEAST_BUDGET} or more.")
        budget = _LEAST_BUDGET
    if budget >= limit:
        why = f"it must be less than max_tokens ({limit}), which includes thinking"
        refuse_or_adapt(call, adaptations, f"a reasoning budget of {budget}", why, "Raise max_tokens.")
        budget = limit - 1
    if budget < _LEAST_BUDGET:
        return _Thinking(None, effort, limit)  # no room to think at all, as just reported
    return _Thinking(_with_display(call, asked, {"type": "enabled", "budget_tokens": budget}), effort, limit)


def _choose_effort(call: Call, asked: Reasoning, adaptations: list[Adaptation]) -> str | None:
    efforts = call.profile.efforts
    if asked.budget is not None:
        nearest = effort_of_budget(asked.budget, _BUDGETS, efforts)
        adaptations.append(Adaptation(f"a reasoning budget of {asked.budget}", f'sent as effort "{nearest}"'))
        return nearest
    if asked.effort is None or asked.effort in efforts:
        return asked.effort
    nearest = nearest_effort(asked.effort, efforts)
    why = f'this model does not know it: sent as "{nearest}"'
    adaptations.append(Adaptation(f'reasoning effort "{asked.effort}"', why))
    return nearest


def _with_display(call: Call, asked: Reasoning, config: dict[str, object]) -> dict[str, object]:
    """With `display` where the model's own default differs from what is wanted."""
    if asked.summary == (HIDDEN in call.profile.quirks):
        config["display"] = "summarized" if asked.summary else "omitted"
    return config


# --- tools and the schema of a structured reply -----------------------------------------------------------------------


def _encode_tool(tool: ToldTool) -> bytes:
    described = {"description": tool.description} if tool.description else {}
    held = {"strict": True} if tool.strict else {}
    shown = {"input_examples": [example.input for example in tool.examples]} if tool.examples else {}
    return _encode({"name": tool.name, **described, "input_schema": tool.schema, **shown, **held})


def _convert_reply_schema(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object] | None:
    """The schema that the reply must have, if one is asked for. The provider always enforces it."""
    wanted = options.response_format
    if wanted is None:
        return None
    given = msgspec.json.decode(wanted.schema, type=dict[str, object])
    done = convert(given, call.profile.structured_schema, strict=True)
    if done.reasons:
        hint = "Change the schema, or ask for the reply by a tool."
        refuse_or_adapt(call, adaptations, "response_format", str(done.reasons[0]), hint)
        return None
    adaptations += [Adaptation("schema of the reply", note) for note in done.lines]
    return done.schema


# --- headers: features in beta are asked for in the provider's own words, and need a header each ----------------------

_BETA_OF_TOOL: Final = {
    "advisor_20260301": "advisor-tool-2026-03-01",
    "bash_20241022": "computer-use-2024-10-22",
    "code_execution_20250522": "code-execution-2025-05-22",
    "computer_20241022": "computer-use-2024-10-22",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
    "text_editor_20241022": "computer-use-2024-10-22",
}
_BETA_OF_MEMBER: Final = {
    "compaction": "compact-2026-09-04",
    "context_management": "context-management-2025-06-27",
    "fallback_credit_token": "fallback-credit-2026-07-01",
    "fallbacks": "server-side-fallback-2026-07-01",
    "mcp_servers": "mcp-client-2025-11-20",
    "thread": "message-threads-2026-08-12",
}
_BETA_OF_BINDING: Final = "thinking-binding-controls-2026-08-01"


def _headers(options: ModelOptions, thinking: _Thinking) -> dict[str, str]:
    """The API's version, all beta values that this request needs, each once, and the caller's own headers."""
    given = {name.lower(): value for name, value in options.extra_headers.items()}
    betas = [_BETA_OF_BINDING] if thinking.config is not None and "block_binding" in thinking.config else []
    kinds = [str(as_object(value_of(raw)).get("type")) for raw in options.server_tools]
    betas += [_BETA_OF_TOOL[kind] for kind in kinds if kind in _BETA_OF_TOOL]
    betas += [_BETA_OF_MEMBER[name] for name in options.extra_body if name in _BETA_OF_MEMBER]
    betas += [beta.strip() for beta in given.pop("anthropic-beta", "").split(",") if beta.strip()]
    header = {"anthropic-beta": ",".join(dict.fromkeys(betas))} if betas else {}
    return {"anthropic-version": _VERSION, **header, **given}
