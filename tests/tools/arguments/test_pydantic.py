"""Models of pydantic, its Field, and its validators."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any, Literal, TypeVar

import pydantic
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from dragoman.errors import ToolDefinitionError
from dragoman.tools import InvalidArguments, decoder_of_type, schema_of_type, tool
from tests.tools.cases import arguments_of, values_of

STRING = {"type": "string"}

T = TypeVar("T")


def problem(hint: object, text: str) -> str:
    with pytest.raises(InvalidArguments) as caught:
        decoder_of_type(hint)(text)
    return str(caught.value)


class Address(BaseModel):
    """Where somebody lives."""

    model_config = ConfigDict(extra="forbid")

    street: str = Field(description="With the number.")
    zip_code: str = Field(alias="zipCode", pattern="^[0-9]+$")


class Person(BaseModel):
    name: str
    homes: list[Address] = []
    boss: Person | None = None


class Even(BaseModel):
    value: int

    @pydantic.field_validator("value")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        if value == 0:
            raise KeyError("zero")
        return value


ADDRESS = {
    "additionalProperties": False,
    "description": "Where somebody lives.",
    "properties": {
        "street": {"description": "With the number.", "type": "string"},
        "zipCode": {"pattern": "^[0-9]+$", "type": "string"},
    },
    "required": ["street", "zipCode"],
    "type": "object",
}


def test_a_recursive_model_moves_its_definitions_to_the_root() -> None:
    def tool(person: Person, address: Address | None = None) -> None: ...

    schema: Any = arguments_of(tool).schema
    assert schema["properties"]["person"] == {"$ref": "#/$defs/Person"}
    person = schema["$defs"]["Person"]
    assert person["properties"]["boss"]["anyOf"][0] == {"$ref": "#/$defs/Person"}
    assert person["properties"]["homes"]["items"] == {"$ref": "#/$defs/Address"}
    assert schema["$defs"] == {"Person": person, "Address": ADDRESS}
    assert schema["properties"]["address"]["anyOf"][0] == ADDRESS
    assert "title" not in json.dumps(schema)
    decoded = decoder_of_type(Address)('{"street": "Main 1", "zipCode": "12345"}')
    assert decoded == Address(street="Main 1", zipCode="12345")


def test_models_of_the_same_name_are_kept_apart() -> None:
    boxes = [
        pydantic.create_model("Box", item=(pydantic.create_model("Item", value=(kind, ...)), ...))
        for kind in (int, str)
    ]

    def tool(one: Any, other: Any) -> None: ...

    tool.__annotations__.update(one=boxes[0], other=boxes[1])
    definitions: Any = arguments_of(tool).schema["$defs"]
    kinds = {name: each["properties"]["value"]["type"] for name, each in definitions.items()}
    assert kinds == {"Item": "integer", "_Item": "string"}


def test_problems_of_models() -> None:
    assert problem(Person, '{"name": 1, "homes": [{"streets": "x", "zipCode": "1"}]}') == (
        "name: expected string, got integer 1; homes[0].streets: unknown field; did you mean street?; "
        "homes[0].street: expected string, but it is missing"
    )
    assert problem(list[Even], '[{"value": 3}]') == "[0].value: must be even, got integer 3"
    assert problem(Even, '{"value": 0}') == "'zero'"
    assert problem(Person, "[]").startswith("expected object, got array []")


def test_field_beside_a_type() -> None:
    hint = Annotated[int, Field(ge=1, le=5, description="Stars.", examples=[3], json_schema_extra={"x-a": 1})]
    limits = {"type": "integer", "minimum": 1, "maximum": 5}
    assert schema_of_type(hint) == {**limits, "description": "Stars.", "examples": [3], "x-a": 1}
    assert problem(hint, "6") == "integer 6 is greater than the maximum of 5"
    assert schema_of_type(Annotated[str, Field(pattern="^a", min_length=2)]) == {
        **STRING,
        "minLength": 2,
        "pattern": "^a",
    }
    said = problem(Annotated[str, StringConstraints(pattern="^a")], '"b"')
    assert said == 'string "b" does not match "^a"'


def test_field_as_a_default_and_a_default_beside_a_type() -> None:
    def tool(
        name: str = Field(...),
        stars: int = Field(5, ge=1, description="How good."),
        tags: list[str] = Field(default_factory=list),  # noqa: B008 -- this is how pydantic's users write it
        *,
        rooms: Annotated[int, Field(default=2, ge=1)],
        views: Annotated[list[str], Field(default_factory=list)],
    ) -> None: ...

    arguments = arguments_of(tool)
    assert arguments.schema["properties"] == {
        "name": STRING,
        "stars": {"type": "integer", "minimum": 1, "description": "How good.", "default": 5},
        "tags": {"type": "array", "items": STRING, "default": []},
        "rooms": {"type": "integer", "minimum": 1, "default": 2},
        "views": {"type": "array", "items": STRING, "default": []},
    }
    assert arguments.schema["required"] == ["name"]
    first, second = values_of(arguments, '{"name": "a"}'), values_of(arguments, '{"name": "a", "stars": null}')
    assert first == second == ("a", 5, [], 2, [])
    assert first[4] is not second[4]


def test_validators_run_in_pydantic() -> None:
    doubled = Annotated[int, AfterValidator(lambda value: value * 2), "Twice."]
    assert schema_of_type(doubled) == {"type": "integer", "description": "Twice."}
    assert decoder_of_type(doubled)("2") == 4
    assert decoder_of_type(Annotated[str, StringConstraints(to_upper=True)])('"a"') == "A"

    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    pet = Annotated[Cat | Dog, Field(discriminator="kind")]
    assert decoder_of_type(pet)('{"kind": "dog"}') == Dog(kind="dog")
    assert decoder_of_type(pydantic.SecretStr)('"a"') == pydantic.SecretStr("a")
    assert schema_of_type(pydantic.PositiveInt) == {"type": "integer", "exclusiveMinimum": 0}


class Broken(BaseModel):
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821 -- that is the point


def test_an_incomplete_model_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="pydantic cannot express it"):
        schema_of_type(Broken)


def test_pydantic_is_not_imported_without_need() -> None:
    program = (
        "import sys\n"
        "from dragoman.tools import Tool\n"
        "def tool(a: int, b: list[str]): ...\n"
        "Tool.from_function(tool)\n"
        "assert not {'pydantic', 'annotated_types', 'jsonschema_rs'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_alias_of_a_parameter_is_refused() -> None:
    def annotated(city: Annotated[str, Field(alias="town")]) -> None: ...
    def by_default(city: str = Field("Rome", validation_alias="town")) -> None: ...
    def inside(cities: list[Annotated[str, Field(serialization_alias="town")]]) -> None: ...

    for function in (annotated, by_default, inside):
        with pytest.raises(ToolDefinitionError, match="cannot have an alias") as caught:
            tool(function)
        assert "Give the parameter the name" in str(caught.value.hint)
