"""Types that belong to pydantic: models, its dataclasses, and hints with its validators.

Owns: the one way to pydantic. It is never imported here: a user whose hints need it has imported it.
Must not know: other kinds of nodes.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from dragoman.tools.arguments.json_values import kind_of, shown
from dragoman.tools.arguments.problems import MismatchError, Problem, missing
from dragoman.tools.arguments.schemas import Definitions, Schema, without_titles

from .node import Node, UnsupportedError
from .resolve import class_of
from .scalars import ALL_KINDS

__all__ = ["PydanticType", "belongs_to_pydantic"]


def belongs_to_pydantic(hint: object) -> bool:
    """Whether a class says by itself how pydantic reads it."""
    cls = class_of(hint)
    if cls is None:
        return False
    return hasattr(cls, "__get_pydantic_core_schema__") or "__pydantic_validator__" in vars(cls)


class PydanticType(Node):
    """Whatever pydantic reads, by pydantic's rules: the user's model says how strict it is."""

    verbatim = False
    hashable = None

    def __init__(self, hint: object) -> None:
        pydantic = cast("Any", sys.modules.get("pydantic"))
        if pydantic is None:
            raise UnsupportedError(f"{hint!r} belongs to pydantic, which is not imported", "Import pydantic.")
        try:
            self._adapter: Any = pydantic.TypeAdapter(hint)
            self._schema: Schema = without_titles(self._adapter.json_schema())
        except Exception as error:  # noqa: BLE001 -- pydantic has many, some of them plain NameErrors
            reason = str(error).splitlines()[0]
            raise UnsupportedError(f"pydantic cannot express it: {reason}", "Correct the model.") from None
        kind = "object" if "$ref" in self._schema else self._schema.get("type")
        self.kinds: frozenset[str] = frozenset({kind}) if isinstance(kind, str) else ALL_KINDS
        self.expected: str = kind if isinstance(kind, str) else "a value that fits its schema"

    def schema(self, definitions: Definitions) -> Schema:
        return definitions.adopt(self._schema)

    def read(self, value: object, lenient: bool) -> object:
        to_json: Any = sys.modules["pydantic_core"].to_json
        try:
            # As JSON: strict models take a date from text only when it comes from JSON.
            return self._adapter.validate_json(to_json(value))
        except Exception as error:  # noqa: BLE001 -- validators are the user's code
            raise MismatchError(_problems(error)) from None


def _problems(error: Exception) -> list[Problem]:
    if not hasattr(error, "errors"):
        return [Problem((), str(error) or type(error).__name__)]
    found: list[Problem] = []
    for item in cast("Any", error).errors(include_url=False, include_context=False):
        path = tuple(step for step in cast("tuple[str | int, ...]", item["loc"]))
        text = str(item["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
        if item["type"] == "missing":
            text = missing("a value")
        elif item["type"] == "extra_forbidden":
            text = "unknown field"
        else:
            text = f"{text}, got {kind_of(item['input'])} {shown(item['input'])}"
        found.append(Problem(path, text))
    return found
