"""Values against the SDK's parameter types, with unknown keys forbidden and every list looked into.

pydantic takes TypedDicts as open and leaves `Iterable` unread, so this small checker does it instead.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import typing_extensions

_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)
_WRAPPERS = (typing.Required, typing.NotRequired, typing_extensions.Required, typing_extensions.NotRequired)


def problems(value: object, wanted: Any, at: str = "") -> Iterator[str]:
    """What does not fit, a line each."""
    if typing_extensions.is_typeddict(wanted):
        yield from _in_object(value, wanted, at)
        return
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in {Union, types.UnionType}:
        yield from _in_union(value, arguments, at)
    elif origin is typing.Annotated or origin in _WRAPPERS:
        yield from problems(value, arguments[0], at)
    elif origin is Literal:
        if value not in arguments:
            yield f"{at}: {value!r} is none of {arguments}"
    elif origin in _LISTS or _is_list_protocol(wanted):
        if not isinstance(value, list):
            yield f"{at}: {value!r} is no list"
            return
        for index, item in enumerate(value):
            yield from problems(item, arguments[0] if arguments else object, f"{at}[{index}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{at}: {value!r} is no object"
            return
        for key, item in value.items():
            yield from problems(item, arguments[1], f"{at}.{key}")
    elif wanted is object or wanted is Any:
        return
    elif wanted is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{at}: {value!r} is no number"
    elif wanted is int:
        if isinstance(value, bool) or not isinstance(value, int):
            yield f"{at}: {value!r} is no integer"
    elif wanted is None or wanted is type(None):
        if value is not None:
            yield f"{at}: {value!r} is not null"
    elif not isinstance(value, wanted):
        yield f"{at}: {value!r} is no {wanted}"


def _is_list_protocol(wanted: Any) -> bool:
    origin = get_origin(wanted) or wanted
    return getattr(origin, "__name__", "") == "SequenceNotStr"


def _in_union(value: object, members: tuple[Any, ...], at: str) -> Iterator[str]:
    found: list[list[str]] = []
    for member in members:
        wrong = list(problems(value, member, at))
        if not wrong:
            return
        found.append(wrong)
    yield from min(found, key=lambda wrong: (len(wrong), -max(len(line.split(":")[0]) for line in wrong)))


def _in_object(value: object, wanted: Any, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at}: {value!r} is no object"
        return
    hints, required = _members(wanted)
    for key in required - value.keys():
        yield f"{at}.{key}: missing in {wanted.__name__}"
    for key, item in value.items():
        if key not in hints:
            yield f"{at}.{key}: unknown in {wanted.__name__}"
        else:
            yield from problems(item, hints[key], f"{at}.{key}")


@cache
def _members(wanted: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The members of a TypedDict and those that it needs. `__required_keys__` cannot see through quoted annotations."""
    hints = typing_extensions.get_type_hints(wanted, include_extras=True)
    required = {name for name, hint in hints.items() if get_origin(hint) in _WRAPPERS[::2]}
    return hints, frozenset(required)
