"""Typed answers: the JSON Schema that the model gets, decoding and checking the reply, and the streams of such turns.

Must not know: how a provider is asked (dragoman.providers.structured). Some providers need an object around every
answer; that is added and removed there.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

import dragoman.tools
from dragoman._checks import of_unmade
from dragoman._decoding import decode
from dragoman._stepping import Inner
from dragoman.conversation import (
    AnswerGrown,
    Conversation,
    Event,
    Message,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
)
from dragoman.errors import ConfigurationError, InvalidAnswerError, ToolDefinitionError
from dragoman.loop import AsyncRunStream, Done, LoopIO, LoopSettings, RunContext, RunResult, RunStream
from dragoman.providers import Profile, ResponseFormat, answer_text
from dragoman.tools import (
    Deny,
    InvalidArguments,
    Problem,
    ToolConfig,
    ToolExecutor,
    decoder_of_type,
    forgive,
    parse_text,
    schema_of_type,
)

T = TypeVar("T")

_NAME: Final = "answer"
_LONGEST_NAME: Final = 64
"""OpenAI's limit."""
_SHOWN: Final = 5
_TRIED: Final = 8


def generate_schema(target: object) -> dict[str, object]:
    """The JSON Schema of a type: dataclass, TypedDict, Struct, pydantic model, list[…], Literal, int, …

    A schema is returned as it is.
    """
    if isinstance(target, Mapping):
        return dict(cast("Mapping[str, object]", target))
    try:
        return schema_of_type(target)
    except ToolDefinitionError as error:
        raise _refuse_type(error) from None


class AnswerType(Generic[T]):
    """The type of an answer: its schema, its decoder and its checks. Create one with `answer_type`."""

    def __init__(
        self,
        response_format: ResponseFormat | None,
        decode: Callable[[str], T],
        checks: tuple[Callable[[RunContext[Any], T], object], ...] = (),
    ) -> None:
        self.response_format: ResponseFormat | None = response_format
        """Sent to the model as ModelOptions.response_format; None for plain text."""
        self.checks: tuple[Callable[[RunContext[Any], T], object], ...] = checks
        """Called with each decoded value, in order."""
        self._decode: Callable[[str], T] = decode

    @property
    def name(self) -> str:
        """The schema's name, as the provider gets it."""
        return self.response_format.name if self.response_format is not None else "text"

    @property
    def schema(self) -> dict[str, object]:
        """The JSON Schema; a new dict each time."""
        if self.response_format is None:
            return {"type": "string"}
        return cast("dict[str, object]", msgspec.json.decode(self.response_format.schema))

    def decode(self, text: str) -> T:
        """Decode an answer: JSON, unless the type is plain text.

        Raises InvalidAnswerError, with problems in words that a model can act on.
        """
        try:
            return self._decode(text)
        except (ValueError, msgspec.MsgspecError) as error:
            found = error.problems if isinstance(error, InvalidArguments) else (Problem((), "cannot be read"),)
        problems = tuple(map(str, found))
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        message = f"The answer does not fit: {'; '.join(problems[:_SHOWN])}{more}."
        raise InvalidAnswerError(message, text=text, problems=problems)

    def read(self, message: Message, *, prompted: bool = False) -> T:
        """Decode a reply: its last text, or the code block in it.

        `prompted`: nothing but the prompt asks for JSON (profile.structured is "prompt"), so words may surround it.
        """
        text = message.text if self.response_format is None else answer_text(message)
        try:
            return self.decode(text)
        except InvalidAnswerError:
            if prompted and (inner := _find_json(text)) is not None:
                return self.decode(inner)
            raise

    @of_unmade
    def __repr__(self) -> str:
        return f"<AnswerType {self.name}>"


Check: TypeAlias = (
    Callable[[T], T | Awaitable[T | None] | None] | Callable[[RunContext[Any], T], T | Awaitable[T | None] | None]
)
"""Checks a decoded answer; a sync or async function of the value, or of the RunContext and the value.

It returns the value, another one to use instead, or None to keep it; or it raises ValueError with a reason for the
model. Any other error ends the run.
"""

Checks: TypeAlias = Check[T] | Sequence[Check[T]]


@overload
def answer_type(
    target: type[T] | AnswerType[T], *, name: str | None = None, description: str = "", check: Checks[T] = ()
) -> AnswerType[T]: ...
@overload
def answer_type(
    target: object, *, name: str | None = None, description: str = "", check: Checks[Any] = ()
) -> AnswerType[Any]: ...
def answer_type(
    target: object, *, name: str | None = None, description: str = "", check: Checks[Any] = ()
) -> AnswerType[Any]:
    """The answer type for a Python type or a JSON Schema; `str` is plain text.

    `check` is a function, or several, that the decoded answer must pass; see `Check`.
    """
    made = _make_type(target, name, description)
    checks = tuple(map(_with_context, cast("Sequence[Any]", check) if isinstance(check, Sequence) else (check,)))
    if checks:
        made = copy(made)
        made.checks = (*made.checks, *checks)
    return made


def _make_type(target: object, name: str | None, description: str) -> AnswerType[Any]:
    if isinstance(target, AnswerType):
        return cast("AnswerType[Any]", target)
    if target is str:
        return AnswerType(None, str)
    try:
        encoded = msgspec.json.encode(generate_schema(target))
        schema = cast("dict[str, object]", decode(encoded))
    except (TypeError, ValueError, RecursionError):
        message = "The JSON Schema of the answer contains something that is not JSON."
        raise ConfigurationError(message, hint="Use texts, numbers, lists and dicts only.") from None
    is_schema = isinstance(target, Mapping)
    read = _make_schema_decoder(schema) if is_schema else decoder_of_type(target)
    described = schema.get("description")
    wanted = ResponseFormat(
        schema=Raw(encoded),
        # Every provider accepts such a name.
        name=re.sub(r"[^A-Za-z0-9_-]+", "_", name or _find_name(target)).strip("_")[:_LONGEST_NAME] or _NAME,
        description=description or (described if isinstance(described, str) else ""),
    )
    return AnswerType(wanted, read)


# --- decoding ---------------------------------------------------------------------------------------------------------


def _make_schema_decoder(schema: dict[str, object]) -> Callable[[str], object]:
    try:
        checker = dragoman.tools.compile_schema(schema)  # it loads the schema library
    except ToolDefinitionError as error:
        raise _refuse_type(error) from None

    def read(text: str) -> object:
        value = parse_text(text)
        problems = checker.problems(value)
        # In a strict schema every property is required, and null stands for an optional one that is absent.
        if problems and checker.fits(again := forgive(value, checker.unwanted_nulls(value))):
            return again
        if problems:
            raise InvalidArguments(problems)
        return value

    return read


def _find_json(text: str) -> str | None:
    """The first complete JSON object or list in a text; only a few starting points are tried."""
    for start in islice(re.finditer(r"[{\[]", text), _TRIED):
        try:
            _, end = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):  # what it finds is measured when it is decoded
            continue
        return text[start.start() : end]
    return None


def _with_context(check: Callable[..., object]) -> Callable[[RunContext[Any], Any], object]:
    """The check as a function of RunContext and value."""
    from inspect import Parameter, signature  # slow to load, and needed only for checks

    if not callable(check):
        raise ConfigurationError(f"{check!r} cannot check an answer.", hint="Pass a function of the value.")
    try:
        found = signature(check)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return lambda _context, value: check(value)
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in found.parameters.values() if each.default is Parameter.empty and each.kind in by_place]
    try:
        found.bind(*needed[:2] or [None])
    except TypeError as error:
        name = getattr(check, "__name__", repr(check))
        message = f"{name!r} cannot check an answer: {error}."
        raise ConfigurationError(message, hint="Let it take the value, or the RunContext and the value.") from None
    return check if len(needed) > 1 else lambda _context, value: check(value)


def _find_name(target: object) -> str:
    if isinstance(target, Mapping):
        title = cast("Mapping[str, object]", target).get("title")
        return title if isinstance(title, str) else ""
    name: object = getattr(target, "__name__", "")
    # The name of a built-in type says nothing: that of list[int] is `list`.
    own = getattr(target, "__module__", "builtins") not in ("builtins", "typing")
    return name if own and isinstance(name, str) else ""


def _refuse_type(error: ToolDefinitionError) -> ConfigurationError:
    return ConfigurationError(f"An answer cannot be of this type: {error.message}", hint=error.hint)


# --- asking -----------------------------------------------------------------------------------------------------------

_AGAIN: Final = (
    "That answer cannot be used:\n{problems}\n"
    "Give the whole answer again, corrected, in the requested form and with nothing else."
)
_WHY_NOT: Final = {
    StopReason.MAX_TOKENS: "The answer was cut at the limit of tokens. Raise max_tokens, or ask for less.",
    StopReason.CONTEXT_FULL: "The model's window was full before the answer was. Shorten the history.",
    StopReason.REFUSAL: "The model declined to answer. See error.text, and rephrase the question.",
    StopReason.CONTENT_FILTER: "The provider withheld the answer. Rephrase the question.",
}
"""Endings after which asking again is pointless, and what to do instead."""


class TypedResult(RunResult, Generic[T], frozen=True):
    """The result of a run with a typed answer."""

    given: T | UnsetType = UNSET

    @property
    def answer(self) -> T:
        """The answer. Raises ConfigurationError if there is none, because the run waits for approval or was stopped."""
        if self.given is UNSET:
            message = "There is no answer: the turn ended before the model gave one."
            hint = "See result.ending; continue with chat(approvals=…, answer=…)."
            raise ConfigurationError(message, hint=hint)
        return cast("T", self.given)


class AnswerJudge(Generic[T]):
    """Decodes and checks the answer of one turn, and tells the model what is wrong with it, as often as allowed."""

    def __init__(self, wanted: AnswerType[T], retries: int) -> None:
        self.wanted: AnswerType[T] = wanted
        self._retries_left: int = retries
        self._value: T | UnsetType = UNSET

    def settings(self, settings: LoopSettings) -> LoopSettings:
        """The settings of a turn with this judge and its schema."""
        options = msgspec.structs.replace(settings.options, response_format=self.wanted.response_format)
        return msgspec.structs.replace(settings, options=options, judge=self)

    async def __call__(self, message: Message, context: RunContext[Any], io: LoopIO) -> Message | None:
        try:
            if message.cut_off and self.wanted.response_format is not None:  # it may fit all the same: 7 of 735
                raise InvalidAnswerError("The answer is not whole.", text=message.text)
            value = self.wanted.read(message, prompted=_may_have_words_around(io.engine.profile))
            self._value = await self._check(value, message, context, io)
        except InvalidAnswerError as error:
            error.text = error.text or message.text
            hopeless = _WHY_NOT.get(message.stop_reason or StopReason.END)
            error.hint = hopeless or error.hint
            if self._retries_left <= 0 or hopeless is not None:
                raise
            self._retries_left -= 1
            problems = "\n".join([f"- {problem}" for problem in error.problems or (error.message,)])
            return Message.user(_AGAIN.format(problems=problems))
        return None

    async def _check(self, value: T, message: Message, context: RunContext[Any], io: LoopIO) -> T:
        for check in self.wanted.checks:
            try:
                returned = check(context, value)
                if isinstance(returned, Awaitable):
                    returned = await io.wait_for(cast("Awaitable[Any]", returned))
            except ValueError as error:
                reason = str(error) or type(error).__name__
                text = answer_text(message)
                raise InvalidAnswerError(f"The answer was refused: {reason}", text=text, problems=(reason,)) from error
            if isinstance(returned, bool) and not isinstance(value, bool):
                problem = f"A check of the answer returned {returned}, which would replace the answer."
                raise ConfigurationError(problem, hint="Return the value, or raise ValueError with a reason.")
            value = value if returned is None else cast("T", returned)
        return value

    def result(self, result: RunResult) -> TypedResult[T]:
        """The run's result with the answer."""
        given = self._value if isinstance(result.ending, Done) else UNSET  # a plain text may be empty, and no answer
        return TypedResult(**msgspec.structs.asdict(result), given=given)


def _may_have_words_around(profile: Profile) -> bool:
    """Whether the reply may have words around the JSON, since not every request enforces the schema."""
    return profile.structured != "native" or not profile.native_beside_tools


def without_tools(profile: Profile, conversation: Conversation, tools: ToolExecutor) -> ToolExecutor:
    """An executor without tools, or, for a provider that requires those of the history, one that runs none of them."""
    has_tools = profile.needs_tools_of_history and any(each.role == "tool" for each in conversation.messages)
    config = ToolConfig(search=tools.config.search, always_offered=tools.config.always_offered)
    return dragoman.tools.ToolExecutor(tools.tools if has_tools else (), config, permission=_no_tools)


def _no_tools(*_: object) -> Deny:
    return Deny("no tools are used for this answer")


# --- streams ----------------------------------------------------------------------------------------------------------

_SHARE: Final = 16
"""A text is parsed again when it has grown by this fraction of its length, so that the total cost is linear."""


async def grow(events: AsyncGenerator[Event, None], wanted: AnswerType[Any]) -> AsyncGenerator[Event, None]:
    """The events of a turn, and an AnswerGrown whenever there is more of the answer."""
    reader = None if wanted.response_format is None else dragoman.tools.PartialReader(wanted.schema)
    text, unread, length, value = "", list[str](), 0, object()
    async with Inner(events) as inner:
        async for event in inner:
            yield event
            if isinstance(event, TextStarted):
                text, unread, length, value = "", [], 0, UNSET
            elif isinstance(event, TextDelta):
                unread.append(event.text)
                length += len(event.text)
            elif not isinstance(event, TextEnded):
                continue
            ended = isinstance(event, TextEnded)
            if reader is None or not (ended or length - len(text) > len(text) // _SHARE):
                continue
            text, unread = text + "".join(unread), []
            now = reader.read(text, ended=ended)
            if now is not UNSET and now != value:
                value = now
                yield AnswerGrown(now)


class TypedStream(RunStream, Generic[T]):
    """The stream of a turn with a typed answer."""

    @property
    def result(self) -> TypedResult[T]:
        """The result, once the turn has ended."""
        return cast("TypedResult[T]", super().result)

    def answers(self) -> Iterator[Any]:
        """The answer so far, as JSON values, whenever there is more of it."""
        return (event.value for event in self if isinstance(event, AnswerGrown))


class AsyncTypedStream(AsyncRunStream, Generic[T]):
    """The stream of a turn with a typed answer."""

    @property
    def result(self) -> TypedResult[T]:
        """The result, once the turn has ended."""
        return cast("TypedResult[T]", super().result)

    def answers(self) -> AsyncIterator[Any]:
        """The answer so far, as JSON values, whenever there is more of it."""
        return (event.value async for event in self if isinstance(event, AnswerGrown))
