"""The parameters of a function as the arguments of a tool, and how the function is called.

Must not know: the meaning of hints (hints.py), and the rest of a tool.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, cast

import msgspec

from dragoman._annotations import signature_of
from dragoman.errors import ToolDefinitionError
from dragoman.tools.run import ToolContext

from .docstrings import parse_docstring
from .hints import Parser, is_pydantic_field
from .nodes import JSON_SCALARS, NULL, Node, make_decoder, object_schema, union
from .reader import Arguments, arguments_of_schema, refuse
from .resolve import MISSING, Field, UnsupportedError, resolve, scope_of_function
from .schemas import Schema

_IMMUTABLE = (type(None), bool, int, float, str, bytes)
_EMPTY = inspect.Parameter.empty
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_STARS = {inspect.Parameter.VAR_POSITIONAL: ("*", "list[...]"), inspect.Parameter.VAR_KEYWORD: ("**", "dict[str, ...]")}
_NAMES_CONTEXT = re.compile(r"(?:^|\.)ToolContext(?:\[|$)")
_TAKES_NONE = re.compile(r"\b(?:None|NoneType|Optional)\b|^~")


class Function(NamedTuple):
    """What a tool needs to know about its function."""

    arguments: Arguments
    description: str
    is_async: bool
    takes_context: bool
    needs_self: bool = False


def read_function(fn: Callable[..., object]) -> Function:
    """A function described by its hints and its docstring; raises ToolDefinitionError."""
    try:
        signature = signature_of(fn)
    except Exception as error:  # noqa: BLE001 -- from Python 3.14 on, annotations are evaluated here
        message = f"{name_of(fn)}() has no readable signature: {error}."
        raise ToolDefinitionError(message, hint="Wrap it in a function with type hints.") from None
    needs_self = _needs_self(fn, signature)
    takes_context = _takes_context(fn, signature, int(needs_self))
    inner = _inside_partial(fn)
    description, descriptions = parse_docstring((inner if inspect.isroutine(inner) else type(inner).__call__).__doc__)
    parameters = list(signature.parameters.values())[needs_self + takes_context :]
    arguments = _arguments(fn, parameters, descriptions)
    return Function(arguments, description, _is_async(fn), takes_context, needs_self)


def read_handler(fn: Callable[..., object], schema: Mapping[str, object]) -> Function:
    """A function whose arguments a JSON Schema describes, whatever its own hints are; raises ToolDefinitionError."""
    try:
        signature = signature_of(fn)
    except (TypeError, ValueError):  # some built-in functions have none
        signature = inspect.Signature()
    named = [each for each in signature.parameters.values() if each.kind in _BY_NAME]
    needed = {each.name for each in named if each.default is _EMPTY}
    takes_context = _takes_context(fn, signature, 0)
    return Function(arguments_of_schema(schema, needed=needed), "", _is_async(fn), takes_context)


# --- how it is called -------------------------------------------------------------------------------------------------


def _inside_partial(fn: Callable[..., object]) -> Any:
    return cast("functools.partial[Any]", fn).func if isinstance(fn, functools.partial) else fn


def name_of(fn: Callable[..., object]) -> str:
    inner = _inside_partial(fn)
    return getattr(inner, "__name__", type(inner).__name__)


def _is_async(fn: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 -- itself


def _needs_self(fn: Callable[..., object], signature: inspect.Signature) -> bool:
    """Whether this is a method decorated inside its class: its first parameter is a bare `self`."""
    if not inspect.isfunction(fn) or "." not in fn.__qualname__.rpartition("<locals>.")[2]:
        return False
    first = next(iter(signature.parameters.values()), None)
    return first is not None and first.name == "self" and first.annotation is _EMPTY


def _takes_context(fn: Callable[..., object], signature: inspect.Signature, position: int) -> bool:
    """Whether the parameter at this position is annotated with ToolContext; anywhere else it is refused."""
    names: Mapping[str, object] = getattr(_inside_partial(fn), "__globals__", {})
    parameters = list(signature.parameters.values())
    contexts = [index for index, parameter in enumerate(parameters) if _is_context(parameter.annotation, names)]
    if contexts and contexts != [position]:
        message = f"The parameter {parameters[contexts[-1]].name!r} of type ToolContext is not the first one."
        raise ToolDefinitionError(message, hint="Make it the first parameter; there can be only one.")
    return bool(contexts)


def deps_of(fn: Callable[..., object]) -> str:
    """The type of `context.deps` that a tool's function wants, as written; "" if it does not say, or takes None."""
    names: Mapping[str, object] = getattr(_inside_partial(fn), "__globals__", {})
    for parameter in signature_of(fn).parameters.values():
        if _is_context(parameter.annotation, names):
            return _deps_of(parameter.annotation, names)
    return ""


def _deps_of(annotation: object, names: Mapping[str, object]) -> str:
    if isinstance(annotation, str) and "[" not in annotation:
        annotation = names.get(annotation)  # an alias
    if isinstance(annotation, str):
        wanted = annotation.partition("[")[2].rpartition("]")[0]
    else:
        given: tuple[object, ...] = getattr(annotation, "__args__", ())
        wanted = _name_type(given[0]) if given else ""
    return "" if wanted in ("object", "Any", "typing.Any") or _TAKES_NONE.search(wanted) else wanted


def _name_type(hint: object) -> str:
    found: object = getattr(hint, "__forward_arg__", getattr(hint, "__qualname__", hint))  # a name, or a class
    return str(found)


def _is_context(annotation: object, names: Mapping[str, object]) -> bool:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        if "ToolContext" in annotation and _NAMES_CONTEXT.search(annotation):  # even if imported for type checkers only
            return True
        annotation = names.get(annotation.partition("[")[0])  # imported under another name
    return annotation is ToolContext or getattr(annotation, "__origin__", None) is ToolContext


# --- its parameters ---------------------------------------------------------------------------------------------------


class FunctionArguments(Arguments):
    """Decoded by a Struct with a field for each parameter."""

    def __init__(self, schema: Schema, fields: Sequence[tuple[Field, Node]], positional: int) -> None:
        super().__init__(schema)
        self._fields: Sequence[tuple[Field, Node]] = fields
        self._positional: int = positional

    @functools.cached_property
    def _names(self) -> list[str]:
        return [field.name for field, _ in self._fields[self._positional :]]

    @functools.cached_property
    def wire(self) -> Any:
        # gc=False: it lives for one call and nothing points back to it, and the collector costs a seventh of decoding.
        return msgspec.defstruct(
            "Arguments",
            [(f"f{index}", node.wire, _struct_field(field)) for index, (field, node) in enumerate(self._fields)],
            kw_only=True,
            forbid_unknown_fields=True,
            gc=False,
        )

    def bind(self, decoded: Any) -> tuple[Sequence[object], Mapping[str, object]]:
        values, count = msgspec.structs.astuple(decoded), self._positional
        return values[:count], dict(zip(self._names, values[count:], strict=True))


def _struct_field(field: Field) -> Any:
    """A field of the Struct. The call must get the very object that the function declares, even if it is mutable."""
    if field.required:
        return msgspec.field(name=field.key)
    if type(field.default) in _IMMUTABLE:
        return msgspec.field(default=field.default, name=field.key)
    return msgspec.field(default_factory=field.factory or (lambda: field.default), name=field.key)


def _arguments(
    fn: Callable[..., object], parameters: Sequence[inspect.Parameter], descriptions: Mapping[str, str]
) -> Arguments:
    scope, parser = scope_of_function(fn), Parser()
    fields: list[tuple[Field, Node]] = []
    bound = _bound_names(fn)
    offered = [each for each in parameters if each.name not in bound]
    for parameter in offered:
        try:
            hint = MISSING if parameter.annotation is _EMPTY else resolve(parameter.annotation, scope)
            field, node = _field(parameter, hint, parser)
            if node.wire not in JSON_SCALARS:
                make_decoder(node.wire)  # here, where the error can name the parameter
        except Exception as error:  # noqa: BLE001 -- a hint may hold any object
            refuse(error, f"Parameter {parameter.name!r} of {name_of(fn)}(): ")
        fields.append((field, node))
    positional = sum([each.kind is each.POSITIONAL_ONLY for each in offered])
    return FunctionArguments(parser.document(object_schema(fields, descriptions)), fields, positional)


def _bound_names(fn: object) -> set[str]:
    """The arguments that partials have filled in. They may be secrets, and are not offered to the model."""
    if not isinstance(fn, functools.partial):
        return set()
    partial = cast("functools.partial[object]", fn)
    return {*partial.keywords, *_bound_names(partial.func)}


def _field(parameter: inspect.Parameter, hint: object, parser: Parser) -> tuple[Field, Node]:
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
    node = parser.node(hint)
    if default is None and NULL not in (node, *node.members):  # x: int = None
        node = union([node, NULL])
    return Field(name, hint, name, default is MISSING, default, factory=factory), node
