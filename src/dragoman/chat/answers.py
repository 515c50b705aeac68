"""Answers of a given type: the JSON Schema that is asked for, reading what comes back, and asking until it fits.

Owns: generate_schema; AnswerType, which is both halves for one type or one JSON Schema; Question.
Must not know: how a provider is asked (dragoman.providers.structured). An answer that is no object is put into one
there, where a provider wants it, and taken out again before it gets here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, Generic, Literal, TypeVar, cast, overload

import msgspec
from msgspec import Raw

import dragoman.tools
from dragoman.conversation import Conversation, Message, StopReason
from dragoman.errors import (
    ConfigurationError,
    InvalidAnswerError,
    LimitReachedError,
    StoppedError,
    ToolDefinitionError,
)
from dragoman.loop import Cancelled, LimitReached, RunResult
from dragoman.providers import ModelOptions, Profile, ResponseFormat, answer_text, restored
from dragoman.tools import (
    DEEPEST,
    TOO_DEEP,
    Deny,
    InvalidArguments,
    Problem,
    ToolConfig,
    ToolExecutor,
    decoder_of_type,
    deeper_than,
    parse_text,
    schema_of_type,
)

T = TypeVar("T")

_NAME: Final = "answer"
_LONGEST_NAME: Final = 64
"""OpenAI takes no longer one."""
_SHOWN: Final = 5
_TRIED: Final = 8
_READER: Final = json.JSONDecoder()


def generate_schema(target: object) -> dict[str, object]:
    """The JSON Schema of a type: dataclass, TypedDict, Struct, pydantic model, list[…], Literal, int, …; or itself."""
    if isinstance(target, Mapping):
        return dict(cast("Mapping[str, object]", target))
    try:
        return schema_of_type(target)
    except ToolDefinitionError as error:
        raise _refuse_type(error) from None


class AnswerType(Generic[T]):
    """What an answer must be, and how it is read. Make one with `answer_type`."""

    def __init__(self, response_format: ResponseFormat | None, decode: Callable[[str], T]) -> None:
        self.response_format: ResponseFormat | None = response_format
        """What the model is asked for (ModelOptions.response_format); None for plain text."""
        self._decode: Callable[[str], T] = decode

    @property
    def name(self) -> str:
        """What the provider is told that the schema is called."""
        return self.response_format.name if self.response_format is not None else "text"

    @property
    def schema(self) -> dict[str, object]:
        """The JSON Schema that is asked for; a fresh dict each time."""
        if self.response_format is None:
            return {"type": "string"}
        return cast("dict[str, object]", msgspec.json.decode(self.response_format.schema))

    def decode(self, text: str) -> T:
        """The value of an answer, which is JSON unless plain text was asked for.

        Raises InvalidAnswerError, whose problems are in words that a model can act on.
        """
        try:
            return self._decode(text)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            found = error.problems if isinstance(error, InvalidArguments) else (Problem((), "cannot be read"),)
        problems = tuple(map(str, found))
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        message = f"The answer does not fit: {'; '.join(problems[:_SHOWN])}{more}."
        raise InvalidAnswerError(message, text=text, problems=problems)

    def read(self, message: Message, *, prompted: bool = False) -> T:
        """The value of a reply: its last text, or what stands in the code fence of it.

        `prompted`: the model was only asked nicely (profile.structured is "prompt"), so there may be words around it.
        """
        text = message.text if self.response_format is None else answer_text(message)
        try:
            return self.decode(text)
        except InvalidAnswerError:
            if prompted and (inner := _find_json(text)) is not None:
                return self.decode(inner)
            raise

    def __repr__(self) -> str:
        return f"<AnswerType {self.name}>"


@overload
def answer_type(target: type[T], *, name: str | None = None, description: str = "") -> AnswerType[T]: ...
@overload
def answer_type(target: AnswerType[T], *, name: str | None = None, description: str = "") -> AnswerType[T]: ...
@overload
def answer_type(target: object, *, name: str | None = None, description: str = "") -> AnswerType[Any]: ...
def answer_type(target: object, *, name: str | None = None, description: str = "") -> AnswerType[Any]:
    """What an answer of a Python type, or of a raw JSON Schema, is asked for with and read by; `str` is plain text."""
    if isinstance(target, AnswerType):
        return cast("AnswerType[Any]", target)
    if target is str:
        return AnswerType(None, str)
    schema = generate_schema(target)
    is_schema = isinstance(target, Mapping)
    decode = _make_schema_decoder(schema) if is_schema else _make_type_decoder(target, schema)
    described = schema.get("description")
    wanted = ResponseFormat(
        schema=Raw(msgspec.json.encode(schema)),
        # Every provider takes such a name.
        name=re.sub(r"[^A-Za-z0-9_-]+", "_", name or _find_name(target)).strip("_")[:_LONGEST_NAME] or _NAME,
        description=description or (described if isinstance(described, str) else ""),
    )
    return AnswerType(wanted, decode)


# --- decoding ---------------------------------------------------------------------------------------------------------


def _make_type_decoder(target: object, schema: dict[str, object]) -> Callable[[str], object]:
    decode = decoder_of_type(target)

    def decoded(text: str) -> object:
        try:
            return decode(text)
        except InvalidArguments as error:
            # Some dialects change schemas in ways that change values (null for absent, texts for listed numbers).
            again = msgspec.json.encode(restored(parse_text(text), schema)).decode()
            try:
                return decode(again)
            except InvalidArguments:
                raise error from None

    return decoded


def _make_schema_decoder(schema: Mapping[str, object]) -> Callable[[str], object]:
    try:
        plain = cast("dict[str, object]", msgspec.json.decode(msgspec.json.encode(schema)))
        checker = dragoman.tools.compile_schema(plain)  # it loads the schema library
    except ToolDefinitionError as error:
        raise _refuse_type(error) from None
    except (TypeError, ValueError, RecursionError):
        message = "The JSON Schema of the answer holds something that is not JSON."
        raise ConfigurationError(message, hint="Use texts, numbers, lists and dicts only.") from None

    def decoded(text: str) -> object:
        value = parse_text(text)
        if deeper_than(DEEPEST, value):  # the schema library uses the stack
            raise InvalidArguments([Problem((), TOO_DEEP)])
        problems = checker.problems(value)
        if problems and checker.fits(again := restored(value, plain)):
            return again
        if problems:
            raise InvalidArguments(problems)
        return value

    return decoded


def _find_json(text: str) -> str | None:
    """The first object or list in a text that is JSON as a whole; only a few beginnings are tried."""
    for start in islice(re.finditer(r"[{\[]", text), _TRIED):
        try:
            _, end = _READER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        return text[start.start() : end]
    return None


# --- words ------------------------------------------------------------------------------------------------------------


def _find_name(target: object) -> str:
    if isinstance(target, Mapping):
        title = cast("Mapping[str, object]", target).get("title")
        return title if isinstance(title, str) else ""
    name: object = getattr(target, "__name__", "")
    # What is built in (list[int] is a `list`) has a name that says nothing.
    own = getattr(target, "__module__", "builtins") not in ("builtins", "typing")
    return name if own and isinstance(name, str) else ""


def _refuse_type(error: ToolDefinitionError) -> ConfigurationError:
    return ConfigurationError(f"An answer cannot be of this type: {error.message}", hint=error.hint)


# --- asking -----------------------------------------------------------------------------------------------------------

_AGAIN: Final = (
    "That answer cannot be used:\n{problems}\n"
    "Give the whole answer again, corrected, in the form that was asked for and with nothing else."
)
_WHY_NOT: Final = {
    StopReason.MAX_TOKENS: "The answer was cut at the limit of tokens. Raise max_tokens, or ask for less.",
    StopReason.CONTEXT_FULL: "The model's window was full before the answer was. Shorten the history.",
    StopReason.REFUSAL: "The model declined to answer. See error.text, and rephrase the question.",
    StopReason.CONTENT_FILTER: "The provider withheld the answer. Rephrase the question.",
}
"""Endings after which asking the same again would bring the same, and what to do instead."""


class Question:
    """A question under way: how its turns are made, and what is done with an answer that does not fit."""

    def __init__(
        self,
        wanted: AnswerType[Any],
        profile: Profile,
        conversation: Conversation,
        tools: ToolExecutor,
        retries: int,
    ) -> None:
        self._wanted: AnswerType[Any] = wanted
        self._left: int = retries
        self._hopeless: str | None = None
        self._prompted: bool = profile.structured == "prompt"
        # The answer is asked for without tools. A provider that wants to know the tools of the history is told of them,
        # and that none may be called.
        told = profile.needs_tools_of_history and any(each.role == "tool" for each in conversation.messages)
        self._choice: Literal["none", "auto"] = "none" if told else "auto"
        config = ToolConfig(search=tools.config.search, always_offered=tools.config.always_offered)
        offered = tools.tools if told else ()
        self.executor: ToolExecutor = dragoman.tools.ToolExecutor(offered, config, permission=_no_tools)

    def options(self, options: ModelOptions) -> ModelOptions:
        """What the model is asked for; the schema belongs to this question alone."""
        return msgspec.structs.replace(
            options,
            tool_choice=self._choice,
            parallel_tool_calls=None,
            response_format=self._wanted.response_format,
        )

    def read(self, result: RunResult) -> object:
        """The value of the answer. Raises InvalidAnswerError if it does not fit."""
        if isinstance(result.ending, Cancelled):
            raise StoppedError("The question was cancelled.")
        if isinstance(result.ending, LimitReached):
            raise LimitReachedError(str(result.ending), conversation=result.conversation, limit=result.ending.limit)
        message = result.replies[-1].message
        try:
            return self._wanted.read(message, prompted=self._prompted)
        except InvalidAnswerError as error:
            error.text = error.text or message.text
            self._hopeless = _WHY_NOT.get(message.stop_reason or StopReason.END)
            raise

    def correct(self, error: InvalidAnswerError) -> str:
        """What the model is told of an answer that does not fit; raises the error if it is not asked again."""
        if self._hopeless is not None:
            error.hint = self._hopeless
        if self._left <= 0 or self._hopeless is not None:
            raise error
        self._left -= 1
        return _AGAIN.format(problems="\n".join([f"- {problem}" for problem in error.problems or (error.message,)]))


def _no_tools(*_: object) -> Deny:
    return Deny("no tools are used for this answer")
