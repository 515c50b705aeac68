"""What a function tells of itself: its parameters as arguments of a tool, and how it wants to be called.

Owns: which parameters the model is to fill in, and what each of them means.
Must not know: what hints mean (hints.py), and what else there is to a tool.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, cast

import msgspec

from dragoman.errors import ToolDefinitionError
from dragoman.tools.run import ToolContext

from .docstrings import parse_docstring
from .hints import Parser, is_pydantic_field
from .nodes import JSON_SCALARS, NULL, Field, make_decoder, object_schema, union
from .reader import Arguments, arguments_of_schema, refuse
from .resolve import MISSING, RawField, UnsupportedError, resolve, scope_of_function
from .schemas import Schema

_IMMUTABLE = (type(None), bool, int, float, str, bytes)
_EMPTY = inspect.Parameter.empty
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_STARS = {inspect.Parameter.VAR_POSITIONAL: ("*", "list[...]"), inspect.Parameter.VAR_KEYWORD: ("**", "dict[str, ...]")}


class Function(NamedTuple):
    """A function as a tool wants it."""

    arguments: Arguments
    description: str
    is_async: bool
    takes_context: bool
    needs_self: bool = False


def read_function(fn: Callable[..., object]) -> Function:
    """A function by its hints and its docstring; raises ToolDefinitionError."""
    signature = _signature_of(fn)
    needs_self = _needs_self(fn, signature)
    takes_context = _takes_context(fn, signature, int(needs_self))
    inner = inner_of(fn)
    description, of_parameters = parse_docstring((inner if inspect.isroutine(inner) else type(inner).__call__).__doc__)
    offered = list(signature.parameters.values())[needs_self + takes_context :]
    arguments = _arguments(fn, offered, of_parameters)
    return Function(arguments, description, _is_async(fn), takes_context, needs_self)


def read_handler(fn: Callable[..., object], schema: Mapping[str, object]) -> Function:
    """A function whose arguments a JSON Schema describes, whatever its own hints say; raises ToolDefinitionError."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some built-in functions do not tell their parameters
        signature = inspect.Signature()
    named = [each for each in signature.parameters.values() if each.kind in _BY_NAME]
    needed = {each.name for each in named if each.default is _EMPTY}
    takes_context = _takes_context(fn, signature, 0)
    return Function(arguments_of_schema(schema, needed=needed), "", _is_async(fn), takes_context)


# --- how it wants to be called ----------------------------------------------------------------------------------------


def inner_of(fn: Callable[..., object]) -> Any:
    """The function inside a partial."""
    return cast("functools.partial[Any]", fn).func if isinstance(fn, functools.partial) else fn


def name_of(fn: Callable[..., object]) -> str:
    inner = inner_of(fn)
    return getattr(inner, "__name__", type(inner).__name__)


def _signature_of(fn: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except Exception as error:  # noqa: BLE001 -- from Python 3.14 on, annotations are evaluated here
        message = f"{name_of(fn)}() does not tell its parameters: {error}."
        raise ToolDefinitionError(message, hint="Wrap it in a function with type hints.") from None


def _is_async(fn: Callable[..., object]) -> bool:
    if inspect.iscoroutinefunction(fn):
        return True
    called = getattr(fn, "__call__", None)  # noqa: B004 -- the method itself is wanted
    return not inspect.isroutine(fn) and inspect.iscoroutinefunction(called)


def _needs_self(fn: Callable[..., object], signature: inspect.Signature) -> bool:
    """Whether this is a method seen while its class is being made: its first parameter is a bare `self`."""
    if not inspect.isfunction(fn) or "." not in fn.__qualname__.rpartition("<locals>.")[2]:
        return False
    first = next(iter(signature.parameters.values()), None)
    return first is not None and first.name == "self" and first.annotation is _EMPTY


_NAMES_CONTEXT = re.compile(r"(?:^|\.)ToolContext(?:\[|$)")


def _takes_context(fn: Callable[..., object], signature: inspect.Signature, position: int) -> bool:
    """Whether the parameter at this position is annotated with ToolContext; anywhere else it is refused."""
    names: Mapping[str, object] = getattr(inner_of(fn), "__globals__", {})
    parameters = list(signature.parameters.values())
    wanting = [index for index, parameter in enumerate(parameters) if _is_context(parameter.annotation, names)]
    if wanting and wanting != [position]:
        name = parameters[wanting[-1]].name
        message = f"The parameter {name!r} of type ToolContext is not the first one."
        raise ToolDefinitionError(message, hint="Make it the first parameter; there can be only one.")
    return bool(wanting)


def _is_context(annotation: object, names: Mapping[str, object]) -> bool:
    if isinstance(annotation, str):
        if "ToolContext" in annotation and _NAMES_CONTEXT.search(annotation):  # also where only type checkers import it
            return True
        annotation = names.get(annotation.partition("[")[0])  # imported under another name
    return annotation is ToolContext or getattr(annotation, "__origin__", None) is ToolContext


# --- its parameters ---------------------------------------------------------------------------------------------------


class FunctionArguments(Arguments):
    """Read by a Struct with a field for each parameter."""

    def __init__(self, schema: Schema, fields: Sequence[Field], positional: int) -> None:
        super().__init__(schema)
        self._fields: Sequence[Field] = fields
        self._positional: int = positional

    @functools.cached_property
    def _names(self) -> list[str]:
        return [field.raw.name for field in self._fields[self._positional :]]

    @functools.cached_property
    def wire(self) -> Any:
        # gc=False: it lives for one call and nothing points back to it, and the collector costs a seventh of decoding.
        return msgspec.defstruct(
            "Arguments",
            [(f"f{index}", field.node.wire, _struct_field(field.raw)) for index, field in enumerate(self._fields)],
            kw_only=True,
            forbid_unknown_fields=True,
            gc=False,
        )

    def bind(self, decoded: Any) -> tuple[Sequence[object], Mapping[str, object]]:
        values, count = msgspec.structs.astuple(decoded), self._positional
        return values[:count], dict(zip(self._names, values[count:], strict=True))


def _arguments(
    fn: Callable[..., object], offered: Sequence[inspect.Parameter], descriptions: Mapping[str, str]
) -> Arguments:
    bound = _bound_names(fn)
    parameters = [each for each in offered if each.name not in bound]
    parser = Parser()
    fields = _fields(fn, parameters, parser)
    positional = sum([each.kind is each.POSITIONAL_ONLY for each in parameters])
    return FunctionArguments(parser.write(object_schema(fields, descriptions)), fields, positional)


def _bound_names(fn: Callable[..., object]) -> set[str]:
    """What partials have filled in is the program's business: it may be a secret, and is not offered."""
    names: set[str] = set()
    current: object = fn
    while isinstance(current, functools.partial):
        partial = cast("functools.partial[object]", current)
        names.update(partial.keywords)
        current = partial.func
    return names


def _fields(fn: Callable[..., object], parameters: Sequence[inspect.Parameter], parser: Parser) -> list[Field]:
    scope = scope_of_function(fn)
    fields: list[Field] = []
    for parameter in parameters:
        try:
            hint = MISSING if parameter.annotation is _EMPTY else resolve(parameter.annotation, scope)
            field = _field(parameter, hint, parser)
            if field.node.wire not in JSON_SCALARS:
                make_decoder(field.node.wire)  # here, where it can be said which parameter cannot be read
        except Exception as error:  # noqa: BLE001 -- a hint may hold any object
            refuse(error, f"Parameter {parameter.name!r} of {name_of(fn)}(): ")
        fields.append(field)
    return fields


def _field(parameter: inspect.Parameter, hint: object, parser: Parser) -> Field:
    name = parameter.name
    default: Any = MISSING if parameter.default is _EMPTY else parameter.default
    if parameter.kind in _STARS:
        stars, instead = _STARS[parameter.kind]
        fix = f"Write one parameter of type {instead} instead, or name each parameter."
        raise UnsupportedError(f"{stars}{name} has no place in a JSON object", fix)
    if hint is MISSING and default is MISSING:
        fix = f"Write its type, such as {name}: str, or give it a default."
        raise UnsupportedError("it has no type hint", fix)
    if hint is MISSING:
        hint = cast("object", type(default)) if type(default) in (str, int, float, bool) else Any
    factory: Any = None
    if is_pydantic_field(default):  # x: int = Field(5, ge=1)
        hint, default = Annotated[cast("Any", hint), default], MISSING
    for item in getattr(hint, "__metadata__", ()) if default is MISSING else ():
        if is_pydantic_field(item) and not item.is_required():  # also x: Annotated[int, Field(default=5)]
            default, factory = item.get_default(call_default_factory=True), item.default_factory
    node = parser.parameter(hint)
    if default is None and NULL not in (node, *node.members):  # x: int = None says more than it writes
        node = union([node, NULL])
    return Field(RawField(name, hint, name, default is MISSING, default, factory=factory), node)


def _struct_field(raw: RawField) -> Any:
    """The field of the Struct. The call must get the very object that the function declares, also if it can change."""
    if raw.required:
        return msgspec.field(name=raw.key)
    if type(raw.default) in _IMMUTABLE:
        return msgspec.field(default=raw.default, name=raw.key)
    return msgspec.field(default_factory=raw.factory or (lambda: raw.default), name=raw.key)
