"""Check that a value matches a TypedDict of an official SDK exactly, without unknown members.

pydantic would leave every `Iterable` unread and every TypedDict open, so this walks the types itself.
"""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Required, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

_NUMBERS = (int, float)


def problems(value: object, expected: Any, where: str = "$") -> list[str]:
    """What does not fit, a line each; empty if all does."""
    if expected is Any or expected is object:
        return []
    if is_typeddict(expected):
        return _problems_of_typeddict(value, expected, where)
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        attempts: list[list[str]] = []
        for one in arguments:
            attempts.append(problems(value, one, where))
            if not attempts[-1]:
                return []
        return min(attempts, key=len)
    if origin is Literal:
        return [] if value in arguments else [f"{where}: {value!r} is none of {arguments}"]
    if origin in (Required, Annotated):
        return problems(value, arguments[0], where)
    if origin in (collections.abc.Iterable, collections.abc.Sequence, list) or "SequenceNotStr" in str(origin):
        return _problems_of_elements(value, arguments[0], where)
    if origin in (dict, collections.abc.Mapping):
        return _problems_of_values(value, arguments[1], where)
    if expected is float:
        fits = isinstance(value, _NUMBERS) and not isinstance(value, bool)
    elif isinstance(expected, type):
        fits = isinstance(value, expected) and not (expected is int and isinstance(value, bool))
    else:
        return [f"{where}: cannot check {expected!r}"]
    return [] if fits else [f"{where}: {value!r} is no {expected.__name__}"]


def _problems_of_typeddict(value: object, expected: Any, where: str) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{where}: {value!r} is no object"]
    hints = _hints_of(expected)
    found = [f"{where}: {name!r} is unknown to {expected.__name__}" for name in value if name not in hints]
    for name, hint in hints.items():
        if name in value:
            found += problems(value[name], hint, f"{where}.{name}")
        elif get_origin(hint) is Required:
            found.append(f"{where}: {name!r} is missing from {expected.__name__}")
    return found


@cache
def _hints_of(expected: Any) -> dict[str, Any]:
    return get_type_hints(expected, include_extras=True)


def _problems_of_elements(value: object, expected: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        return [f"{where}: {value!r} is no array"]
    return [line for at, one in enumerate(value) for line in problems(one, expected, f"{where}[{at}]")]


def _problems_of_values(value: object, expected: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    return [line for name, one in value.items() for line in problems(one, expected, f"{where}.{name}")]
