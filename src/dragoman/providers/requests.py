"""What the encoders of all dialects do alike: options against profiles, tools, schemas, efforts, media and names.

Owns: that what a model cannot take is refused or reported, never dropped; legal names for tools whose own names a
provider would refuse.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import OneTool, ToolExample, ToolSpec
from dragoman.errors import ConfigurationError

from .codec import Adaptation, Call, remembered
from .options import Effort, ModelOptions, ResponseFormat
from .profile import Profile, ToolLimits
from .schema import convert, excesses_together
from .server_tools import ServerTool, ToolRows, given_fields

_T = TypeVar("_T")
_DEFAULTS: Final = ModelOptions()
# Not sent to the model as parameters of their own.
_NOT_PARAMETERS: Final = frozenset(["adapt", "extra_body", "extra_headers", "server_tools", "tool_choice", "cache"])

# What models do anyway that sample in a way of their own or give one answer, and so may be told.
_NEUTRAL: Final = {"temperature": 1, "top_p": 1, "choices": 1}

EFFORTS: Final[tuple[Effort, ...]] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""From less to more."""


def refuse_or_adapt(call: Call, adaptations: list[Adaptation], what: str, why: str, hint: str) -> None:
    """Report that something was left out or changed; or raise, unless the caller said `adapt=True`."""
    if not call.options.adapt:
        message = f"{call.profile.provider}:{call.model} cannot take {what}: {why}."
        raise ConfigurationError(message, hint=f"{hint} Or say adapt=True to go on without it.")
    adaptations.append(Adaptation(what, why))


def effective_options(call: Call, adaptations: list[Adaptation], rows: ToolRows | None = None) -> ModelOptions:
    """The options without what the profile says the model does not take; each one refused or reported.

    With rows, the provider's own tools are written by them: only raw JSON is left.
    """
    options, profile = call.options, call.profile
    changes: dict[str, object] = {}
    for name in sorted(profile.unsupported):  # in the same order in every process
        if name in _NOT_PARAMETERS or getattr(options, name) in (getattr(_DEFAULTS, name), _NEUTRAL.get(name)):
            continue
        refuse_or_adapt(call, adaptations, name, "this model does not support it", f"Leave {name} out.")
        changes[name] = getattr(_DEFAULTS, name)
    if options.reasoning is not None and profile.reasoning == "none":
        if options.reasoning.effort != "none":  # not to reason is what such a model does anyway
            refuse_or_adapt(call, adaptations, "reasoning", "this model does not reason", "Leave reasoning out.")
        changes["reasoning"] = None
    if options.parallel_tool_calls is False and not profile.single_tool_calls:
        why = "this model cannot be held to one call at a time"
        refuse_or_adapt(call, adaptations, "parallel_tool_calls=False", why, "Leave it out.")
        changes["parallel_tool_calls"] = None
    wanted = "tool" if isinstance(options.tool_choice, OneTool) else options.tool_choice
    if (call.tools or options.server_tools) and wanted not in profile.tool_choices:
        hint = f"Use one of: {', '.join(sorted(profile.tool_choices))}."
        refuse_or_adapt(call, adaptations, f"tool_choice={wanted!r}", "this model does not support it", hint)
        changes["tool_choice"] = "auto"
    if options.server_tools and rows is not None:
        written = [_write_server_tool(call, tool, rows, adaptations) for tool in options.server_tools]
        changes["server_tools"] = tuple([tool for tool in written if tool is not None])
    if options.cache == "1h" and not takes_cache_marks(profile):
        adaptations.append(Adaptation('cache="1h"', "the provider decides itself for how long it keeps a prompt"))
    if options.max_tokens is None and profile.default_max_tokens is not None:
        changes["max_tokens"] = profile.default_max_tokens
    return msgspec.structs.replace(options, **changes) if changes else options


def _write_server_tool(call: Call, tool: Raw | ServerTool, rows: ToolRows, adaptations: list[Adaptation]) -> Raw | None:
    """One of the provider's own tools in its words; what it lacks of it is refused or reported."""
    if isinstance(tool, Raw):
        return tool
    name, row = type(tool).__name__, rows.get(type(tool))
    if row is None:
        hint = "Use a provider that has it, or a tool of your own."
        refuse_or_adapt(call, adaptations, name, "there is no such tool over this API", hint)
        return None
    members: object = row.members
    for field, value in given_fields(tool).items():
        if field in row.fields:
            members = merge_members(members, _nest(row.fields[field], value))
        elif field not in row.taken and f"{field}={value}" not in row.taken:
            why = "its own tool of this kind has no such setting"
            refuse_or_adapt(call, adaptations, f"{field} of {name}", why, f"Leave {field} out.")
    return Raw(msgspec.json.encode(merge_members(members, row.rest(tool)) if row.rest is not None else members))


def _nest(path: str, value: object) -> object:
    for step in reversed(path.split(".")):
        value = {step: value}
    return value


def raw_tools(options: ModelOptions) -> tuple[Raw, ...]:
    """The provider's own tools, once `effective_options` has written them."""
    return cast("tuple[Raw, ...]", options.server_tools)


def tools_beside(call: Call, named: Iterable[str]) -> Call:
    """The call without the tools of ours that are told by the provider's own of the same name: one stands for both."""
    told = set(named)
    return msgspec.structs.replace(call, tools=tuple([tool for tool in call.tools if tool.name not in told]))


def takes_cache_marks(profile: Profile) -> bool:
    """Whether the provider caches what is marked, and nothing else; the others cache by themselves."""
    return profile.dialect == "anthropic" or not profile.quirks.isdisjoint(("cache_marks", "cache_points"))


def cache_mark(profile: Profile, options: ModelOptions) -> bytes:
    """The member that marks a part of a prompt for the cache; empty if none is to be marked."""
    if not options.cache or not takes_cache_marks(profile):
        return b""
    lifetime = b',"ttl":"1h"' if options.cache == "1h" else b""
    return b'"cache_control":{"type":"ephemeral"' + lifetime + b"}"


def merge_members(below: object, above: object) -> object:
    """An object laid over another, member by member; anything else wins as a whole."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    merged = dict(cast("Mapping[str, object]", below))
    for name, value in cast("Mapping[str, object]", above).items():
        merged[name] = merge_members(merged.get(name), value)
    return merged


# --- tools and schemas ------------------------------------------------------------------------------------------------


class DeclaredTool(Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it, and what was changed to get there."""

    name: str
    description: str
    examples: tuple[ToolExample, ...]
    schema: dict[str, object]
    strict: bool
    deferred: bool
    """Whether the model is told of it only when it looks for it, where a provider has a search of its own."""
    notes: tuple[Adaptation, ...]


def declare_tools(
    call: Call, names: ToolNames, adaptations: list[Adaptation], write: Callable[[DeclaredTool], _T]
) -> list[_T]:
    """The tools in a dialect's words. What `write` gives is kept beside the tool for later calls."""
    profile = call.profile
    if call.tools and not profile.tools:
        hint = "Use another model or another API of this provider, or send no tools."
        refuse_or_adapt(call, adaptations, "tools", "this model calls no tools over this API", hint)
        return []
    if len(names.to_wire) < len(call.tools):
        (name, _), *_ = Counter([spec.name for spec in call.tools]).most_common(1)
        raise ConfigurationError(f"Two tools have the same name: {name!r}.", hint="Rename one of them.")
    most = profile.tool_limits.max_tools
    if most is not None and len(call.tools) > most:
        why = f"at most {most} are allowed in one request; those behind are left out"
        refuse_or_adapt(call, adaptations, f"{len(call.tools)} tools", why, "Offer fewer tools.")
    declared: list[_T] = []
    held: list[dict[str, object]] = []
    for spec in call.tools[:most]:
        told, written = declare_tool(spec, names, profile, held, write)
        adaptations += told.notes
        declared.append(written)
    return declared


def declare_tool(
    spec: ToolSpec,
    names: ToolNames,
    profile: Profile,
    held: list[dict[str, object]],
    write: Callable[[DeclaredTool], _T],
) -> tuple[DeclaredTool, _T]:
    """One tool as the model is told of it, and what `write` makes of that.

    `held` are the strict schemas so far: where one more is too much for a request, this one is not strict.
    """
    name, limits = names.wire(spec.name), profile.tool_limits
    depends_on = f"{write.__module__} {profile.tool_schema} {profile.tool_examples} {limits.max_description_length}"
    depends_on += f" {bool(profile.tool_search)}"

    def declare(strict: bool) -> tuple[DeclaredTool, _T]:
        def make() -> tuple[DeclaredTool, _T]:
            told = _declare(spec, name, profile, strict=strict)
            return told, write(told)

        return remembered(spec, f"{depends_on} {profile.strict_tools} {strict} {name}", make)

    told, written = declare(spec.strict is True and profile.strict_tools)
    if told.strict and (beyond := excesses_together([*held, told.schema], profile.tool_schema)):
        note = Adaptation(f"strict of tool {spec.name!r}", f"left out: {beyond[0]} in one request")
        told, written = declare(False)
        return msgspec.structs.replace(told, notes=(*told.notes, note)), written
    if told.strict:
        held.append(told.schema)
    return told, written


def _declare(spec: ToolSpec, name: str, profile: Profile, *, strict: bool) -> DeclaredTool:
    done = convert(spec.schema, profile.tool_schema, strict=strict)
    description, changed = _describe(spec, profile)
    notes = [("description", changed)] if changed else []
    notes += [("schema", line) for line in done.lines]
    if name != spec.name:
        notes.append(("name", f"sent as {name!r}"))
    if spec.strict and not profile.strict_tools:
        notes.append(("strict", "this model does not support it"))
    return DeclaredTool(
        name=name,
        description=description,
        examples=spec.examples if profile.tool_examples and not spec.deferred else (),
        schema=done.schema,
        strict=strict and not done.reasons,
        deferred=spec.deferred and profile.tool_search > 0,
        notes=tuple([Adaptation(f"{what} of tool {spec.name!r}", why) for what, why in notes]),
    )


def _describe(spec: ToolSpec, profile: Profile) -> tuple[str, str]:
    """The description of a tool as this model gets it, and what was changed; nothing if it is the tool's own."""
    text, changes = spec.description, list[str]()
    # Where a provider searches tools itself it takes no examples of those that are to be found.
    if spec.examples and (spec.deferred or not profile.tool_examples):
        text = description_with_examples(spec)
        changes.append("the examples are put into it")
    longest = profile.tool_limits.max_description_length
    if longest is not None and len(text) > longest:
        changes.append(f"{len(text)} characters, cut to the {longest} that are allowed")
        text = f"{text[: longest - 1]}…"
    return text, "; ".join(changes)


def description_with_examples(spec: ToolSpec) -> str:
    """The description of a tool for whoever has no place of its own for examples."""
    if not spec.examples:
        return spec.description
    shown = [msgspec.json.encode(example.input).decode() for example in spec.examples]
    return f"{spec.description}\n\nExamples of its arguments: {'; '.join(shown)}".strip()


def convert_reply_schema(
    call: Call, wanted: ResponseFormat, adaptations: list[Adaptation]
) -> tuple[dict[str, object], bool]:
    """The schema that the reply must have, and whether it can be enforced to the letter."""
    given = msgspec.json.decode(wanted.schema, type=dict[str, object])
    done = convert(given, call.profile.structured_schema, strict=wanted.strict)
    adaptations += [Adaptation("schema of the reply", note) for note in done.lines]
    return done.schema, wanted.strict and not done.reasons


def enforced_schema(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object] | None:
    """The schema of the reply, if one is asked for, for a provider that enforces every schema it takes."""
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


def name_reply_schema(wanted: ResponseFormat, adaptations: list[Adaptation]) -> str:
    """A name for the reply's schema as OpenAI takes it."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", wanted.name)[:64] or "answer"
    if name != wanted.name:
        adaptations.append(Adaptation(f"name {wanted.name!r} of the reply's schema", f"sent as {name!r}"))
    return name


# --- reasoning and media ----------------------------------------------------------------------------------------------


def nearest_effort(effort: Effort, efforts: frozenset[str]) -> Effort:
    """The one of these efforts that is nearest, the lower one of two; the effort itself if there are none."""
    known: list[Effort] = [one for one in EFFORTS if one in efforts]
    return min(known or [effort], key=lambda one: abs(EFFORTS.index(one) - EFFORTS.index(effort)))


def effort_of_budget(budget: int, budgets: dict[Effort, int], efforts: frozenset[str]) -> Effort:
    """The effort nearest to the least one that spends so many tokens, by a table from less to more."""
    least: Effort = "max"
    for effort, tokens in reversed(budgets.items()):
        least = effort if tokens >= budget else least
    return nearest_effort(least, efforts)


def choose_effort(call: Call, effort: Effort, adaptations: list[Adaptation]) -> Effort:
    """The effort, or the nearest one that the model knows, which is refused or reported."""
    nearest = nearest_effort(effort, call.profile.efforts)
    if nearest != effort:
        known = ", ".join([one for one in EFFORTS if one in call.profile.efforts])
        why = f"this model knows {known}; {nearest!r} is the nearest"
        refuse_or_adapt(call, adaptations, f"reasoning effort {effort!r}", why, f"Say {nearest!r}.")
    return nearest


def check_sampling(
    call: Call, options: ModelOptions, effort: Effort | None, adaptations: list[Adaptation]
) -> list[str]:
    """Options to leave out because the model reasons: some take temperature and its kin only while they do not."""
    reasons = {"reasons_on_request": effort not in (None, "none"), "reasons_unless_told": effort != "none"}
    if not any(reasons[quirk] for quirk in reasons.keys() & call.profile.quirks):
        return []
    left_out = [name for name in ("temperature", "top_p") if getattr(options, name) not in (None, 1)]
    left_out += ["logprobs"] if options.logprobs is not None else []
    for name in left_out:
        hint = "Leave it out, or say reasoning=Reasoning(effort='none')."
        refuse_or_adapt(call, adaptations, name, "this model takes it only without reasoning", hint)
    return left_out


# --- names of tools ---------------------------------------------------------------------------------------------------

# Tried in this order before a name whose first character may not be the first.
_LEADS: Final = ("", "_", "t_", "tool_")


class ToolNames:
    """The names of the tools of one request. Decoders map `to_own` back.

    A legal name stays as it is. The name that an illegal one gets depends on the set of tools, not on their order, and
    in most cases on nothing but the name itself: a prompt cache and a recorded history survive that tools come and go.
    """

    __slots__ = ("_legal", "_limits", "to_own", "to_wire")

    def __init__(self, names: Iterable[str], limits: ToolLimits) -> None:
        self._limits: ToolLimits = limits
        self._legal: re.Pattern[str] = re.compile(limits.name_pattern)
        wire = {name: name for name in names}
        illegal = [name for name in wire if not self.is_legal(name)]
        if illegal:
            plain = {name: self._plain(name) for name in wire}
            # Two that would become the same both carry a mark, so that neither depends on which one comes first.
            times = Counter(plain.values())
            wire.update({name: self._marked(name) if times[plain[name]] > 1 else plain[name] for name in illegal})
        self.to_wire: Mapping[str, str] = MappingProxyType(wire)
        """Name on the wire of every tool, by its own name."""
        self.to_own: Mapping[str, str] = MappingProxyType({wire[name]: name for name in illegal})
        """Own names by the names on the wire, of those that were changed."""

    def is_legal(self, name: str) -> bool:
        return len(name) <= self._limits.max_name_length and self._legal.fullmatch(name) is not None

    def wire(self, name: str) -> str:
        """The name on the wire, also of a tool that is no longer there but was called earlier in the conversation."""
        found = self.to_wire.get(name)
        if found is None:
            found = self._plain(name)
            if found in self.to_wire.values():  # a tool of today has the name that this one had
                found = self._marked(name)
        return found

    def _plain(self, name: str) -> str:
        """The name with what is not allowed replaced; marked where that is not enough."""
        if self.is_legal(name):
            return name
        short = self._letters(name)
        legal = [lead + short for lead in _LEADS if short.strip("_-") and self.is_legal(lead + short)]
        return legal[0] if legal else self._marked(name)

    def _marked(self, name: str) -> str:
        mark = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        short = self._letters(name)
        for lead in _LEADS:
            marked = f"{(lead + short)[: max(0, self._limits.max_name_length - len(mark) - 1)]}_{mark}"
            if self.is_legal(marked):
                return marked
        message = f"No legal name for the tool {name!r} fits the pattern {self._limits.name_pattern!r}."
        raise ConfigurationError(message, hint="Rename the tool, or correct the pattern in the profile.")

    def _letters(self, name: str) -> str:
        """The name in characters that the pattern knows: without accents, and `_` for what has no likeness."""
        plain = unicodedata.normalize("NFKD", name)
        kept = [letter for letter in plain if not unicodedata.combining(letter)]
        return "".join([letter if self._legal.fullmatch(f"a{letter}") else "_" for letter in kept])
