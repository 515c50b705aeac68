from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dragoman.conversation import ToolCall, ToolExample
from dragoman.errors import ConfigurationError, ToolDefinitionError
from dragoman.tools import Tool, ToolContext, ToolExecutor, ToolRegistry, tool, tools_of


def weather(city: str, days: int = 1) -> str:
    """Say how the weather will be.

    Args:
        city: Where to look.
        days: How far ahead.
    """
    return f"{city}: sunny for {days}"


def run(defined: Tool[..., Any], arguments: str = "") -> str:
    with ToolExecutor([defined]) as executor:
        return executor.execute(ToolCall("1", defined.name, arguments)).text


def test_a_tool_from_a_function() -> None:
    made = tool(weather)
    assert (made.name, made.description) == ("weather", "Say how the weather will be.")
    assert made.spec.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to look."},
            "days": {"type": "integer", "description": "How far ahead.", "default": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert run(made, '{"city": "Lyon"}') == "Lyon: sunny for 1"


def test_settings_of_the_decorator() -> None:
    example = ToolExample(input={"city": "Lyon"}, output="sunny")

    @tool(
        name="forecast",
        description="Look ahead.",
        strict=True,
        examples=[example],
        tags=["outdoor"],
        version="2",
        timeout=3,
        retries=1,
        budget=5,
        requires_approval=True,
        read_only=True,
        idempotent=True,
    )
    def whatever(city: str) -> str:
        """Not this text."""
        return city

    assert (whatever.name, whatever.description) == ("forecast", "Look ahead.")
    spec = whatever.spec
    assert (spec.strict, spec.examples, spec.tags, spec.version) == (True, (example,), ("outdoor",), "2")
    assert msgspec.structs.astuple(whatever.options) == (3, 1, 5, True, True, True)


def test_the_context_is_not_part_of_the_schema() -> None:
    @tool
    def who(context: ToolContext[dict[str, str]], formal: bool = False) -> str:
        return f"{context.tool_name} {context.call_id} {formal}"

    assert list(who.spec.schema["properties"]) == ["formal"]  # type: ignore[call-overload]
    assert run(who, '{"formal": true}') == "who 1 True"


class Counter:
    def __init__(self) -> None:
        self.count = 0

    @tool
    def add(self, amount: int) -> int:
        """Count further."""
        self.count += amount
        return self.count

    @tool(name="read_count")
    def read(self, context: ToolContext[None]) -> str:
        return f"{self.count} {context.call_id}"

    def plain(self, text: str) -> str:
        """Nothing special."""
        return text * 2


def test_tools_of_an_object_are_bound_to_it() -> None:
    one, other = Counter(), Counter()
    add, read = tools_of(one)
    assert [add.name, read.name] == ["add", "read_count"]
    assert run(add, '{"amount": 3}') == "3"
    assert run(one.add, '{"amount": 2}') == "5"
    assert run(read) == "5 1"
    assert other.count == 0
    assert one.add(1) == 6
    assert list(add.spec.schema["properties"]) == ["amount"]  # type: ignore[call-overload]


def test_a_tool_from_a_json_schema_with_defaults() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "default": 5},
            "tags": {"type": "array", "default": []},
            "own": {"default": 1},
        },
    }

    def give(n: int, tags: list[int], own: int = 2) -> str:
        tags.append(n)
        return f"{n} {tags} {own}"

    made = Tool.from_schema(give, schema)
    assert made.spec.schema == schema
    assert "expected integer" in run(made, '{"n": "x"}')
    assert [run(made, "{}"), run(made, ""), run(made, '{"n": null}')] == ["5 [5] 2"] * 3  # a new list each time
    assert run(made, '{"n": 3, "own": 4}') == "3 [3] 4"
    assert run(Tool.from_schema(lambda **given: given, schema, name="all"), "{}") == "{}"  # it has its own idea


def late(a: int, context: ToolContext[None]) -> None: ...
def vague(thing) -> None: ...  # type: ignore[no-untyped-def]


Define = Callable[[], object]


@pytest.mark.parametrize(
    ("define", "message", "name"),
    [
        (lambda: tool(late), "'context'.*not the first.*first parameter", "late"),
        (lambda: tool(vague), "thing", "vague"),
        (lambda: tools_of(object()), "no method decorated with @tool.*Decorate", ""),
        (lambda: ToolRegistry([Counter.add]), r"registry\.register\(obj\.method\)", "add"),
        (lambda: Tool.from_schema(lambda: None, {"$ref": "https://h/x"}, name="far"), "another document", "far"),
        (lambda: tool(lambda: None), "A lambda has no name", ""),
        (lambda: tool(weather, budget=-1), "budget of ToolOptions does not fit.*Correct", "weather"),
    ],
)
def test_errors_name_the_tool_and_a_fix(define: Define, message: str, name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message) as caught:
        define()
    assert caught.value.tool_name == name


W: Any = weather
NOBODY_COULD_CALL = [" ", "a\nb", " a", "\x00", "a "]
SENSELESS = [{name: value} for name in ("timeout", "retries", "budget") for value in (-1, float("nan"), "5")]


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: tool(W, timout=3), "A tool has no setting 'timout'. Did you mean timeout?"),
        (lambda: Tool.from_schema(W, {}, timout=3), "no setting 'timout'"),  # type: ignore[call-arg]
        (lambda: ToolRegistry(tool=[W]), "ToolRegistry has no setting 'tool'. Did you mean tools?"),  # type: ignore[arg-type]
        (lambda: ToolExecutor(permision=W), "no setting 'permision'. Did you mean permission?"),  # type: ignore[arg-type]
        (lambda: ToolExecutor([W], {}), "config is a dict"),  # type: ignore[arg-type]
        (lambda: tool(W, tags="outdoor"), r"tags=\['outdoor'\]"),  # one text is not several
        (lambda: ToolRegistry([W]).filtered("weather"), r"filtered\(\['weather'\]\)"),
        *((lambda it=it: ToolRegistry([it]), "not a function") for it in (Counter, 3, "text", None)),
        *((lambda it=it: Tool.from_function(it), "not a function") for it in (Counter, 3, "text", None)),
        *((lambda it=it: tool(W).renamed(it), "cannot be the name") for it in NOBODY_COULD_CALL),
        *((lambda it=it: tool(W, name=it), "name") for it in NOBODY_COULD_CALL),
        *((lambda it=it: tool(W, **it), f"{next(iter(it))} of ToolOptions does not fit") for it in SENSELESS),
    ],
)
def test_invalid_settings_are_refused(define: Define, message: str) -> None:
    with pytest.raises((ToolDefinitionError, ConfigurationError), match=message):
        define()
