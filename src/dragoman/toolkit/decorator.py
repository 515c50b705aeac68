"""`@ready`, with which the ready tools are defined.

Models leave arguments out, or send them empty. The ready tools answer with `missing X argument`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack, cast

import msgspec
from msgspec import Raw, structs

from dragoman.conversation import ToolSpec
from dragoman.errors import ToolValidationError
from dragoman.tools import Tool, ToolSettings

R = TypeVar("R")


def ready(*, needs: Sequence[str] = (), **settings: Unpack[ToolSettings]) -> Callable[[Callable[..., R]], Tool[..., R]]:
    """`@tool` for a function that takes its arguments by name.

    The arguments in `needs` must be more than an empty text. In the function they have an empty default; the model is
    told that they are required.
    """

    def define(function: Callable[..., R]) -> Tool[..., R]:
        @functools.wraps(function)
        def checked(*context: object, **arguments: object) -> R:
            missing = [f"missing {name} argument" for name in needs if not arguments.get(name)]
            if missing:
                raise ToolValidationError("; ".join(missing), tool_name=settings.get("name", ""), hint="")
            return function(*context, **arguments)

        made = cast("Tool[..., R]", Tool.from_function(checked, **settings))
        return structs.replace(made, spec=_requiring(made.spec, needs))

    return define


def _requiring(spec: ToolSpec, needs: Sequence[str]) -> ToolSpec:
    """What the model is told of a tool, with these arguments among those that it must give."""
    schema: dict[str, Any] = msgspec.json.decode(spec.parameters)
    for name in needs:
        schema["properties"][name].pop("default", None)
    known = {*schema.get("required", ()), *needs}
    if known:
        schema["required"] = [name for name in schema["properties"] if name in known]
    return structs.replace(spec, parameters=Raw(msgspec.json.encode(schema)))
