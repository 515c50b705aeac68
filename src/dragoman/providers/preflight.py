"""Preflight: what a provider would say to some tools, before anything is sent.

Owns: check() and its report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from dragoman.conversation import ToolSpec
from dragoman.errors import ConfigurationError, ToolDefinitionError

from .catalogue import profile_of, split_model
from .profile import Profile
from .requests import ToolNames, describe_tool
from .schema import Conversion, convert, together

Severity: TypeAlias = Literal["ok", "rewrite", "error"]
"""Sent as it is, sent in another form, or refused."""


class HasSpec(Protocol):
    """A tool, or anything else that can say what a model is told about it."""

    @property
    def spec(self) -> ToolSpec:
        """What a model is told."""
        ...


class Finding(Struct, frozen=True):
    """One thing that would be rewritten or refused."""

    severity: Severity
    about: str
    """`name`, `description`, `schema`, `strict` or `tools`."""
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"


class ToolReport(Struct, frozen=True, kw_only=True):
    """What would become of one tool."""

    tool: str
    """Its own name."""
    wire_name: str
    """The name that is sent; replies are mapped back."""
    schema: dict[str, object] | None = None
    """The schema that is sent; None if there is none that can be."""
    strict: bool = False
    """Whether the provider would hold the model to the schema."""
    findings: tuple[Finding, ...] = ()

    @property
    def severity(self) -> Severity:
        """The worst of the findings."""
        return _worst(self.findings)


class Report(Struct, frozen=True, kw_only=True):
    """What a provider would reject of some tools, and what would be rewritten."""

    model: str
    """`provider:model`, or the provider of a profile that was given."""
    tools: tuple[ToolReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    """About all tools together."""

    @property
    def severity(self) -> Severity:
        """The worst that would happen."""
        return _worst([*self.findings, *(finding for tool in self.tools for finding in tool.findings)])

    @property
    def ok(self) -> bool:
        """Whether nothing would be refused; something may be rewritten."""
        return self.severity != "error"

    def __str__(self) -> str:
        counts = Counter(tool.severity for tool in self.tools)
        words = [f"{counts[severity]} {_SAID[severity]}" for severity in _SAID if counts[severity]]
        lines = [f"{self.model}: {len(self.tools)} tools{': ' if words else ''}{', '.join(words)}"]
        lines.extend(f"  {finding}" for finding in self.findings)
        for tool in self.tools:
            if tool.findings:
                lines.append(f"  {tool.tool}: {_SAID[tool.severity]}")
                lines.extend(f"    {finding}" for finding in tool.findings)
        return "\n".join(lines)


_SAID: dict[Severity, str] = {"error": "refused", "rewrite": "rewritten", "ok": "as they are"}


def _worst(findings: Iterable[Finding]) -> Severity:
    found = {finding.severity for finding in findings}
    return "error" if "error" in found else "rewrite" if "rewrite" in found else "ok"


def check(tools: Iterable[ToolSpec | HasSpec], model: str | Profile) -> Report:
    """What a provider would reject of these tools and what would be rewritten, without asking it.

    `model` is a name like `anthropic:claude-sonnet-4-5`, or a profile.
    """
    specs = [tool if isinstance(tool, ToolSpec) else tool.spec for tool in tools]
    profile, label = _profile(model)
    names, findings = _names(specs, profile)
    times = Counter(spec.name for spec in specs)
    converted = [_converted(spec, profile) for spec in specs]
    reports = tuple(
        _report(spec, profile, names.get(spec.name, spec.name), done, repeated=times[spec.name] > 1)
        for spec, done in zip(specs, converted, strict=True)
    )
    held = [tool.schema for tool in reports if tool.strict and tool.schema is not None]
    findings += [Finding("error", "strict", f"{text} in one request") for text in together(held, profile.tool_schema)]
    return Report(model=label, tools=reports, findings=tuple(_of_all(specs, profile) + findings))


def _profile(model: str | Profile) -> tuple[Profile, str]:
    if isinstance(model, Profile):
        return model, model.provider
    provider, name = split_model(model)
    return profile_of(provider, name), f"{provider}:{name}"


def _of_all(specs: list[ToolSpec], profile: Profile) -> list[Finding]:
    most = profile.tool_limits.max_tools
    if specs and not profile.tools:
        return [Finding("error", "tools", "this model takes no tools")]
    if most is not None and len(specs) > most:
        return [Finding("error", "tools", f"there are {len(specs)}, at most {most} are allowed")]
    return []


def _names(specs: list[ToolSpec], profile: Profile) -> tuple[dict[str, str], list[Finding]]:
    try:
        return dict(ToolNames([spec.name for spec in specs], profile.tool_limits).to_wire), []
    except ConfigurationError as error:
        return {}, [Finding("error", "name", error.message)]


def _converted(spec: ToolSpec, profile: Profile) -> Conversion | ToolDefinitionError:
    try:
        return convert(spec.schema, profile.tool_schema, strict=_wants_strict(spec, profile))
    except ToolDefinitionError as error:
        return error


def _wants_strict(spec: ToolSpec, profile: Profile) -> bool:
    return spec.strict is True and profile.strict_tools


def _report(
    spec: ToolSpec, profile: Profile, wire_name: str, done: Conversion | ToolDefinitionError, *, repeated: bool
) -> ToolReport:
    found: list[Finding] = []
    if repeated:
        found.append(Finding("error", "name", "another tool has the same one"))
    if wire_name != spec.name:
        found.append(Finding("rewrite", "name", f"sent as {wire_name!r}"))
    if changed := describe_tool(spec, profile)[1]:
        found.append(Finding("rewrite", "description", changed))
    if spec.strict and not profile.strict_tools:
        found.append(Finding("rewrite", "strict", "left out, this model does not support it"))
    if isinstance(done, ToolDefinitionError):
        found.append(Finding("error", "schema", done.message))
        return ToolReport(tool=spec.name, wire_name=wire_name, findings=tuple(found))
    found.extend(Finding("rewrite", "strict", f"left out because of {reason}") for reason in done.reasons)
    found.extend(Finding("rewrite", "schema", str(note)) for note in done.notes)
    strict = _wants_strict(spec, profile) and not done.reasons
    return ToolReport(tool=spec.name, wire_name=wire_name, schema=done.schema, strict=strict, findings=tuple(found))
