"""The arguments of a tool: what the model is told of them, and how its JSON becomes a call.

Owns: Reader and Arguments, compiled once for each tool or type; those of a JSON Schema and of any type.
Must not know: functions (functions.py), what the tool does, and how it is run.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Container, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from dragoman.errors import ToolDefinitionError

from .hints import Parser
from .nodes import convert, custom, make_decoder
from .problems import InvalidArguments, Path, Problem, cut, deeper_than, is_array, is_object
from .resolve import UnsupportedError
from .schemas import Schema, normalise

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


class Reader:
    """From JSON text to a value; what is needed to read it is made when something is: of many tools few are called.

    msgspec's decoder in C reads nearly every text. When it refuses one, the same text is read again, leniently: what
    models get wrong without harm is forgiven, and otherwise the JSON Schema says all that is wrong.
    """

    noun: str = "field"
    """What a name at the root is called."""
    nothing: str = ""
    """What models mean that write nothing at all."""

    def __init__(self, schema: Schema) -> None:
        self.schema: Schema = schema

    @functools.cached_property
    def wire(self) -> Any:
        """The type that msgspec decodes."""
        raise NotImplementedError

    @functools.cached_property
    def checker(self) -> Checker:
        """Says what is wrong with a value."""
        from .json_schema import Checker  # it loads the schema library, and only when something does not fit

        return Checker(self.schema, formats=True, noun=self.noun)

    @functools.cached_property
    def _read(self) -> Callable[[str], object]:
        return make_decoder(self.wire).decode

    def decode(self, text: str) -> object:
        """What the text becomes; raises InvalidArguments with every problem there is."""
        try:
            return self._read(text or self.nothing)
        except Exception:  # noqa: BLE001 -- also what the user's own classes raise
            value = parse_text(text if text.strip() else self.nothing)
        if deeper_than(DEEPEST, value):
            raise InvalidArguments([Problem((), TOO_DEEP)])
        try:
            nulls, problems = self.checker.unwanted_nulls(value), self.checker.problems(value)
        except (ValueError, ToolDefinitionError):  # a pattern that only Python understands, say
            nulls, problems = [], []
        try:
            return convert(_forgive(value, nulls), self.wire)
        except Exception as error:  # noqa: BLE001 -- as above
            raise InvalidArguments(problems or [_problem_of(error)]) from None


class Arguments(Reader):
    """How a model's JSON becomes a call; the schema is of type object."""

    noun: str = "argument"
    nothing: str = "{}"

    def bind(self, decoded: Any) -> tuple[Sequence[object], Mapping[str, object]]:
        """From the decoded arguments to positional and keyword arguments."""
        raise NotImplementedError


# --- from a schema or a type -----------------------------------------------------------------------------------------


class _OfSchema(Arguments):
    def __init__(self, schema: Schema, needed: Container[str]) -> None:
        super().__init__(schema)
        properties = cast("dict[str, object]", schema["properties"])
        self._defaults: dict[str, object] = {
            name: sub["default"]
            for name, sub in properties.items()
            if name in needed and is_object(sub) and "default" in sub
        }
        self._fits: Callable[[object], bool] = self.checker.fits  # at once, since a stranger's schema may be none

    @functools.cached_property
    def checker(self) -> Checker:
        from .json_schema import compile_schema  # it loads the schema library

        return compile_schema(self.schema)

    @functools.cached_property
    def wire(self) -> Any:
        return custom("Arguments", self._check)

    def _check(self, value: object) -> object:
        if deeper_than(DEEPEST, value) or not self._fits(value):
            raise ValueError("it does not fit")
        return value

    def bind(self, decoded: Any) -> tuple[Sequence[object], Mapping[str, object]]:
        return (), {**deepcopy(self._defaults), **decoded} if self._defaults else decoded


def arguments_of_schema(schema: Mapping[str, object], *, needed: Container[str] = ()) -> Arguments:
    """The arguments that a JSON Schema describes; decoded they are a dict, and go to the function by keyword.

    The defaults that the schema has for those that the function needs are filled in.
    """
    return _OfSchema(normalise(schema), needed)


class _OfType(Reader):
    def __init__(self, hint: object) -> None:
        parser = Parser()
        try:
            node = parser.node(hint)
            make_decoder(node.wire)
        except Exception as error:  # noqa: BLE001 -- as above
            refuse(error)
        super().__init__(parser.write(node.schema))
        self.wire: Any = node.wire


def schema_of_type(hint: object) -> Schema:
    return deepcopy(_OfType(hint).schema)  # parts of it are shared, and the caller may change it


def decoder_of_type(hint: object) -> Callable[[str], object]:
    """A function from JSON text to a value of the type; it raises InvalidArguments."""
    return _OfType(hint).decode


def refuse(error: Exception, place: str = "") -> NoReturn:
    """Hints may hold any object, and objects may fail in any way when they are looked at."""
    if isinstance(error, UnsupportedError):
        raise ToolDefinitionError(f"{place}{error.message}.", hint=error.fix) from None
    message = f"{place}it cannot be understood ({type(error).__name__}: {error})."
    raise ToolDefinitionError(message, hint="Use a simpler type.") from error


# --- when the quick decoder has refused ------------------------------------------------------------------------------


def parse_text(text: str) -> object:
    """JSON text as plain values; raises InvalidArguments."""
    try:
        return cast("object", msgspec.json.decode(text))
    except RecursionError:
        raise InvalidArguments([Problem((), TOO_DEEP)]) from None
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidArguments([Problem((), f"not valid JSON ({error}): {cut(text)}")]) from None


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
