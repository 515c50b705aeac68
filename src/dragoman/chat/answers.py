"""Types of answers: from a Python type or a JSON Schema to what is asked for and how the answer is read.

Owns: AnswerType. Schemas and decoders come from the tool layer, which reads the same types for tools' arguments.
Must not know: who asks. Answers that providers want wrapped in an object are wrapped and unwrapped below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, cast, overload

import msgspec
from msgspec import Raw

from dragoman.errors import InvalidAnswerError
from dragoman.providers.options import ResponseFormat
from dragoman.providers.schema import restored
from dragoman.tools.arguments.hints.compile import decoder_of_type, schema_of_type
from dragoman.tools.arguments.json_schema import compile_schema
from dragoman.tools.arguments.problems import InvalidArguments, Problem

__all__ = ["AnswerType", "answer_type", "generate_schema"]

T = TypeVar("T")

_NOT_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_NAME: Final = 64


class AnswerType(Generic[T]):
    """What a model is to answer with, and how its answer is read. Make one with `answer_type`."""

    def __init__(self, response_format: ResponseFormat | None, decode: Callable[[str], T]) -> None:
        self.response_format: ResponseFormat | None = response_format
        """What the model is asked for; None for plain text."""
        self._decode: Callable[[str], T] = decode

    def decode(self, text: str) -> T:
        """The answer in this text, which is JSON unless plain text was asked for. Raises InvalidAnswerError."""
        try:
            return self._decode(text)
        except InvalidArguments as error:
            problems = tuple(map(str, error.problems))
            message = f"The model's answer does not fit: {error}."
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            problems = (str(error),)
            message = f"The model's answer does not fit: {error}."
        raise InvalidAnswerError(message, text=text, problems=problems)


@overload
def answer_type(wanted: type[T], *, name: str | None = None, description: str = "") -> AnswerType[T]: ...
@overload
def answer_type(wanted: AnswerType[T], *, name: str | None = None, description: str = "") -> AnswerType[T]: ...
@overload
def answer_type(wanted: object, *, name: str | None = None, description: str = "") -> AnswerType[Any]: ...
def answer_type(wanted: object, *, name: str | None = None, description: str = "") -> AnswerType[Any]:
    """The type of an answer: a Python type or a JSON Schema, under a name and with a description for the model."""
    if isinstance(wanted, AnswerType):
        return cast("AnswerType[Any]", wanted)
    if wanted is str:
        return AnswerType(None, str)
    schema = generate_schema(wanted)
    read = _schema_reader(schema) if isinstance(wanted, Mapping) else decoder_of_type(wanted)

    def decode(text: str) -> object:
        # Some providers say null for what is absent, or numbers as texts, because of how the schema was put to them.
        try:
            return read(text)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            value = restored(msgspec.json.decode(text), schema)
            return read(msgspec.json.encode(value).decode())

    title = name or str(schema.get("title") or getattr(cast("object", wanted), "__name__", "answer"))
    named = _NOT_A_NAME.sub("_", title).strip("_")[:_LONGEST_NAME] or "answer"
    return AnswerType(
        ResponseFormat(schema=Raw(msgspec.json.encode(schema)), name=named, description=description), decode
    )


def generate_schema(wanted: object) -> dict[str, object]:
    """The JSON Schema of a type: a dataclass, TypedDict, Struct, pydantic model, list, number, …"""
    if isinstance(wanted, Mapping):
        return dict(cast("Mapping[str, object]", wanted))
    return schema_of_type(wanted)


def _schema_reader(schema: dict[str, object]) -> Callable[[str], object]:
    checker = compile_schema(schema)

    def read(text: str) -> object:
        try:
            value: object = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidArguments([Problem((), f"it is not JSON: {error}")]) from None
        if not checker.fits(value):
            raise InvalidArguments(checker.problems(value))
        return value

    return read
