"""What other programs are told of a set of tools.

A tool as MCP's definition, and the check of structured results against what was promised there.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast, get_type_hints, is_typeddict

import mcp_types as types
import msgspec

from dragoman.conversation import Media, Text, ToolResult
from dragoman.conversation.values import Value
from dragoman.errors import ToolDefinitionError
from dragoman.tools.arguments.json_schema import Checker, compile_schema
from dragoman.tools.definition import AnyTool

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

    def promises(self, name: str) -> bool:
        """Whether the tool's results must have a structured value."""
        return name in self._checkers

    def broken_promise(self, name: str, value: object) -> str:
        """What is wrong with a structured value, or nothing."""
        problems = self._checkers[name].problems(value)
        return "; ".join(f"{'.'.join(map(str, each.path)) or 'the value'}: {each.text}" for each in problems)


def _describe(tool: AnyTool, about: ToolAbout, output: dict[str, object] | None) -> types.Tool:
    options = tool.options
    annotations = types.ToolAnnotations(
        title=about.title or None,
        read_only_hint=options.read_only,
        destructive_hint=False if options.read_only else about.destructive,
        idempotent_hint=options.idempotent or options.read_only,
        open_world_hint=about.open_world,
    )
    return types.Tool(
        name=tool.name,
        title=about.title or None,
        description=tool.description or None,
        input_schema=tool.spec.schema,
        output_schema=output,
        annotations=annotations,
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
        schema = _with_root(schema)
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


def _with_root(schema: dict[str, object]) -> dict[str, object]:
    """The same schema with its root written out, where that is a reference: MCP wants an object there."""
    reference, definitions = schema.get("$ref"), schema.get("$defs")
    if not isinstance(reference, str) or not isinstance(definitions, dict):
        return schema
    root = cast("dict[str, dict[str, object]]", definitions).get(reference.rpartition("/")[2], {})
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**root, **rest}
