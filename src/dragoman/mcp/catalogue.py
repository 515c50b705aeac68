"""The tools of a server, as other programs are told of them.

Structured results are checked against what was promised for the tool.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast, get_type_hints, is_typeddict

import mcp_types as types
import msgspec

from dragoman.conversation import Media, Text, ToolResult, Value
from dragoman.errors import ToolDefinitionError
from dragoman.tools import AnyTool, Checker, compile_schema

from .settings import ToolAbout, read_about

_OURS = (Value, ToolResult, Text, Media)


class Catalogue:
    """The tools of one moment, as they are listed."""

    def __init__(self, by_name: Mapping[str, AnyTool], about: Mapping[str, ToolAbout]) -> None:
        self.source: Mapping[str, AnyTool] = by_name
        self.tools: list[types.Tool] = []
        self._checkers: dict[str, Checker] = {}
        for name, tool in by_name.items():
            given = about.get(name) or read_about(tool)
            output = given.output_schema if given.output_schema is not None else _output_schema(tool)
            if output is not None:
                self._checkers[name] = compile_schema(output)
            self.tools.append(_describe(tool, given, output))

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The parameters of a tool, or None if there is none of that name."""
        tool = self.source.get(name)
        return None if tool is None else tool.spec.schema

    def broken_promise(self, name: str, value: object) -> str:
        """What is wrong with a structured value, given what was promised for the tool; or nothing."""
        checker = self._checkers.get(name)
        problems = () if checker is None else checker.problems(value)
        return "; ".join(map(str, problems))


def _describe(tool: AnyTool, about: ToolAbout, output: dict[str, object] | None) -> types.Tool:
    options = tool.options
    return types.Tool(
        name=tool.name,
        title=about.title or None,
        description=tool.description or None,
        input_schema=tool.spec.schema,
        output_schema=output,
        annotations=types.ToolAnnotations(
            title=about.title or None,
            read_only_hint=options.read_only,
            destructive_hint=False if options.read_only else about.destructive,
            idempotent_hint=options.idempotent or options.read_only,
            open_world_hint=about.open_world,
        ),
    )


def _output_schema(tool: AnyTool) -> dict[str, object] | None:
    """JSON Schema of what the function returns, where its return type names the fields; else None.

    Only where what is written is exactly what the type says: a plain dict promises nothing, and content blocks are not
    data.
    """
    hint = _return_hint(tool.function)
    if not isinstance(hint, type) or issubclass(hint, _OURS):
        return None
    hint = cast("type[Any]", hint)
    write = getattr(hint, "model_json_schema", None)  # pydantic's, without importing pydantic
    try:
        if callable(write):
            schema = cast("dict[str, object]", write(by_alias=False, mode="serialization"))
        elif dataclasses.is_dataclass(hint) or is_typeddict(hint) or issubclass(hint, msgspec.Struct):
            schema = cast("dict[str, object]", msgspec.json.schema(hint))
        else:
            return None
        definitions = cast("dict[str, dict[str, object]]", schema.get("$defs", {}))
        if isinstance(reference := schema.pop("$ref", None), str):  # MCP wants an object at the root
            schema = {**definitions.get(reference.rpartition("/")[2], {}), **schema}
        if schema.get("type") != "object":
            return None
        compile_schema(schema)
    except (TypeError, ValueError, RecursionError, ToolDefinitionError):  # a type that has no schema promises nothing
        return None
    return schema


def _return_hint(function: Callable[..., object]) -> object:
    inner: Any = function
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    try:
        return get_type_hints(inner).get("return")
    except Exception:  # noqa: BLE001 -- hints are foreign code: names that only type checkers know, and worse
        return None
