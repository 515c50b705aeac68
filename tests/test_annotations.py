"""Functions of people who let ruff move their imports under TYPE_CHECKING, and who write `def f[T]`.

Up to Python 3.13 such modules need the future import, and from 3.14 on they do not: the library reads both alike.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import ModuleType
from typing import Any

import mcp
import pytest

from dragoman import ChatClient, ToolCall, ToolExecutor, ToolRegistry
from dragoman.engines import ScriptedEngine
from dragoman.errors import ToolDefinitionError, ToolError
from dragoman.mcp import McpServer, Offer
from dragoman.tools import Tool, tool
from tests.mcp.server.doors import in_process, talk

FUTURE = "from __future__ import annotations\n"
SPELLINGS = [
    pytest.param(FUTURE, id="strings"),
    pytest.param(
        "", id="lazy", marks=pytest.mark.skipif(sys.version_info < (3, 14), reason="evaluated at once before 3.14")
    ),
]

CHECKED_ONLY = """
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import msgspec

from dragoman.errors import ToolError

if TYPE_CHECKING:
    from dragoman.loop import RunContext
    from dragoman.tools import ToolContext

    from .elsewhere import Order

def instructions(run: RunContext[Order]) -> str: return "Be brief."
def offer_tools(run: RunContext[Order]) -> list[Order]: return []
def with_context(context: ToolContext, size: int) -> str: return f"{context.call_id} {size}"
def with_order_context(context: ToolContext[Order], size: int) -> str: return f"{context.call_id} {size}"
async def only_returned(size: int) -> Order: return size
def handled(context: ToolContext, size: Order) -> Order: return f"{context.call_id} {size}"

@dataclass
class Weather:
    city: str

def weather(context: ToolContext) -> Weather: return Weather("Ulm")
def prompt(topic: str, order: Order = "") -> Order: return f"About {topic}"

@dataclass
class InDataclass:
    order: Order
class InTypedDict(TypedDict):
    order: Order
class InNamedTuple(NamedTuple):
    order: Order
class InStruct(msgspec.Struct):
    order: Order

def plain(order: Order) -> None: ...
def listed(order: list[Order]) -> None: ...
def optional(order: Order | None = None) -> None: ...
def a_dataclass(order: InDataclass) -> None: ...
def a_typed_dict(order: InTypedDict) -> None: ...
def a_named_tuple(order: InNamedTuple) -> None: ...
def a_struct(order: InStruct) -> None: ...

class OrderError(ToolError):
    order: Order
"""

REFUSED = ["plain", "listed", "optional", "a_dataclass", "a_typed_dict", "a_named_tuple", "a_struct"]

GENERIC = """
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.tools import tool

if TYPE_CHECKING:
    from .elsewhere import Order

type Pair[T] = tuple[T, T]

@dataclass
class Box[T]:
    value: T

    def put(self, value: T) -> T: return value
    @tool
    def decorated(self, value: list[T]) -> list[T]: return value

class Labelled[L](Box[int]):
    def label(self, label: L, value: Box[L]) -> None: ...

def bound[T: int](value: T) -> T: return value
def constrained[T: (int, str)](value: list[T]) -> T: return value[0]
def nested[T](value: Box[int], pair: Pair[int]) -> T: return value
def unknown[T: Order](value: T) -> T: return value
"""


def module(source: str) -> Generator[Any]:
    """A module with exactly this source: `exec` alone would lend it the future import of this one."""
    made = ModuleType("somebody.program")
    sys.modules[made.__name__] = made  # where the names of its classes are looked up
    exec(compile(source, made.__name__, "exec", dont_inherit=True), vars(made))
    yield made
    del sys.modules[made.__name__]


@pytest.fixture(params=SPELLINGS)
def program(request: pytest.FixtureRequest) -> Generator[Any]:
    yield from module(request.param + CHECKED_ONLY)


@pytest.fixture(params=["strings", "evaluated"])
def generic(request: pytest.FixtureRequest) -> Generator[Any]:
    if sys.version_info < (3, 12):
        pytest.skip("the syntax is of Python 3.12")
    yield from module((FUTURE if request.param == "strings" else "") + GENERIC)


def test_functions_of_the_run_context_are_instructions_and_tools(program: Any) -> None:
    with ChatClient(ScriptedEngine(["Yes."]), system=program.instructions, tools=program.offer_tools) as client:
        assert client.ask("Well?") == "Yes."


def test_a_tool_may_take_a_context_and_return_what_only_type_checkers_know(program: Any) -> None:
    tools = ToolRegistry(
        [
            program.with_context,
            program.with_order_context,
            Tool.from_function(program.only_returned),
            Tool.from_schema(program.handled, {"type": "object", "properties": {"size": {"type": "integer"}}}),
        ]
    )
    assert {frozenset(each.spec.schema["properties"]) for each in tools} == {frozenset({"size"})}
    with ToolExecutor(tools) as executor:
        texts = {each.name: executor.execute(ToolCall("c1", each.name, '{"size": 3}')).text for each in tools}
    assert texts == {"with_context": "c1 3", "with_order_context": "c1 3", "only_returned": "3", "handled": "c1 3"}


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_that_only_type_checkers_know_is_refused_with_its_name(program: Any, name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"'order' of .* the name Order in its annotation is not defined"):
        tool(getattr(program, name))


def test_an_error_of_ones_own_has_such_a_field(program: Any) -> None:
    assert program.OrderError("Sold out.", order=7).order == 7
    assert isinstance(program.OrderError("Sold out.", type="denied"), ToolError)
    with pytest.raises(TypeError, match="has no field 'price'"):
        program.OrderError("Sold out.", price=7)


def test_such_functions_are_served_over_mcp(program: Any) -> None:
    async def body(client: mcp.Client) -> None:
        (listed,) = (await client.list_tools()).tools
        assert listed.output_schema is not None
        assert (await client.call_tool("weather")).structured_content == {"city": "Ulm"}
        (prompt,) = (await client.list_prompts()).prompts
        assert [each.name for each in prompt.arguments or ()] == ["topic", "order"]
        (message,) = (await client.get_prompt("prompt", {"topic": "tea"})).messages
        assert getattr(message.content, "text", None) == "About tea"

    talk(McpServer([program.weather], prompts=[Offer("prompt", "", program.prompt)]), in_process, "legacy", body)


def test_type_parameters_are_known_where_annotations_are_strings(generic: Any) -> None:
    value: Any
    for function, value in {
        tool(generic.bound): {"type": "integer"},
        tool(generic.constrained): {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
        tool(generic.Box(1).put): {},
        generic.Box(1).decorated: {"type": "array"},
        tool(generic.Labelled(1).put): {},
        tool(generic.Labelled(1).label, name="label"): {
            "type": "object",
            "properties": {"value": {}},
            "required": ["value"],
            "additionalProperties": False,
        },
    }.items():
        assert function.spec.schema["properties"]["value"] == value, function.name
    nested = tool(generic.nested).spec.schema["properties"]
    assert nested["value"]["properties"] == {"value": {"type": "integer"}}
    assert nested["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "integer"}]


def test_a_bound_that_only_type_checkers_know_is_refused_with_its_name(generic: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"'value' of unknown\(\): the name Order in its annotation"):
        tool(generic.unknown)
