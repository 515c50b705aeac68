"""Checks of tools against the rules of a provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import Profile, ToolLimits, check
from dragoman.providers.preflight import Finding
from dragoman.tools import Tool
from tests.providers.calls import encoded

PROFILE = Profile(
    provider="test",
    dialect="test",
    tool_schema="openai_strict",
    strict_tools=True,
    tool_limits=ToolLimits(max_tools=3, max_description_length=20),
)


def spec(name: str = "tool", schema: Any = None, **fields: Any) -> ToolSpec:
    fields["parameters"] = Raw(json.dumps(schema or {"type": "object", "properties": {}}).encode())
    return ToolSpec(name, **fields)


def only(*specs: ToolSpec, profile: Profile = PROFILE) -> tuple[Finding, ...]:
    """The findings of the first tool."""
    return check(specs, profile).tools[0].findings


def test_a_report_without_findings() -> None:
    report = check([spec("a"), spec("b", strict=True)], PROFILE)
    assert report.ok
    assert [tool.strict for tool in report.tools] == [False, True]
    assert str(report) == "test: 2 tools, none refused"
    assert str(check([], PROFILE)) == "test: 0 tools, none refused"


@pytest.mark.parametrize(
    ("specs", "finding"),
    [
        (
            [spec("a", description="x" * 21)],
            Finding("rewrite", "description", "21 characters, cut to the 20 that are allowed"),
        ),
        ([spec("files.read")], Finding("rewrite", "name", "sent as 'files_read'")),
        ([spec("a"), spec("a")], Finding("error", "name", "another tool has the same name")),
    ],
)
def test_findings_of_a_tool(specs: list[ToolSpec], finding: Finding) -> None:
    assert only(*specs) == (finding,)
    assert check(specs, PROFILE).ok == (finding.severity == "rewrite")


def test_refused_tools() -> None:
    (finding,) = only(spec("a", {"type": "object", "properties": {"x": {"$ref": "https://host/x"}}}))
    assert (finding.severity, finding.about) == ("error", "schema")
    assert "refers to another document" in finding.text
    for count, changes, about, text in (
        (4, {}, "tools", "there are 4, at most 3 are allowed"),
        (1, {"tools": False}, "tools", "this model takes no tools"),
        (1, {"tool_limits": ToolLimits(name_pattern="never")}, "name", "No legal name"),
    ):
        report = check([spec(f"t {i}") for i in range(count)], PROFILE.with_changes(**changes))
        assert (report.ok, report.findings[0].about) == (False, about)
        assert text in report.findings[0].text
    assert check([], PROFILE.with_changes(tools=False)).ok


def test_rewritten_schemas_are_reported() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "minLength": 1}}, "required": ["x"]}
    assert only(spec("a", schema)) == ()
    assert only(spec("a", schema, strict=True)) == (
        Finding("rewrite", "schema", "/properties/x/minLength: 1 is only in the description"),
    )
    free = {"type": "object", "properties": {"x": {}}}
    report = check([spec("a", free, strict=True)], PROFILE)
    assert report.tools[0].findings == (
        Finding("rewrite", "schema", "not strict: /properties/x: any value is allowed"),
    )
    assert report.tools[0].strict is False
    assert report.tools[0].schema == free
    assert only(spec("a", strict=True), profile=PROFILE.with_changes(strict_tools=False)) == (
        Finding("rewrite", "strict", "this model does not support it"),
    )


def test_check_and_encoder_count_strict_tools_alike() -> None:
    some = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2)}}
    needed = {**some, "required": [*some["properties"]]}
    for schema, most, why in (
        (needed, 20, "21 strict schemas, at most 20 are allowed in one request"),
        (some, 12, "26 optional properties, at most 24 are allowed in one request"),
    ):
        tools = tuple(spec(f"t{i}", schema, strict=True) for i in range(most + 2))
        model = "anthropic:claude-sonnet-4-5"
        report = check(tools, model)
        assert [tool.strict for tool in report.tools] == [True] * most + [False] * 2
        assert report.tools[most].findings == (Finding("rewrite", "strict", f"left out: {why}"),)
        done = encoded(model, tools=tools)
        assert [tool.get("strict", False) for tool in json.loads(done.request.body)["tools"]] == [
            tool.strict for tool in report.tools
        ]
        assert [one.what for one in done.adaptations] == [f"strict of tool 't{most + i}'" for i in range(2)]


def test_the_report_as_text() -> None:
    tools = [spec("fine"), spec("files.read", {"properties": {}}), spec("long", description="x" * 30), spec("more")]
    assert str(check(tools, PROFILE)).splitlines() == [
        "test: 4 tools, some refused",
        "  refused: tools: there are 4, at most 3 are allowed",
        '  files.read: rewritten: schema: /type: read as "object"',
        "  files.read: rewritten: name: sent as 'files_read'",
        "  long: rewritten: description: 30 characters, cut to the 20 that are allowed",
    ]


def test_tools_specs_and_models_by_name() -> None:
    def add(a: int, b: int = 0) -> int:
        """Add two numbers."""
        return a + b

    report = check([Tool.from_function(add), spec("other")], "gemini:gemini-2.5-flash")
    assert [tool.tool for tool in report.tools] == ["add", "other"]
    assert report.model == "gemini:gemini-2.5-flash"
    assert report.ok
    assert [check([], name).model for name in ("claude:x", "gpt-4o")] == ["anthropic:x", "openai:gpt-4o"]
    with pytest.raises(ConfigurationError, match="no provider"):
        check([], "nobody:x")
