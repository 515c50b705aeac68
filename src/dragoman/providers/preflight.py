"""Check tools against a provider's rules before anything is sent.

The report agrees with what an encoder does, since both use `declare_tool`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from dragoman.conversation import ToolSpec
from dragoman.errors import ConfigurationError, ToolDefinitionError

from .catalogue import profile_of, split_model
from .profile import Profile
from .requests import DeclaredTool, ToolNames, declare_tool

if TYPE_CHECKING:
    from dragoman.tools import AnyTool

Severity: TypeAlias = Literal["rewrite", "error"]
"""Sent in another form, or refused by the provider."""


class Finding(Struct, frozen=True):
    """One thing that would be rewritten or refused."""

    severity: Severity
    about: str
    """`name`, `description`, `schema`, `strict` or `tools`."""
    text: str

    def __str__(self) -> str:
        return f"{'refused' if self.severity == 'error' else 'rewritten'}: {self.about}: {self.text}"


class ToolReport(Struct, frozen=True, kw_only=True):
    """How one tool would be sent."""

    tool: str
    """Its own name."""
    wire_name: str
    """The name that is sent; replies are mapped back."""
    schema: dict[str, object] | None = None
    """The schema that is sent; None if it cannot be sent at all."""
    strict: bool = False
    """Whether the provider would enforce the schema."""
    findings: tuple[Finding, ...] = ()


class Report(Struct, frozen=True, kw_only=True):
    """Which tools a provider would refuse, and what would be rewritten."""

    model: str
    """`provider:model`, or only the provider if a profile was given."""
    tools: tuple[ToolReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    """About all tools together."""

    @property
    def ok(self) -> bool:
        """Whether nothing would be refused; something may be rewritten."""
        found = [*self.findings, *(finding for tool in self.tools for finding in tool.findings)]
        return all(finding.severity != "error" for finding in found)

    def __str__(self) -> str:
        lines = [f"{tool.tool}: {finding}" for tool in self.tools for finding in tool.findings]
        count = f"{self.model}: {len(self.tools)} tools, {'none refused' if self.ok else 'some refused'}"
        return "\n  ".join([count, *map(str, self.findings), *lines])


def check(tools: Iterable[ToolSpec | AnyTool], model: str | Profile) -> Report:
    """Report which of these tools a provider would refuse and what would be rewritten, without asking it.

    `model` is a name like `anthropic:claude-sonnet-4-5`, or a profile.
    """
    specs = [tool if isinstance(tool, ToolSpec) else tool.spec for tool in tools]
    if isinstance(model, Profile):
        profile, label = model, model.provider
    else:
        provider, name = split_model(model)
        profile, label = profile_of(provider, name), f"{provider}:{name}"
    findings: list[Finding] = []
    most = profile.tool_limits.max_tools
    if specs and not profile.tools:
        findings.append(Finding("error", "tools", "this model takes no tools"))
    elif most is not None and len(specs) > most:
        findings.append(Finding("error", "tools", f"there are {len(specs)}, at most {most} are allowed"))
    try:
        names = ToolNames([spec.name for spec in specs], profile.tool_limits)
    except ConfigurationError as error:
        return Report(model=label, findings=(*findings, Finding("error", "name", error.message)))
    times = Counter(spec.name for spec in specs)
    held: list[dict[str, object]] = []
    reports = [_report(spec, names, profile, held, repeated=times[spec.name] > 1) for spec in specs]
    return Report(model=label, tools=tuple(reports), findings=tuple(findings))


def _report(
    spec: ToolSpec, names: ToolNames, profile: Profile, held: list[dict[str, object]], *, repeated: bool
) -> ToolReport:
    twice = (Finding("error", "name", "another tool has the same name"),) if repeated else ()
    try:
        declared, _ = declare_tool(spec, names, profile, held, _write_nothing)
    except ToolDefinitionError as error:
        findings = (*twice, Finding("error", "schema", error.message))
        return ToolReport(tool=spec.name, wire_name=names.wire(spec.name), findings=findings)
    rewritten = [Finding("rewrite", note.what.partition(" ")[0], note.why) for note in declared.notes]
    return ToolReport(
        tool=spec.name,
        wire_name=declared.name,
        schema=declared.schema,
        strict=declared.strict,
        findings=(*twice, *rewritten),
    )


def _write_nothing(_declared: DeclaredTool) -> None:
    pass
