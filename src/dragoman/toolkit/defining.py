"""How the ready tools are defined: as ordinary tools, with the documented words for an argument that is missing.

Owns: `ready`, the decorator of all tools here.
Must not know: what any of them does.

The tool layer refuses a call that does not fit the schema before the function runs. Its words are good and general; the
ready tools promise `missing X argument`, so the refusal is worded here. All other problems keep the tool layer's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar, Unpack, cast

import msgspec

from dragoman.errors import ToolValidationError
from dragoman.tools.arguments.problems import Problem, one_line
from dragoman.tools.arguments.reader import Arguments, InvalidArguments
from dragoman.tools.definition import Tool, ToolSettings

__all__ = ["ready"]

P = ParamSpec("P")
R = TypeVar("R")


def ready(*, filled: Iterable[str] = (), **settings: Unpack[ToolSettings]) -> Callable[[Callable[P, R]], Tool[P, R]]:
    """`@tool`, with `missing X argument` for each argument that is required and not there.

    The arguments in `filled` must be more than an empty text.
    """
    names = tuple(filled)

    def define(function: Callable[P, R]) -> Tool[P, R]:
        made = cast("Tool[P, R]", Tool.from_function(function, **settings))
        return msgspec.structs.replace(made, arguments=_worded(made.name, made.arguments, names))

    return define


def _worded(tool_name: str, arguments: Arguments, filled: tuple[str, ...]) -> Arguments:
    required = cast("list[str]", arguments.schema.get("required", []))

    def complete(decoded: object) -> object:
        empty = [name for name in filled if not getattr(decoded, name)]
        if empty:
            raise _missing(tool_name, empty)
        return decoded

    def decode(text: str) -> object:
        return complete(arguments.decode(text))

    def recover(text: str) -> object:
        try:
            decoded = arguments.recover(text)
        except InvalidArguments as error:
            absent = _absent(text, required)
            others = [problem for problem in error.problems if problem.path[:1] not in {(name,) for name in absent}]
            if not absent:
                raise
            raise _missing(tool_name, absent, others) from None
        return complete(decoded)

    return msgspec.structs.replace(arguments, decode=decode, recover=recover)


def _absent(text: str, required: Iterable[str]) -> list[str]:
    """The required arguments that are not there; null is not there either."""
    try:
        given: object = msgspec.json.decode(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return []
    if not isinstance(given, dict):
        return []
    found = cast("dict[str, object]", given)
    return [name for name in required if found.get(name) is None]


def _missing(tool_name: str, names: Iterable[str], others: Iterable[Problem] = ()) -> ToolValidationError:
    problems = list(others)
    message = "; ".join(f"missing {name} argument" for name in names)
    if problems:
        message = f"{message}; {one_line(problems)}"
    return ToolValidationError(message, tool_name=tool_name, hint="")
