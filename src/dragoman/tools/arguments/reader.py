"""Arguments of tools, and other JSON that a model writes: the schema it sees, and how its text is decoded.

Owns: Reader and Arguments, compiled once for each tool or type.
Must not know: functions (functions.py), what the tool does, and how it is run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from dragoman._decoding import TooDeepError, check_depth, decode
from dragoman.errors import ToolDefinitionError

from .hints import Parser
from .nodes import convert, custom, make_decoder
from .problems import InvalidArguments, Path, Problem, cut, is_array, is_object
from .resolve import UnsupportedError, unknown_name
from .schemas import Schema, normalise

if TYPE_CHECKING:
    from .json_schema import Checker

_TOO_DEEP = "not usable: the JSON is nested too deeply"

_EXACT_FLOATS = 2**53
"""Beyond this a float may stand for several integers."""
_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
"""The path in a message of msgspec; a value that was decoded inside has its own path before it."""
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[([^\]]*)\]")


class Reader:
    """Decodes JSON text. Decoder and checker are built on first use: of many tools few are called.

    msgspec's decoder reads nearly every text. If it refuses one, the text is read again: harmless deviations are
    accepted, and otherwise the JSON Schema lists the problems.
    """

    nothing: str = ""
    """The JSON that an empty text stands for."""

    def __init__(self, schema: Schema) -> None:
        self.schema: Schema = schema

    @functools.cached_property
    def wire(self) -> Any:
        """The type that msgspec decodes."""
        raise NotImplementedError

    @functools.cached_property
    def checker(self) -> Checker:
        """Finds the problems of a value."""
        from .json_schema import compile_schema  # it loads the schema library

        return compile_schema(self.schema)

    @functools.cached_property
    def _read(self) -> Callable[[str], object]:
        return make_decoder(self.wire).decode

    def decode(self, text: str) -> object:
        """The decoded text; raises InvalidArguments with all problems."""
        _check_depth(text)
        try:
            return self._read(text or self.nothing)
        except Exception:  # noqa: BLE001 -- also what the user's own classes raise
            value = parse_text(text if text.strip() else self.nothing)
        try:
            nulls, problems = self.checker.unwanted_nulls(value), self.checker.problems(value)
        except ToolDefinitionError:  # such as a pattern that only Python supports
            nulls, problems = [], []
        try:
            return convert(forgive(value, nulls), self.wire)
        except Exception as error:  # noqa: BLE001 -- as above
            raise InvalidArguments(problems or [_problem_of(error)]) from None


class Arguments(Reader):
    """Decodes the arguments of a call; the schema is of type object."""

    nothing: str = "{}"

    def bind(self, decoded: Any) -> tuple[Sequence[object], Mapping[str, object]]:
        """The decoded arguments as positional and keyword arguments."""
        raise NotImplementedError


# --- from a schema or a type -----------------------------------------------------------------------------------------


class _OfSchema(Arguments):
    def __init__(self, schema: Schema, needed: Container[str]) -> None:
        super().__init__(schema)
        fits = self.checker.fits  # at once, because the schema may be invalid
        properties = cast("dict[str, object]", schema["properties"])
        self._defaults: dict[str, object] = {
            name: sub["default"]
            for name, sub in properties.items()
            if name in needed and is_object(sub) and "default" in sub
        }

        def check(value: object) -> object:
            if not fits(value):
                raise ValueError("it does not fit")
            return value

        self.wire: Any = custom("Arguments", check)

    def bind(self, decoded: Any) -> tuple[Sequence[object], Mapping[str, object]]:
        return (), {**deepcopy(self._defaults), **decoded} if self._defaults else decoded


def arguments_of_schema(schema: Mapping[str, object], *, needed: Container[str] = ()) -> Arguments:
    """The arguments that a JSON Schema describes. They are decoded to a dict, and passed to the function by keyword.

    `needed` are the parameters for which the function has no default: the schema's defaults are used.
    """
    return _OfSchema(normalise(schema), needed)


class _OfType(Reader):
    def __init__(self, hint: object) -> None:
        parser = Parser()
        try:
            node = parser.node(hint)
            make_decoder(node.wire)
        except Exception as error:  # noqa: BLE001 -- a hint may hold any object
            refuse(error)
        super().__init__(parser.document(node.schema))
        self.wire: Any = node.wire


def schema_of_type(hint: object) -> Schema:
    return _OfType(hint).schema


def decoder_of_type(hint: object) -> Callable[[str], object]:
    """A function from JSON text to a value of the type; it raises InvalidArguments."""
    return _OfType(hint).decode


def refuse(error: Exception, place: str = "") -> NoReturn:
    """Raise ToolDefinitionError. Hints may hold any object, so the error may be of any kind."""
    if isinstance(error, NameError):  # an alias and the bound of a type parameter are evaluated when they are read
        error = unknown_name(error)
    if isinstance(error, UnsupportedError):
        raise ToolDefinitionError(f"{place}{error.message}.", hint=error.fix) from None
    message = f"{place}it cannot be understood ({type(error).__name__}: {error})."
    raise ToolDefinitionError(message, hint="Use a simpler type.") from error


# --- if the decoder has refused the text ------------------------------------------------------------------------------


def parse_text(text: str) -> object:
    """JSON text as plain values; raises InvalidArguments."""
    _check_depth(text)
    try:
        return decode(text)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidArguments([Problem((), f"not valid JSON ({error}): {cut(text)}")]) from None


def _check_depth(text: str) -> None:
    try:
        check_depth(text)
    except TooDeepError:
        raise InvalidArguments([Problem((), _TOO_DEEP)]) from None


def forgive(value: object, nulls: Sequence[Path]) -> object:
    """A copy with 5 for 5.0, and without the nulls at these paths: models write null instead of leaving a field out."""
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
    """An error of msgspec or of a user's class, about a value that the schema allows, with its path."""
    text, place = str(error) or type(error).__name__, ""
    while match := _PLACE.search(text):
        place, text = place + match[1], text[: match.start()]
    steps = [int(index) if index else name or other for name, index, other in _STEP.findall(place)]
    return Problem(tuple(steps), text)
