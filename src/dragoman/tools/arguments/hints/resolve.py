"""Hints as types: names written as text are looked up, type variables are filled in.

Owns: where a name in an annotation is looked up (module, closure, the function that is running around it).
Must not know: what the types mean.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, cast

from .node import UnsupportedError

__all__ = [
    "Scope",
    "class_hints",
    "class_of",
    "function_of",
    "resolve",
    "scope_of_alias",
    "scope_of_class",
    "scope_of_function",
]

Scope = tuple[dict[str, Any], dict[str, Any]]
"""The globals and the locals in which an annotation is evaluated."""


def resolve(annotation: object, scope: Scope) -> object:
    """The type that an annotation stands for."""
    # get_type_hints also finds the names inside list["Item"]; it wants a class or a function, so it gets a class.
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    try:
        return typing.get_type_hints(holder, *scope, include_extras=True)["it"]
    except NameError as error:
        raise UnsupportedError(
            f"the name {error.name or error} in its annotation is not defined",
            "Define or import it where the function is defined, before the tool is made; not only under TYPE_CHECKING.",
        ) from None
    except (SyntaxError, TypeError, AttributeError) as error:
        message = f"its annotation {annotation!r} cannot be evaluated: {error}"
        raise UnsupportedError(message, "Correct the annotation.") from None


def class_of(hint: object) -> type[Any] | None:
    """The class that a hint is, or that a generic hint is made of."""
    cls: Any = typing.get_origin(hint) or hint
    return cast("type[Any]", cls) if isinstance(cls, type) else None


def function_of(fn: Callable[..., object]) -> object:
    """The plain function inside a partial, a bound method, a decorated function or a callable object."""
    current: Any = fn
    while True:
        if isinstance(current, functools.partial):
            current = cast("functools.partial[object]", current).func
        elif inspect.ismethod(current):
            current = current.__func__
        elif hasattr(current, "__wrapped__"):
            current = current.__wrapped__
        elif inspect.isfunction(current) or inspect.isbuiltin(current):
            return current
        elif isinstance(current, type):
            return cast("Any", current).__init__
        else:
            call = cast("Any", type(current)).__call__
            if not inspect.isfunction(call):
                return current
            current = call


def scope_of_function(fn: Callable[..., object]) -> Scope:
    """Where the names in a function's annotations are looked up."""
    inner = function_of(fn)
    if not inspect.isfunction(inner):
        return vars(sys.modules.get(getattr(inner, "__module__", None) or "builtins", typing)), {}
    around = _locals_around(inner.__qualname__, inner.__globals__)
    parameters = {parameter.__name__: parameter for parameter in getattr(inner, "__type_params__", ())}
    return inner.__globals__, {**around, **_closure(inner), **parameters}


def _closure(fn: Callable[..., object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, cell in zip(cast("Any", fn).__code__.co_freevars, cast("Any", fn).__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def scope_of_class(cls: type) -> Scope:
    """Where the names in a class's annotations are looked up."""
    module = sys.modules.get(cls.__module__)
    names = vars(module) if module else {}
    inside = {name: value for name, value in vars(cls).items() if isinstance(value, type)}
    parameters = {parameter.__name__: parameter for parameter in getattr(cls, "__type_params__", ())}
    around = _locals_around(cls.__qualname__, names)
    return {**inside, **names}, {**around, cls.__name__: cls, **parameters}


def scope_of_alias(alias: Any) -> Scope:
    """Where the names in a `type X = ...` are looked up, if they are text."""
    module = sys.modules.get(alias.__module__)
    return vars(module) if module else {}, {alias.__name__: alias}


def _locals_around(qualname: str, names: Mapping[str, object]) -> dict[str, object]:
    """The locals of the functions and class bodies around a definition, as far as they are still running."""
    parts = qualname.split(".")[:-1]
    around = {".".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[count - 1] != "<locals>"}
    found: dict[str, object] = {}
    frame: FrameType | None = inspect.currentframe() if around else None
    while frame is not None:
        if frame.f_code.co_qualname in around and frame.f_globals is names:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def class_hints(hint: object) -> dict[str, object]:
    """The annotations of a class and its bases, with the type variables of a generic class filled in."""
    cls = cast("type[Any]", class_of(hint))
    return _hints_of(cls, _parameters_filled(cls, typing.get_args(hint)), {})


def _parameters_filled(cls: type[Any], arguments: Iterable[object]) -> dict[object, object]:
    parameters: tuple[object, ...] = getattr(cls, "__parameters__", ())
    return dict(zip(parameters, arguments, strict=False))


def _hints_of(cls: type[Any], filled: Mapping[object, object], found: dict[str, object]) -> dict[str, object]:
    # From the last base to the first, so that what Python finds first is what stays.
    for base in reversed(vars(cls).get("__orig_bases__", cls.__bases__)):
        origin = class_of(base)
        if origin is not None:
            arguments = [_fill(argument, filled) for argument in typing.get_args(base)]
            _hints_of(origin, _parameters_filled(origin, arguments), found)
    for name, annotation in inspect.get_annotations(cls).items():
        try:
            found[name] = _fill(resolve(annotation, scope_of_class(cls)), filled)
        except UnsupportedError as error:
            raise error.within(f"field {name} of {cls.__name__}") from None
    return found


def _fill(hint: object, filled: Mapping[object, object]) -> object:
    if isinstance(hint, typing.TypeVar):
        return filled.get(hint, hint)
    parameters = cast("tuple[object, ...]", getattr(hint, "__parameters__", ()))
    if not filled or not parameters or isinstance(hint, type):
        return hint
    return cast("Any", hint)[tuple(filled.get(parameter, Any) for parameter in parameters)]
