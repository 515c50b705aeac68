"""The arguments of a tool: what the model is told of them, and how its JSON becomes a call.

Owns: Arguments, compiled once for each tool from a function's hints or from a JSON Schema, and the same for any type.
Must not know: what the tool does, and how it is run.

msgspec's decoder in C reads every call. When it refuses, the same text is read again, leniently: what models get wrong
without harm is forgiven, and otherwise all that is wrong is said by the JSON Schema.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Container, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, cast

import msgspec

from dragoman.errors import ToolDefinitionError

from .hints import Parser, is_pydantic_field
from .nodes import JSON_SCALARS, NULL, Field, Node, convert, make_decoder, object_schema, union
from .problems import InvalidArguments, Path, Problem, cut, deeper_than, is_array, is_object
from .resolve import MISSING, RawField, UnsupportedError, resolve, scope_of_function
from .schemas import Schema, normalise, write_document

if TYPE_CHECKING:
    from .json_schema import Checker

DEEPEST = 200
"""How far arguments may be nested for a schema: the schema library uses the stack, and the text is a stranger's."""
TOO_DEEP = "not usable: the JSON is nested too deeply"

_EXACT_FLOATS = 2**53
"""Beyond this a float no longer says which integer was meant."""
_IMMUTABLE = (type(None), bool, int, float, str, bytes)
_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
"""Where msgspec says that something is wrong; what was read inside has its own place before it."""
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[([^\]]*)\]")
_EMPTY = inspect.Parameter.empty
_STARS = {inspect.Parameter.VAR_POSITIONAL: ("*", "list[...]"), inspect.Parameter.VAR_KEYWORD: ("**", "dict[str, ...]")}


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """How a model's JSON becomes a call."""

    schema: Schema
    """JSON Schema of type object."""
    decode: Callable[[str], object]
    """From JSON text to the decoded arguments; raises InvalidArguments."""
    bind: Callable[[object], tuple[Sequence[object], Mapping[str, object]]]
    """From the decoded arguments to positional and keyword arguments."""


# --- from a function -------------------------------------------------------------------------------------------------


def arguments_of_function(
    fn: Callable[..., object],
    *,
    skip: int = 0,
    descriptions: Mapping[str, str] | None = None,
    signature: inspect.Signature | None = None,
) -> Arguments:
    """The arguments of a function, by its hints; its first `skip` parameters are not the model's business."""
    bound = _bound_names(fn)
    offered = list((signature or signature_of(fn)).parameters.values())[skip:]
    parameters = [each for each in offered if each.name not in bound]
    fields = _fields(fn, parameters)
    schema = write_document(object_schema(fields, descriptions or {}))

    def make_struct() -> type[msgspec.Struct]:
        # gc=False: it lives for one call and nothing points back to it, and the collector costs a seventh of decoding.
        return msgspec.defstruct(
            "Arguments",
            [(f"f{index}", field.node.wire, _struct_field(field.raw)) for index, field in enumerate(fields)],
            kw_only=True,
            forbid_unknown_fields=True,
            gc=False,
        )

    names = [parameter.name for parameter in parameters]
    count = sum(parameter.kind is parameter.POSITIONAL_ONLY for parameter in parameters)

    def bind(decoded: object) -> tuple[Sequence[object], Mapping[str, object]]:
        values = msgspec.structs.astuple(cast("msgspec.Struct", decoded))
        return values[:count], dict(zip(names[count:], values[count:], strict=True))

    return Arguments(schema=schema, decode=_decoder_of(make_struct, schema, "argument"), bind=bind)


def signature_of(fn: Callable[..., object]) -> inspect.Signature:
    """The parameters of a function; raises ToolDefinitionError if it does not tell."""
    try:
        return inspect.signature(fn)
    except Exception as error:  # noqa: BLE001 -- from Python 3.14 on, annotations are evaluated here
        message = f"{_name_of(fn)} does not tell its parameters: {error}."
        raise ToolDefinitionError(message, hint="Wrap it in a function with type hints.") from None


def _bound_names(fn: Callable[..., object]) -> set[str]:
    """What partials have filled in is the program's business: it may be a secret, and is not offered."""
    names: set[str] = set()
    current: object = fn
    while isinstance(current, functools.partial):
        partial = cast("functools.partial[object]", current)
        names.update(partial.keywords)
        current = partial.func
    return names


def _name_of(fn: Callable[..., object]) -> str:
    inner: object = cast("functools.partial[object]", fn).func if isinstance(fn, functools.partial) else fn
    return f"{getattr(inner, '__name__', type(inner).__name__)}()"


def _fields(fn: Callable[..., object], parameters: Sequence[inspect.Parameter]) -> list[Field]:
    parser, scope = Parser(), scope_of_function(fn)
    fields: list[Field] = []
    for parameter in parameters:
        try:
            hint = MISSING if parameter.annotation is _EMPTY else resolve(parameter.annotation, scope)
            field = _field(parameter, hint, parser)
            if field.node.wire not in JSON_SCALARS:
                make_decoder(field.node.wire)  # here, where it can be said which parameter cannot be read
        except Exception as error:  # noqa: BLE001 -- a hint may hold any object
            _refuse(error, f"Parameter {parameter.name!r} of {_name_of(fn)}: ")
        fields.append(field)
    return fields


def _refuse(error: Exception, place: str = "") -> NoReturn:
    """Hints may hold any object, and objects may fail in any way when they are looked at."""
    if isinstance(error, UnsupportedError):
        raise ToolDefinitionError(f"{place}{error.message}.", hint=error.fix) from None
    message = f"{place}it cannot be understood ({type(error).__name__}: {error})."
    raise ToolDefinitionError(message, hint="Use a simpler type.") from error


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


# --- from a schema or a type -----------------------------------------------------------------------------------------


def arguments_of_schema(schema: Mapping[str, object], *, needed: Container[str] = ()) -> Arguments:
    """The arguments that a JSON Schema describes; decoded they are a dict, and go to the function by keyword.

    The defaults that the schema has for those that the function needs are filled in.
    """
    from .json_schema import compile_schema  # it loads the schema library

    normal = normalise(schema)
    checker = compile_schema(normal)
    properties = cast("dict[str, object]", normal["properties"])
    defaults = {
        name: sub["default"]
        for name, sub in properties.items()
        if name in needed and is_object(sub) and "default" in sub
    }

    def read(value: object) -> object:
        if checker.fits(value):
            return value
        raise ValueError("it does not fit")

    def quick(text: str) -> object:
        if text.count("[") + text.count("{") > DEEPEST:
            raise ValueError("it may be nested too deeply")
        return read(msgspec.json.decode(text))

    def bind(decoded: object) -> tuple[Sequence[object], Mapping[str, object]]:
        given = cast("dict[str, object]", decoded)
        return (), {**deepcopy(defaults), **given} if defaults else given

    return Arguments(
        schema=normal, decode=Decoder(lambda: Readers(quick, read), lambda: checker, "argument"), bind=bind
    )


def schema_of_type(hint: object) -> Schema:
    return write_document(_node_of_type(hint).schema)


def decoder_of_type(hint: object) -> Callable[[str], object]:
    """A function from JSON text to a value of the type; it raises InvalidArguments."""
    node = _node_of_type(hint)
    schema = write_document(node.schema)
    return _decoder_of(lambda: node.wire, schema, "field")


def _decoder_of(make_wire: Callable[[], Any], schema: Schema, noun: str) -> Decoder:
    """The type to be read is made when something is: of many tools few are ever called."""

    def make_readers() -> Readers:
        wire = make_wire()
        return Readers(make_decoder(wire).decode, functools.partial(convert, wire=wire))

    def make_checker() -> Checker:
        from .json_schema import Checker  # it loads the schema library, and only when something does not fit

        return Checker(schema, formats=True, noun=noun)

    return Decoder(make_readers, make_checker, noun)


def _node_of_type(hint: object) -> Node:
    try:
        node = Parser().node(hint)
        make_decoder(node.wire)
    except Exception as error:  # noqa: BLE001 -- as above
        _refuse(error)
    return node


# --- when the quick decoder has refused ------------------------------------------------------------------------------


def parse_text(text: str) -> object:
    """JSON text as plain values; raises InvalidArguments."""
    try:
        return cast("object", msgspec.json.decode(text))
    except RecursionError:
        raise InvalidArguments([Problem((), TOO_DEEP)]) from None
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidArguments([Problem((), f"not valid JSON ({error}): {cut(text)}")]) from None


class Readers(NamedTuple):
    """How arguments or a value are read. Both raise if something does not fit."""

    quick: Callable[[str], object]
    """From JSON text."""
    patient: Callable[[object], object]
    """From what was decoded of it."""


class Decoder:
    """From JSON text to arguments or a value. Where a text does not fit, the checker says why not.

    Readers and checker are made when they are first needed.
    """

    def __init__(self, make_readers: Callable[[], Readers], make_checker: Callable[[], Checker], noun: str) -> None:
        self._make_readers: Callable[[], Readers] = make_readers
        self._readers: Readers | None = None
        self._make_checker: Callable[[], Checker] = make_checker
        self._checker: Checker | None = None
        self._nothing: str = "{}" if noun == "argument" else ""
        """What models mean that write nothing at all."""

    def __call__(self, text: str) -> object:
        """What the text becomes; raises InvalidArguments with every problem there is."""
        readers = self._readers = self._readers or self._make_readers()
        try:
            return readers.quick(text or self._nothing)
        except Exception:  # noqa: BLE001 -- also what the user's own classes raise
            value = parse_text(text if text.strip() else self._nothing)
        if deeper_than(DEEPEST, value):
            raise InvalidArguments([Problem((), TOO_DEEP)])
        try:
            checker = self._checker = self._checker or self._make_checker()
        except (ValueError, ToolDefinitionError):  # a pattern that only Python understands, say
            nulls, problems = [], []
        else:
            nulls, problems = checker.unwanted_nulls(value), checker.problems(value)
        try:
            return readers.patient(_forgive(value, nulls))
        except Exception as error:  # noqa: BLE001 -- as above
            raise InvalidArguments(problems or [_problem_of(error)]) from None


def _forgive(value: object, nulls: Sequence[Path]) -> object:
    """The value with 5 for 5.0, and without the nulls."""
    copy = _with_integers(value)
    for path in nulls:
        parent: Any = copy
        for step in path[:-1]:
            parent = parent[step]
        parent.pop(path[-1], None)
    return copy


def _with_integers(value: object) -> object:
    if is_array(value):
        return [_with_integers(item) for item in value]
    if is_object(value):
        return {name: _with_integers(item) for name, item in value.items()}
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_FLOATS
    return int(cast("float", value)) if is_whole else value


def _problem_of(error: Exception) -> Problem:
    """What msgspec or a user's class says of a value that the schema allows, with its place."""
    text, place = str(error) or type(error).__name__, ""
    while match := _PLACE.search(text):
        place, text = place + match[1], text[: match.start()]
    steps = [int(index) if index else name or other for name, index, other in _STEP.findall(place)]
    return Problem(tuple(steps), text)
