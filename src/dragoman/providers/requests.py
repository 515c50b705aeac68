"""Encode requests: what all dialects have in common for options, tools, schemas, efforts and tool names.

What a model cannot take is refused or reported, never dropped silently.
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

from dragoman.conversation import OneTool, ToolExample, ToolSpec, parse_schema
from dragoman.errors import ConfigurationError

from .codec import Adaptation, Call, remembered
from .options import Effort, ModelOptions, Reasoning, ResponseFormat
from .profile import Profile, ToolLimits
from .schema import convert, exceeded_together
from .server_tools import ServerTool, ToolRows, given_fields
from .wire import as_object, value_of

_T = TypeVar("_T")
_DEFAULTS: Final = ModelOptions()
# Options that are not parameters of the model.
_NOT_PARAMETERS: Final = frozenset(["adapt", "extra_body", "extra_headers", "server_tools", "tool_choice", "cache"])

_NOT_FORCED: Final = frozenset(["auto", "none"])

# Values that change nothing, also for models that do not take the option.
_NEUTRAL: Final = {"temperature": 1, "top_p": 1, "choices": 1}

EFFORTS: Final[tuple[Effort, ...]] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""From the lowest to the highest."""
_BUDGETS: Final[dict[Effort, int]] = {"none": 0, "low": 2_048, "medium": 16_384, "high": 65_536, "xhigh": 131_072}
"""About how many tokens each effort uses."""


def refuse_or_adapt(call: Call, adaptations: list[Adaptation], what: str, why: str, hint: str) -> None:
    """Report what is left out or changed if the caller allows it (`adapt=True`); otherwise raise."""
    if not call.options.adapt:
        message = f"{call.profile.provider}:{call.model} cannot take {what}: {why}."
        raise ConfigurationError(message, hint=f"{hint} Or say adapt=True to go on without it.")
    adaptations.append(Adaptation(what, why))


def effective_options(call: Call, adaptations: list[Adaptation], rows: ToolRows | None = None) -> ModelOptions:
    """The options without those that the model does not take; each one is refused or reported.

    With rows, the provider's own tools are written as raw JSON.
    """
    options, profile = call.options, call.profile
    changes: dict[str, object] = {}
    for name in sorted(profile.unsupported):  # in the same order in every process
        if name in _NOT_PARAMETERS or getattr(options, name) in (getattr(_DEFAULTS, name), _NEUTRAL.get(name)):
            continue
        refuse_or_adapt(call, adaptations, name, "this model does not support it", f"Leave {name} out.")
        changes[name] = getattr(_DEFAULTS, name)
    if options.reasoning is not None and profile.reasoning == "none":
        if not options.reasoning.is_off:  # it never reasons anyway
            refuse_or_adapt(call, adaptations, "reasoning", "this model does not reason", "Leave reasoning out.")
        changes["reasoning"] = None
    if options.parallel_tool_calls is False and not profile.single_tool_calls:
        why = "this model cannot be limited to one call at a time"
        refuse_or_adapt(call, adaptations, "parallel_tool_calls=False", why, "Leave it out.")
        changes["parallel_tool_calls"] = None
    wanted = "tool" if isinstance(options.tool_choice, OneTool) else options.tool_choice
    possible = possible_choices(profile, options)
    if (call.tools or options.server_tools) and wanted not in possible:
        why, hint = "this model does not support it", f"Use one of: {', '.join(sorted(possible))}."
        if wanted in profile.tool_choices:
            why, hint = f"{why} while it reasons", f"Say reasoning=Reasoning(effort='none'). {hint}"
        refuse_or_adapt(call, adaptations, f"tool_choice={wanted!r}", why, hint)
        changes["tool_choice"] = "auto"
    if options.server_tools and rows is not None:
        written = [_write_server_tool(call, tool, rows, adaptations) for tool in options.server_tools]
        changes["server_tools"] = tuple([tool for tool in written if tool is not None])
    if options.cache == "1h" and not takes_cache_marks(profile):
        adaptations.append(Adaptation('cache="1h"', "the provider decides how long it keeps a prompt"))
    if options.max_tokens is None and profile.default_max_tokens is not None:
        changes["max_tokens"] = profile.default_max_tokens
    return msgspec.structs.replace(options, **changes) if changes else options


def possible_choices(profile: Profile, options: ModelOptions) -> frozenset[str]:
    """The tool choices that the model takes with these options."""
    if profile.forced_while_reasoning or (options.reasoning is not None and options.reasoning.is_off):
        return profile.tool_choices
    return profile.tool_choices & _NOT_FORCED


def _write_server_tool(call: Call, tool: Raw | ServerTool, rows: ToolRows, adaptations: list[Adaptation]) -> Raw | None:
    """One of the provider's own tools as JSON; settings that it lacks are refused or reported."""
    if isinstance(tool, Raw):
        return tool
    name, row = type(tool).__name__, rows.get(type(tool))
    if row is None:
        hint = "Use a provider that has it, or write a tool."
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
    """The provider's own tools, after `effective_options` has written them."""
    return cast("tuple[Raw, ...]", options.server_tools)


def kinds_of(tools: Iterable[Raw]) -> list[str]:
    """The types of the provider's own tools."""
    return [str(as_object(value_of(raw)).get("type")) for raw in tools]


def tools_beside(call: Call, named: Iterable[str]) -> Call:
    """The call without tools that have the name of one of the provider's own, which stands for both."""
    taken = set(named)
    return msgspec.structs.replace(call, tools=tuple([tool for tool in call.tools if tool.name not in taken]))


def takes_cache_marks(profile: Profile) -> bool:
    """Whether the provider caches only what is marked; the others cache automatically."""
    return profile.dialect == "anthropic" or not profile.quirks.isdisjoint(("cache_marks", "cache_points"))


def cache_mark(profile: Profile, options: ModelOptions) -> bytes:
    """The member that marks a part of a prompt for the cache; empty if nothing is to be marked."""
    if not options.cache or not takes_cache_marks(profile):
        return b""
    lifetime = b',"ttl":"1h"' if options.cache == "1h" else b""
    return b'"cache_control":{"type":"ephemeral"' + lifetime + b"}"


def merge_members(below: object, above: object) -> object:
    """Merge two objects recursively; `above` wins, also where one of the two is not an object."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    merged = dict(cast("Mapping[str, object]", below))
    for name, value in cast("Mapping[str, object]", above).items():
        merged[name] = merge_members(merged.get(name), value)
    return merged


# --- tools and schemas ------------------------------------------------------------------------------------------------


class DeclaredTool(Struct, frozen=True, kw_only=True):
    """A tool as it is sent to a model, and what was changed."""

    name: str
    description: str
    examples: tuple[ToolExample, ...]
    schema: dict[str, object]
    strict: bool
    deferred: bool
    """Whether the provider's tool search offers it, instead of the request."""
    notes: tuple[Adaptation, ...]


def declare_tools(
    call: Call, names: ToolNames, adaptations: list[Adaptation], write: Callable[[DeclaredTool], _T]
) -> list[_T]:
    """The tools as `write` writes them for a dialect; the results are cached with each tool."""
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
        why = f"at most {most} are allowed in one request; the rest is left out"
        refuse_or_adapt(call, adaptations, f"{len(call.tools)} tools", why, "Offer fewer tools.")
    declared: list[_T] = []
    strict_schemas: list[dict[str, object]] = []
    for spec in call.tools[:most]:
        tool, written = declare_tool(spec, names, profile, strict_schemas, write)
        adaptations += tool.notes
        declared.append(written)
    return declared


def declare_tool(
    spec: ToolSpec,
    names: ToolNames,
    profile: Profile,
    strict_schemas: list[dict[str, object]],
    write: Callable[[DeclaredTool], _T],
) -> tuple[DeclaredTool, _T]:
    """One tool as it is sent to the model, and the result of `write`.

    `strict_schemas` are those of the request so far: if one more would be too much, this tool is not strict.
    """
    name, limits = names.wire(spec.name), profile.tool_limits
    depends_on = f"{write.__module__} {profile.tool_schema} {profile.tool_examples} {limits.max_description_length}"
    depends_on += f" {bool(profile.tool_search)}"

    def declare(strict: bool) -> tuple[DeclaredTool, _T]:
        def make() -> tuple[DeclaredTool, _T]:
            tool = _declare(spec, name, profile, strict=strict)
            return tool, write(tool)

        return remembered(spec, f"{depends_on} {profile.strict_tools} {strict} {name}", make)

    tool, written = declare(spec.strict is True and profile.strict_tools)
    if tool.strict and (exceeded := exceeded_together([*strict_schemas, tool.schema], profile.tool_schema)):
        note = Adaptation(f"strict of tool {spec.name!r}", f"left out: {exceeded[0]} in one request")
        tool, written = declare(False)
        return msgspec.structs.replace(tool, notes=(*tool.notes, note)), written
    if tool.strict:
        strict_schemas.append(tool.schema)
    return tool, written


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
        strict=strict and done.reason is None,
        deferred=spec.deferred and profile.tool_search > 0,
        notes=tuple([Adaptation(f"{what} of tool {spec.name!r}", why) for what, why in notes]),
    )


def _describe(spec: ToolSpec, profile: Profile) -> tuple[str, str]:
    """The description of a tool for this model, and what was changed; empty if nothing was."""
    text, changes = spec.description, list[str]()
    # A provider's tool search takes no examples.
    if spec.examples and (spec.deferred or not profile.tool_examples):
        text = description_with_examples(spec)
        changes.append("the examples are put into it")
    longest = profile.tool_limits.max_description_length
    if longest is not None and len(text) > longest:
        changes.append(f"{len(text)} characters, cut to the {longest} that are allowed")
        text = f"{text[: longest - 1]}…"
    return text, "; ".join(changes)


def description_with_examples(spec: ToolSpec) -> str:
    """The description of a tool including its examples."""
    if not spec.examples:
        return spec.description
    shown = [msgspec.json.encode(example.input).decode() for example in spec.examples]
    return f"{spec.description}\n\nExamples of its arguments: {'; '.join(shown)}".strip()


def convert_reply_schema(
    call: Call, wanted: ResponseFormat, adaptations: list[Adaptation]
) -> tuple[dict[str, object], bool]:
    """The schema of the reply in the provider's style, and whether it is strict."""
    given = parse_schema(wanted.schema)
    done = convert(given, call.profile.structured_schema, strict=wanted.strict)
    adaptations += [Adaptation("schema of the reply", note) for note in done.lines]
    return done.schema, wanted.strict and done.reason is None


def enforced_schema(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object] | None:
    """The schema of a structured reply for a provider that takes only strict ones; None if there is none."""
    wanted = options.response_format
    if wanted is None:
        return None
    given = parse_schema(wanted.schema)
    done = convert(given, call.profile.structured_schema, strict=True)
    if done.reason is not None:
        hint = "Change the schema, or request the reply by a tool."
        refuse_or_adapt(call, adaptations, "response_format", str(done.reason), hint)
        return None
    adaptations += [Adaptation("schema of the reply", note) for note in done.lines]
    return done.schema


def name_reply_schema(wanted: ResponseFormat, adaptations: list[Adaptation]) -> str:
    """The name of the reply's schema, as OpenAI takes it."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", wanted.name)[:64] or "answer"
    if name != wanted.name:
        adaptations.append(Adaptation(f"name {wanted.name!r} of the reply's schema", f"sent as {name!r}"))
    return name


# --- reasoning --------------------------------------------------------------------------------------------------------


def nearest_effort(effort: Effort, efforts: frozenset[str]) -> Effort:
    """The nearest of these efforts, the lower one of two; the effort itself if there are none."""
    known: list[Effort] = [one for one in EFFORTS if one in efforts]
    return min(known or [effort], key=lambda one: abs(EFFORTS.index(one) - EFFORTS.index(effort)))


def effort_of_budget(budget: int, budgets: dict[Effort, int], efforts: frozenset[str]) -> Effort:
    """The effort nearest to the lowest one with this budget, by a table in ascending order; "none" only for none."""
    least: Effort = "max"
    for effort, tokens in reversed(budgets.items()):
        least = effort if tokens >= budget else least
    return nearest_effort(least, efforts - {"none"} if budget > 0 else efforts)


def choose_effort(
    call: Call, wanted: Reasoning, adaptations: list[Adaptation], budgets: dict[Effort, int] = _BUDGETS
) -> Effort | None:
    """The effort for a model that takes one: an unknown one is refused or replaced, a budget is converted."""
    efforts = call.profile.efforts
    if wanted.effort is None:
        if wanted.budget is None:
            return None
        nearest = effort_of_budget(wanted.budget, budgets, efforts)
        if efforts and nearest not in efforts:  # it takes no effort but "none"
            adaptations.append(Adaptation(f"a reasoning budget of {wanted.budget}", "not sent: the model decides"))
            return None
        adaptations.append(Adaptation(f"a reasoning budget of {wanted.budget}", f"sent as effort {nearest!r}"))
        return nearest
    if wanted.budget is not None:
        adaptations.append(Adaptation("reasoning.budget", "not sent: only one of the two can be"))
    nearest = nearest_effort(wanted.effort, efforts)
    if nearest != wanted.effort:
        known = ", ".join([one for one in EFFORTS if one in efforts])
        why = f"this model takes {known}; {nearest!r} is the nearest"
        refuse_or_adapt(call, adaptations, f"reasoning effort {wanted.effort!r}", why, f"Use {nearest!r}.")
    return nearest


def check_sampling(
    call: Call, options: ModelOptions, effort: Effort | None, adaptations: list[Adaptation]
) -> list[str]:
    """Options to leave out because the model reasons: some take temperature and the like only without reasoning."""
    reasons = {"reasons_on_request": effort not in (None, "none"), "reasons_unless_told": effort != "none"}
    if not any(reasons[quirk] for quirk in reasons.keys() & call.profile.quirks):
        return []
    left_out = [name for name in ("temperature", "top_p") if getattr(options, name) not in (None, 1)]
    left_out += ["logprobs"] if options.logprobs is not None else []
    for name in left_out:
        hint = "Leave it out, or use reasoning=Reasoning(effort='none')."
        refuse_or_adapt(call, adaptations, name, "this model takes it only without reasoning", hint)
    return left_out


# --- names of tools ---------------------------------------------------------------------------------------------------

# Prefixes to try, in this order, for a name that may not start with its first character.
_PREFIXES: Final = ("", "_", "t_", "tool_")


class ToolNames:
    """The names of the tools of one request on the wire. Decoders use `to_own` to map them back.

    A legal name is kept. The replacement of an illegal one does not depend on the order of the tools, and mostly on
    nothing but the name itself, so that prompt caches and recorded histories survive changes to the tools.
    """

    __slots__ = ("_legal", "_limits", "to_own", "to_wire")

    def __init__(self, names: Iterable[str], limits: ToolLimits) -> None:
        self._limits: ToolLimits = limits
        self._legal: re.Pattern[str] = re.compile(limits.name_pattern)
        wire = {name: name for name in names}
        illegal = [name for name in wire if not self.is_legal(name)]
        if illegal:
            plain = {name: self._plain(name) for name in wire}
            # Two names that would become the same both get a hash, so that their order does not matter.
            times = Counter(plain.values())
            wire.update({name: self._hashed(name) if times[plain[name]] > 1 else plain[name] for name in illegal})
        self.to_wire: Mapping[str, str] = MappingProxyType(wire)
        """The name on the wire of every tool, by its own name."""
        self.to_own: Mapping[str, str] = MappingProxyType({wire[name]: name for name in illegal})
        """The own names of tools whose names were changed, by the names on the wire."""

    def is_legal(self, name: str) -> bool:
        return len(name) <= self._limits.max_name_length and self._legal.fullmatch(name) is not None

    def wire(self, name: str) -> str:
        """The name on the wire, also of a tool that is gone but was called earlier in the conversation."""
        found = self.to_wire.get(name)
        if found is None:
            found = self._plain(name)
            if found in self.to_wire.values():  # another tool has this name now
                found = self._hashed(name)
        return found

    def _plain(self, name: str) -> str:
        """The name with illegal characters replaced; with a hash where that is not enough."""
        if self.is_legal(name):
            return name
        short = self._letters(name)
        legal = [prefix + short for prefix in _PREFIXES if short.strip("_-") and self.is_legal(prefix + short)]
        return legal[0] if legal else self._hashed(name)

    def _hashed(self, name: str) -> str:
        mark = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        short = self._letters(name)
        for prefix in _PREFIXES:
            marked = f"{(prefix + short)[: max(0, self._limits.max_name_length - len(mark) - 1)]}_{mark}"
            if self.is_legal(marked):
                return marked
        message = f"No legal name for the tool {name!r} fits the pattern {self._limits.name_pattern!r}."
        raise ConfigurationError(message, hint="Rename the tool, or correct the pattern in the profile.")

    def _letters(self, name: str) -> str:
        """The name in legal characters: without accents, and `_` for what has no equivalent."""
        plain = unicodedata.normalize("NFKD", name)
        kept = [letter for letter in plain if not unicodedata.combining(letter)]
        return "".join([letter if self._legal.fullmatch(f"a{letter}") else "_" for letter in kept])
