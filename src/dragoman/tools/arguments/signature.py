"""A function's signature: the parameters that a model fills in.

Owns: which parameters count, their hints and defaults, and the refusal of those that JSON arguments cannot fill.
Must not know: how a call is decoded (compiled.py), what hints mean (hints/).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, cast

from dragoman.errors import ToolDefinitionError

from .hints.annotations import annotations_of, is_pydantic_field
from .hints.choices import AnyOf
from .hints.defaults import MISSING
from .hints.node import UnsupportedError
from .hints.parse import Parser
from .hints.records import Field
from .hints.resolve import Scope, resolve, scope_of_function
from .hints.scalars import NULL

__all__ = ["Parameter", "name_of", "parameters_of"]


class Parameter(NamedTuple):
    """A parameter, as the model and the call see it."""

    name: str
    field: Field
    default: object
    """The object that the call gets where the model gives none; MISSING if the model must."""
    by_keyword: bool


def name_of(fn: Callable[..., object]) -> str:
    """What to call a function in a message."""
    inner: object = cast("functools.partial[object]", fn).func if isinstance(fn, functools.partial) else fn
    return f"{getattr(inner, '__name__', type(inner).__name__)}()"


def parameters_of(fn: Callable[..., object], skip: int, descriptions: Mapping[str, str]) -> list[Parameter]:
    """The parameters of a function after the first `skip`; raises ToolDefinitionError."""
    signature, by_keyword = _signature(fn)
    parser, scope, bound = Parser(), scope_of_function(fn), _bound(fn)
    found: list[Parameter] = []
    for parameter in list(signature.parameters.values())[skip:]:
        # What a partial has filled in is the program's business: it may be a secret, and is not offered.
        if parameter.name in bound:
            continue
        try:
            found.append(_parameter(parameter, parser, scope, descriptions.get(parameter.name, ""), by_keyword))
        except UnsupportedError as error:
            message = f"Parameter {parameter.name!r} of {name_of(fn)}: {error.message}."
            raise ToolDefinitionError(message, hint=error.fix) from None
    return found


def _signature(fn: Callable[..., object]) -> tuple[inspect.Signature, bool]:
    """The signature, and whether the arguments must go by keyword: a decorator's wrapper may take nothing else."""
    try:
        inside = inspect.signature(fn)
    except (TypeError, ValueError, NameError) as error:  # NameError: from 3.14 on, annotations are evaluated here
        message = f"{name_of(fn)} does not tell its parameters: {error}."
        raise ToolDefinitionError(message, hint="Wrap it in a function with type hints.") from None
    try:
        outside = inspect.signature(fn, follow_wrapped=False)
    except ValueError:  # functools.cache and its like tell nothing of themselves, and take what the function takes
        return inside, False
    kinds = {parameter.kind for parameter in outside.parameters.values()}
    return inside, inside != outside and kinds <= {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def _bound(fn: Callable[..., object]) -> set[str]:
    names: set[str] = set()
    current: object = fn
    while isinstance(current, functools.partial):
        partial = cast("functools.partial[object]", current)
        names.update(partial.keywords)
        current = partial.func
    return names


def _parameter(
    parameter: inspect.Parameter, parser: Parser, scope: Scope, description: str, by_keyword: bool
) -> Parameter:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        instead = "list[...]" if parameter.kind is parameter.VAR_POSITIONAL else "dict[str, ...]"
        raise UnsupportedError(
            f"{stars}{parameter.name} has no place in a JSON object",
            f"Write one parameter of type {instead} instead, or name each parameter.",
        )
    default: object = MISSING if parameter.default is parameter.empty else parameter.default
    hint = _hint(parameter, default, scope)
    if is_pydantic_field(default):  # x: int = Field(5, ge=1)
        hint = Annotated[cast("Any", hint), default]
        default = _default_of_field(default)
    node = parser.node(hint)
    if default is None and "null" not in node.kinds:  # x: int = None says more than it writes
        node = AnyOf([node, NULL])
    alias = annotations_of(getattr(hint, "__metadata__", ())).alias
    field = Field(
        parameter.name, node, key=alias, required=default is MISSING, default=default, description=description
    )
    return Parameter(parameter.name, field, default, by_keyword or parameter.kind is parameter.KEYWORD_ONLY)


def _hint(parameter: inspect.Parameter, default: object, scope: Scope) -> object:
    if parameter.annotation is not parameter.empty:
        return resolve(parameter.annotation, scope)
    if default is MISSING:
        fix = f"Write its type, such as {parameter.name}: str, or give it a default."
        raise UnsupportedError("it has no type hint", fix)
    return type(default) if type(default) in (str, int, float, bool) else Any


def _default_of_field(field: Any) -> object:
    if field.is_required():
        return MISSING
    return field.get_default(call_default_factory=True)
