"""What the simulator needs of a dialect: reading its requests, writing its replies and its errors.

Must not know: any particular dialect, connections, faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import ClassVar, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Block, Json, Native, ResultPart, StopReason, Text, ToolCall, ToolResult, Usage
from dragoman.errors import ToolValidationError

from .exchange import Chunking, Content, DialectName, Request

JsonObject: TypeAlias = dict[str, object]

FrameKind: TypeAlias = Literal["start", "part", "delta", "other", "finish", "end"]
"""start: the reply begins; part: a part of it begins; finish: says why it ended; end: the very last mark."""

ErrorForm: TypeAlias = Literal["event", "nested", "failed"]


class Frame(Struct, frozen=True):
    """One event of a stream, before it is written out."""

    data: JsonObject | bytes
    name: str = ""
    kind: FrameKind = "other"


class Refusal(Struct, frozen=True):
    """An error, before a dialect has given it its shape."""

    status: int
    message: str
    code: str | None = None
    """A provider's own word for the error; None: the dialect's usual one for the status."""
    param: str | None = None
    retry_after: str | None = None
    """Seconds, for a dialect that also says so in the body."""


class UnwritableReplyError(ValueError):
    """The script's reply has something that this dialect cannot carry."""


class Answer(Struct, frozen=True, kw_only=True):
    """A scripted reply with everything decided that the script left open."""

    blocks: tuple[Block, ...]
    """Only what this dialect can read."""
    usage: Usage | None
    """None: nothing is reported."""
    stop_reason: StopReason
    raw_stop_reason: str | None
    model: str
    chunking: Chunking
    request: Request

    def id(self, prefix: str) -> str:
        """An id of this reply: the same in every run."""
        return f"{prefix}sim{self.request.number:06d}"

    def pieces(self, text: str) -> list[str]:
        """The text in pieces of one delta each."""
        return self.chunking.pieces(text)


class Dialect(ABC):
    """A dialect, from the server's side."""

    name: ClassVar[DialectName]
    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    """The content type of streams."""
    whole_type: ClassVar[str] = "application/json"
    """The content type of everything else."""

    @abstractmethod
    def read(self, body: JsonObject) -> Content:
        """The request in the terms of all dialects."""

    @abstractmethod
    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[Refusal]:
        """What the provider would refuse. A rule that is not here is not checked."""

    @abstractmethod
    def whole(self, answer: Answer) -> JsonObject:
        """The reply as one value."""

    @abstractmethod
    def frames(self, answer: Answer) -> list[Frame]:
        """The reply as events."""

    @abstractmethod
    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        """The body of an error."""

    def failure_in_stream(self, refusal: Refusal, answer: Answer, number: int, form: ErrorForm) -> list[Frame]:
        """The events of an error in a stream that began well; `number` counts the events before."""
        del number, form
        return [Frame(self.failure(refusal, answer.id("req_")), kind="end")]

    def failure_in_whole(self, refusal: Refusal, answer: Answer, form: ErrorForm) -> JsonObject:
        """A reply with status 200 that nevertheless is an error, as some gateways answer."""
        del form
        return self.failure(refusal, answer.id("req_"))

    def with_unknown(self, answer: Answer, frames: list[Frame], index: int) -> list[Frame]:
        """The events with one more at this index, of a kind that no client knows yet."""
        return [*frames[:index], self.unknown_event(answer), *frames[index:]]

    @abstractmethod
    def unknown_event(self, answer: Answer) -> Frame:
        """An event of a kind that no client knows yet."""

    @abstractmethod
    def bad_key(self, given: str | None) -> Refusal:
        """The refusal of a wrong key, or of none."""

    @abstractmethod
    def headers(self, request_id: str) -> dict[str, str]:
        """Headers of every response."""


# --- for the dialects ------------------------------------------------------------------------------------------------

_TEXT_PARTS: Final = ("text", "input_text", "output_text")


def members(value: object) -> JsonObject:
    """The value as an object; an empty one if it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """The value as an array; an empty one if it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def objects(value: object) -> list[JsonObject]:
    """The value as an array of objects."""
    return [members(item) for item in items(value)]


def string(value: object) -> str:
    """The value as a text; an empty one if it is something else."""
    return value if isinstance(value, str) else ""


def text_of(content: object) -> str:
    """The text of a message: the content itself, or that of its text parts."""
    if isinstance(content, str):
        return content
    return "".join(string(part.get("text")) for part in objects(content) if part.get("type") in _TEXT_PARTS)


def result_parts(content: object) -> tuple[ResultPart, ...]:
    """The content of a tool's result; what is not text stays JSON."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        Text(string(part.get("text"))) if part.get("type") in _TEXT_PARTS else Json(Raw(msgspec.json.encode(part)))
        for part in objects(content)
    )


class Transcript:
    """What a script sees of a request, collected while a dialect walks through its messages."""

    def __init__(self) -> None:
        self._system: list[str] = []
        self._texts: list[str] = []
        self._names: dict[str, str] = {}
        self._results: list[ToolResult] = []
        self._turns = 0
        self._in_reply = False

    def add_system(self, text: str) -> None:
        """A system prompt, or a further part of it."""
        self._system.append(text)

    def add_user(self, text: str) -> None:
        """A message of the user."""
        self._in_reply = False
        self._texts.append(text)

    def add_reply(self) -> None:
        """Something that the model said; neighbours are one reply."""
        self._turns += not self._in_reply
        self._in_reply = True
        self._results = []

    def add_call(self, call_id: object, name: object) -> None:
        """A call of a tool."""
        self._names[string(call_id)] = string(name)

    def add_result(
        self, call_id: object, content: tuple[ResultPart, ...], *, name: str = "", failed: bool = False
    ) -> None:
        """The result of a call; its tool is that of the call, unless it says so itself."""
        self._in_reply = False
        made_for = string(call_id)
        self._results.append(ToolResult(made_for, name or self._names.get(made_for, ""), content, is_error=failed))

    def content(self, tools: list[JsonObject]) -> Content:
        """All of it, and the tools that are offered."""
        return Content(
            system="\n".join(filter(None, self._system)),
            user_texts=tuple(filter(None, self._texts)),
            tool_results=tuple(self._results),
            tools=tuple(string(tool.get("name")) for tool in tools),
            turns=self._turns,
        )


def native_fields(native: Native | None) -> JsonObject:
    """The provider's own fields of a block."""
    fields = {} if native is None else native.fields
    return {name: cast("object", msgspec.json.decode(raw)) for name, raw in fields.items()}


def parsed_arguments(call: ToolCall, problem: str) -> JsonObject:
    """The arguments of a call, for a dialect that sends them as an object. Raises UnwritableReplyError."""
    try:
        return call.parsed
    except ToolValidationError as error:
        message = f"{error.message} {problem}"
        raise UnwritableReplyError(message) from None


# --- signatures that prove nothing, except that they came back unchanged ---------------------------------------------

_MARK = b"dragoman-simulator:"


def sign(text: str) -> str:
    """A signature of this text: valid base64, as providers' are, and the same every time."""
    return b64encode(_MARK + sha256(text.encode()).digest()[:12]).decode()


def is_spoilt(signature: str, text: str) -> bool:
    """Whether this is a signature made here, but of another text. Signatures of others pass."""
    found = _decode(signature)
    return found.startswith(_MARK) and found != _decode(sign(text))


def _decode(signature: str) -> bytes:
    # One of the official SDKs sends back what it got in the URL-safe alphabet.
    try:
        return b64decode(signature.translate(str.maketrans("-_", "+/")), validate=True)
    except ValueError:
        return b""
