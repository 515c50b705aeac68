"""The index over many tools, and `find_tools` on its own."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import Conversation, Json, Message, OneTool, ToolCall, ToolResult, ToolSpec
from dragoman.errors import ToolConflictError
from dragoman.tools import (
    FIND_TOOLS,
    AnyTool,
    Tool,
    ToolConfig,
    ToolExecutor,
    ToolIndex,
    ToolRegistry,
    ToolRun,
    many_tools,
    tool,
)

names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
specs = st.builds(
    lambda name, description, parameters, tags: ToolSpec(
        name=name,
        description=description,
        parameters=msgspec.Raw(json.dumps({"properties": {each: {} for each in parameters}}).encode()),
        tags=tuple(tags),
    ),
    names,
    st.text(max_size=60),
    st.lists(names, max_size=3),
    st.lists(names, max_size=2),
)


def made(name: str, description: str = "", **parameters: Any) -> AnyTool:
    schema = {"type": "object", "properties": parameters}
    return Tool.from_schema(lambda **_: f"{name} done", schema, name=name, description=description)


DESK = [
    made("github_create_issue", "Open an issue in a repository.", repository={"type": "string"}),
    made("github_list_issues", "The issues of a repository.", repository={"type": "string"}),
    made("jira_create_ticket", "Open a ticket.", assignee={"type": "string"}),
    made("sendMail", "Write to somebody.\nLong story.", recipient={"type": "string"}),
    made("查询天气", "查询某个城市的天气预报"),
    made("translate", "Put a text into another language."),
]
MANY = ToolConfig(search=3)


def find(executor: ToolExecutor, query: str, run: ToolRun | None = None, **more: Any) -> ToolResult:
    return executor.execute(ToolCall("c1", FIND_TOOLS, json.dumps({"query": query, **more})), run)


# --- the index -------------------------------------------------------------------------------------------------------


@given(st.lists(specs, max_size=8, unique_by=lambda spec: spec.name), st.text(max_size=40))
def test_every_tool_is_found_first_by_its_name(all: list[ToolSpec], query: str) -> None:
    index = ToolIndex(all)
    found = index.search(query)
    assert len(set(found)) == len(found)
    assert {spec.name for spec in all}.issuperset(found)
    for spec in all:
        assert index.search(spec.name)[0] == spec.name
        assert spec.name in index.search(f"please use {spec.name} now")


def test_an_odd_schema_is_harmless() -> None:
    odd = ToolSpec(name="odd", parameters=msgspec.Raw(b'{"properties": [1, 2]}'))
    assert ToolIndex([odd]).search("odd") == ["odd"]
    assert ToolIndex([]).search("anything") == []


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create an issue on GitHub", "github_create_issue"),
        ("listing issues", "github_list_issues"),  # whatever the endings of words
        ("mail", "sendMail"),
        ("who is the recipient", "sendMail"),  # the name of a parameter
        ("assignees", "jira_create_ticket"),
        ("language", "translate"),
        ("trans", "translate"),  # a part of a name, where no word fits
        ("天气预报", "查询天气"),
        ("jira_create_ticket", "jira_create_ticket"),
    ],
)
def test_tools_are_found_by_words(query: str, first: str) -> None:
    assert ToolIndex([each.spec for each in DESK]).search(query)[0] == first


# --- find_tools ------------------------------------------------------------------------------------------------------


def test_the_result_has_a_line_for_each_tool_and_data() -> None:
    with ToolExecutor(DESK, MANY) as executor:
        result = find(executor, "open an issue or write a mail", limit=3)
    assert not result.is_error
    head, *lines = result.text.splitlines()
    assert "from now on" in head
    assert "- sendMail: Write to somebody." in lines
    assert "- github_create_issue: Open an issue in a repository." in lines
    assert len(lines) == 3
    assert result.value == {"found": [line.split()[1].rstrip(":") for line in lines]}


@pytest.mark.parametrize("query", ["", "  ", "xyzzy", "!?"])
def test_a_query_without_matches_lists_the_kinds_of_tools(query: str) -> None:
    with ToolExecutor(DESK, MANY) as executor:
        result = find(executor, query)
    assert not result.is_error
    assert "6 tools" in result.text
    assert "github (2)" in result.text
    assert result.value == {"found": []}


def test_tools_already_offered_are_not_found_again() -> None:
    config = ToolConfig(search=3, always_offered=["sendMail"])
    with ToolExecutor(DESK, config) as executor:
        first = find(executor, "translate")
        talk = Conversation().plus(Message.user("Hi"), Message.assistant(ToolCall("c1", FIND_TOOLS, "{}")))
        run = ToolRun(conversation=talk.plus(Message.tool([first])))
        again = find(executor, "translate", run)
        assert (again.text, again.value) == ("You have these already: translate.", {"found": []})
        assert find(executor, "sendMail").text == "You have these already: sendMail."


def test_arguments_are_validated() -> None:
    with ToolExecutor(DESK, MANY) as executor:
        assert find(executor, "mail", limit=0).error_type == "validation"
        assert executor.execute(ToolCall("c1", FIND_TOOLS, "{}")).error_type == "validation"


def test_few_tools_are_not_searched() -> None:
    with ToolExecutor(DESK, ToolConfig(search=6)) as executor:
        assert find(executor, "mail").error_type == "not_found"
        assert executor.execute(ToolCall("1", "translate", "{}")).text == "translate done"


def test_disallowed_tools_are_neither_found_nor_run() -> None:
    config = ToolConfig(search=1, allowed_tools=["translate", "sendMail"])
    with ToolExecutor(DESK, config) as executor:
        assert find(executor, "issue").value == {"found": []}
        assert find(executor, "mail").value == {"found": ["sendMail"]}
        assert executor.execute(ToolCall("1", "github_list_issues", "{}")).error_type == "not_found"


def test_a_user_tool_named_find_tools() -> None:
    @tool(name=FIND_TOOLS)
    def mine() -> str:
        """Mine."""
        return "mine"

    with ToolExecutor([mine, *DESK], ToolConfig(allowed_tools=["translate"])) as executor:
        assert executor.execute(ToolCall("1", FIND_TOOLS, "{}")).error_type == "not_found"
    with ToolExecutor([mine, *DESK], MANY) as executor, pytest.raises(ToolConflictError, match="find_tools"):
        executor.execute(ToolCall("1", FIND_TOOLS, "{}"))


# --- what is offered -------------------------------------------------------------------------------------------------


def offered(
    tools: ToolRegistry, config: ToolConfig, *found: tuple[str, ...], searched: int = 0, choice: Any = "auto"
) -> tuple[ToolSpec, ...]:
    """What is offered after these searches."""
    many = many_tools(tools, config)
    assert many is not None
    talk = Conversation().plus(Message.user("Hi"))
    for number, names in enumerate(found):
        call, kept = ToolCall(f"c{number}", FIND_TOOLS, "{}"), Json(msgspec.Raw(json.dumps({"found": names}).encode()))
        result = ToolResult(call.id, FIND_TOOLS, (), structured=kept)
        talk = talk.plus(Message.assistant(call), Message.tool([result]))
    return many.offer(talk, choice, searched)


def test_found_tools_come_after_those_offered_before() -> None:
    tools, config = ToolRegistry(DESK), ToolConfig(search=0, always_offered=["translate"])
    assert [spec.name for spec in offered(tools, config)] == ["translate", FIND_TOOLS]
    before = offered(tools, config, ("sendMail",))
    after = offered(tools, config, ("sendMail",), ("github_list_issues", "sendMail", "gone"), ("translate",))
    assert [spec.name for spec in after] == ["translate", FIND_TOOLS, "sendMail", "github_list_issues"]
    assert all(one is other for one, other in zip(before, after, strict=False))
    assert offered(tools, config, ("sendMail",)) is before  # caches know a list by what it holds


def test_a_tool_that_must_be_called_is_offered() -> None:
    told = offered(ToolRegistry(DESK), MANY, choice=OneTool(name="sendMail"))
    assert [spec.name for spec in told] == ["sendMail", FIND_TOOLS]


def test_a_provider_that_searches_itself_gets_all() -> None:
    config = ToolConfig(search=3, always_offered=["translate"])
    told = offered(ToolRegistry(DESK), config, ("sendMail",), searched=6)
    assert [spec.name for spec in told if not spec.deferred] == ["translate", "sendMail"]
    assert [spec.name for spec in told[2:]] == [
        "github_create_issue", "github_list_issues", "jira_create_ticket", "查询天气",
    ]  # fmt: skip
    assert FIND_TOOLS in [spec.name for spec in offered(ToolRegistry(DESK), config, searched=5)]  # too many for it


def test_the_description_lists_the_number_and_kinds_of_tools() -> None:
    many = [made(f"github_{number}") for number in range(900)] + [made(f"mail-{number}") for number in range(100)]
    finder = offered(ToolRegistry(many), MANY)[0]
    assert "1,000 tools, of these kinds: github (900), mail (100)." in finder.description
    tagged = [Tool.from_schema(lambda: "", name=f"t{number}", tags=["money"]) for number in range(9)]
    assert "9 tools, of these kinds: money (9)." in offered(ToolRegistry(tagged), MANY)[0].description


def test_a_changed_registry_is_searched_anew() -> None:
    registry = ToolRegistry(DESK)
    with ToolExecutor(registry, MANY) as executor:
        assert find(executor, "weather report").value == {"found": []}
        registry.register(made("weather", "A report."))
        assert find(executor, "weather report").value == {"found": ["weather"]}
