"""Answers of a given type: the JSON Schema that is asked for, reading what comes back, and asking until it fits.

Owns: generate_schema; AnswerType, which is both halves for one type or one JSON Schema; AnswerJudge.
Must not know: how a provider is asked (dragoman.providers.structured). An answer that is no object is put into one
there, where a provider wants it, and taken out again before it gets here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, overload

import msgspec
from msgspec import Raw

import dragoman.tools
from dragoman.conversation import Conversation, Message, StopReason
from dragoman.errors import (
    ConfigurationError,
    InvalidAnswerError,
    ToolDefinitionError,
)
from dragoman.loop import LoopIO, LoopSettings, RunContext, RunResult
from dragoman.providers import Profile, ResponseFormat, answer_text, restored
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

    def __init__(
        self,
        response_format: ResponseFormat | None,
        decode: Callable[[str], T],
        checks: tuple[Callable[[RunContext[Any], T], object], ...] = (),
    ) -> None:
        self.response_format: ResponseFormat | None = response_format
        """What the model is asked for (ModelOptions.response_format); None for plain text."""
        self.checks: tuple[Callable[[RunContext[Any], T], object], ...] = checks
        """What a value that fits is put before, one after the other."""
        self._decode: Callable[[str], T] = decode

    def checked_by(self, *checks: Check[T]) -> AnswerType[T]:
        """The same, put before these checks too."""
        return AnswerType(self.response_format, self._decode, (*self.checks, *map(_with_context, checks)))

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


Check: TypeAlias = (
    Callable[[T], T | Awaitable[T | None] | None] | Callable[[RunContext[Any], T], T | Awaitable[T | None] | None]
)
"""Looks at an answer that fits, with the RunContext before it or without, plain or async.

It gives the value back, or another one in its place (nothing: the same), or raises ValueError with a reason that the
model reads. Any other error ends the run.
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
    """What an answer of a Python type, or of a raw JSON Schema, is asked for with and read by; `str` is plain text.

    `check` is a function, or several, that an answer which fits must pass; see `Check`.
    """
    made = _make_type(target, name, description)
    checks = tuple(cast("Sequence[Check[Any]]", check)) if isinstance(check, Sequence) else (check,)
    return made.checked_by(*checks) if checks else made


def _make_type(target: object, name: str | None, description: str) -> AnswerType[Any]:
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


def _with_context(check: Callable[..., object]) -> Callable[[RunContext[Any], Any], object]:
    """A check that takes the RunContext, whether this one does or not."""
    from inspect import Parameter, signature  # slow to load, and needed only for checks

    if not callable(check):
        raise ConfigurationError(f"{check!r} is no check of an answer.", hint="Give a function of the value.")
    try:
        found = signature(check)
    except (TypeError, ValueError):  # some built-in functions do not tell their parameters
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


class TypedResult(RunResult, Generic[T], frozen=True):
    """What came of a run that was asked for an answer of a type."""

    given: T | msgspec.UnsetType = msgspec.UNSET

    @property
    def answer(self) -> T:
        """The answer. ConfigurationError if the run has not come to one: it waits for a person, or was stopped."""
        if self.given is msgspec.UNSET:
            message = "There is no answer: the turn ended before the model gave one."
            hint = "See result.ending; go on with chat(approvals=…, answer=…)."
            raise ConfigurationError(message, hint=hint)
        return cast("T", self.given)


class AnswerJudge(Generic[T]):
    """The judge of one turn: reads the answer, has it checked, and says what is wrong with it, as often as allowed."""

    def __init__(self, wanted: AnswerType[T], retries: int) -> None:
        self.wanted: AnswerType[T] = wanted
        self._left: int = retries
        self._value: T | msgspec.UnsetType = msgspec.UNSET

    def settings(self, settings: LoopSettings) -> LoopSettings:
        """The settings of a turn with this judge; its schema belongs to this turn alone."""
        options = msgspec.structs.replace(settings.options, response_format=self.wanted.response_format)
        return msgspec.structs.replace(settings, options=options, judge=self)

    async def __call__(self, message: Message, context: RunContext[Any], io: LoopIO) -> Message | None:
        try:
            value = self.wanted.read(message, prompted=_is_only_asked(io.engine.profile))
            self._value = await self._check(value, message, context, io)
        except InvalidAnswerError as error:
            error.text = error.text or message.text
            hopeless = _WHY_NOT.get(message.stop_reason or StopReason.END)
            error.hint = hopeless or error.hint
            if self._left <= 0 or hopeless is not None:
                raise
            self._left -= 1
            problems = "\n".join([f"- {problem}" for problem in error.problems or (error.message,)])
            return Message.user(_AGAIN.format(problems=problems))
        return None

    async def _check(self, value: T, message: Message, context: RunContext[Any], io: LoopIO) -> T:
        for check in self.wanted.checks:
            try:
                said = check(context, value)
                if isinstance(said, Awaitable):
                    said = await io.wait_for(cast("Awaitable[Any]", said))
            except ValueError as error:
                reason = str(error) or type(error).__name__
                text = answer_text(message)
                raise InvalidAnswerError(f"The answer was refused: {reason}", text=text, problems=(reason,)) from error
            if isinstance(said, bool) and not isinstance(value, bool):
                problem = f"A check of the answer gave back {said}, which would be the answer then."
                raise ConfigurationError(problem, hint="Return the value, or raise ValueError with a reason.")
            value = value if said is None else cast("T", said)
        return value

    def result(self, result: RunResult) -> TypedResult[T]:
        """The result with the answer."""
        return TypedResult(**msgspec.structs.asdict(result), given=self._value)


def _is_only_asked(profile: Profile) -> bool:
    """Whether a model may answer with words around the JSON, since it is not held to a schema in every request."""
    return profile.structured != "native" or not profile.native_beside_tools


def without_tools(profile: Profile, conversation: Conversation, tools: ToolExecutor) -> ToolExecutor:
    """What stands in for the tools of a question. A provider that wants those of the history is told of them."""
    told = profile.needs_tools_of_history and any(each.role == "tool" for each in conversation.messages)
    config = ToolConfig(search=tools.config.search, always_offered=tools.config.always_offered)
    return dragoman.tools.ToolExecutor(tools.tools if told else (), config, permission=_no_tools)


def _no_tools(*_: object) -> Deny:
    return Deny("no tools are used for this answer")
