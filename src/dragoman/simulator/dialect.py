"""What the simulator needs of a dialect: reading its requests, writing its replies and its errors; routes to it.

Must not know: any particular dialect, connections, faults.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from hashlib import sha256
from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import Citation, Opaque, StopReason, Text, ToolCall, Usage
from dragoman.errors import ToolValidationError

from .exchange import DialectName, JsonObject, Part, Request, Transcript, members

FrameKind: TypeAlias = Literal["start", "part", "delta", "other", "finish", "end"]
"""start: the reply begins; part: a part of it begins; finish: says why it ended; end: the very last mark."""


class Frame(Struct, frozen=True):
    """One event of a stream, before it is written out."""

    data: JsonObject | bytes
    name: str = ""
    kind: FrameKind = "other"

    @property
    def encoded(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else msgspec.json.encode(self.data)


class Refusal(Exception):  # noqa: N818 -- what the provider does
    """The provider refuses a request, or fails; a dialect gives this its shape.

    `code` is a provider's own word for it; None: the dialect's usual one for the status. `retry_after` are seconds, for
    a dialect that also says so in the body.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        *,
        retry_after: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status: int = status
        self.message: str = message
        self.code: str | None = code
        self.param: str | None = param
        self.retry_after: str | None = retry_after


class ScriptError(Exception):
    """The script has no reply for this request, or one that this dialect cannot carry."""


class Answer(Struct, frozen=True, kw_only=True):
    """A scripted reply with everything decided that the script left open."""

    blocks: tuple[Part, ...]
    usage: Usage | None
    """None: nothing is reported."""
    stop_reason: StopReason
    raw_stop_reason: str | None
    model: str
    delta: int
    request: Request

    def id(self, prefix: str) -> str:
        """An id of this reply: the same in every run."""
        return f"{prefix}sim{self.request.number:06d}"

    @property
    def texts(self) -> list[Text]:
        return [block for block in self.blocks if isinstance(block, Text)]

    def pieces(self, text: str) -> list[str]:
        """The text in pieces of one event each; an empty text has none."""
        size = self.delta or max(len(text), 1)
        return [text[start : start + size] for start in range(0, len(text), size)]

    def arguments(self, call: ToolCall) -> JsonObject:
        """The arguments of a call, for a dialect that sends them as an object. Raises ScriptError."""
        try:
            return call.parsed
        except ToolValidationError as error:
            message = f"{error.message} This dialect has no form for broken arguments, but perhaps in a stream."
            raise ScriptError(message) from None


class Growing(Struct, frozen=True):
    """A part of a reply: as it starts in a stream, what is added to it there, and as it is in a whole reply."""

    start: JsonObject
    deltas: list[JsonObject]
    whole: JsonObject


class Dialect(ABC):
    """A dialect, from the server's side."""

    name: ClassVar[DialectName]
    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    whole_type: ClassVar[str] = "application/json"
    has_comments: ClassVar[bool] = True
    """Whether a stream may have comments between its events."""

    @abstractmethod
    def read(self, body: JsonObject) -> Transcript:
        """The request in the terms of all dialects."""

    @abstractmethod
    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[str | Refusal]:
        """What the provider would refuse besides calls without results. A rule that is not here is not checked."""

    @abstractmethod
    def whole(self, answer: Answer) -> JsonObject:
        """The reply as one value."""

    @abstractmethod
    def frames(self, answer: Answer) -> list[Frame]:
        """The reply as events."""

    def count(self, tokens: int) -> JsonObject:
        """The answer to somebody who asks how many tokens a request has."""
        return {"input_tokens": tokens}

    @abstractmethod
    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        """The body of an error."""

    def failure_in_stream(self, refusal: Refusal, answer: Answer, number: int) -> Frame:
        """The event of an error in a stream that began well; `number` counts the events before."""
        return Frame(self.failure(refusal, answer.id("req_")), kind="end")

    @abstractmethod
    def unknown_event(self, answer: Answer) -> Frame:
        """An event of a kind that no client knows yet."""

    @abstractmethod
    def bad_key(self, given: str | None) -> Refusal:
        """The refusal of a wrong key, or of none."""

    @abstractmethod
    def headers(self, request_id: str) -> dict[str, str]:
        """Headers of every response."""

    def failure_headers(self, refusal: Refusal) -> dict[str, str]:
        """Further headers of an error."""
        return {}

    def event(self, name: str, data: bytes, line_end: bytes) -> bytes:
        """One event of a stream as bytes: a server-sent one."""
        named = b"event: " + name.encode() + line_end if name else b""
        return named + b"data: " + data + line_end + line_end


# --- routes ----------------------------------------------------------------------------------------------------------

Handler: TypeAlias = Callable[[Request], Awaitable[JsonObject | bytes | tuple[JsonObject, dict[str, str]]]]
"""From a request, whose body was read, to what is sent back, perhaps with headers of its own. Raises Refusal."""


class Route(Struct, frozen=True):
    """Requests of one kind, and who answers them."""

    method: str
    path: str
    """A pattern of the whole path; its groups may be `model`, `stream` and `count`, which asks how many tokens."""
    dialect: Dialect
    """In whose words errors are told."""
    handle: Handler | None = None
    """None: it is a turn of a conversation."""
    header: str = ""
    """One that they have: two providers may have the same paths."""
    scripted: bool = False
    """Whether a service asks the script, too; what that says does not matter, but its faults do."""

    def match(self, request: Request) -> dict[str, str | None] | None:
        """What the groups of the path are, if this is a request of this kind."""
        if request.method != self.method or (self.header and self.header not in request.headers):
            return None
        found = re.fullmatch(self.path, request.path)
        return None if found is None else found.groupdict()


# --- for the dialects -------------------------------------------------------------------------------------------------


def own_words(block: Opaque, dialect: DialectName) -> JsonObject:
    """What stands in a scripted block that only one dialect understands. Raises ScriptError if it is another one."""
    if block.provider != dialect:
        message = f"A block of {block.provider!r} cannot be sent in the {dialect} dialect."
        raise ScriptError(message)
    return members(block.value)


def several(choice: JsonObject, count: object) -> list[JsonObject]:
    """As many choices as were asked for; all say the same."""
    return [{"index": index} | choice for index in range(max(count, 1) if isinstance(count, int) else 1)]


def pages(*texts: Text) -> list[tuple[Citation, int, int]]:
    """The web pages that a script lets texts cite, and which characters of all texts together each of them backs."""
    found: list[tuple[Citation, int, int]] = []
    base = 0
    for text in texts:
        for page in text.citations:
            if not page.url:
                raise ScriptError("The simulator cites web pages: give each citation a url.")
            span = (0, len(text.text)) if page.start is None or page.end is None else (page.start, page.end)
            found.append((page, base + span[0], base + span[1]))
        base += len(text.text)
    return found


def likelihoods(pieces: list[str], count: object) -> list[tuple[str, float, list[tuple[str, float]]]]:
    """How likely each piece was, as a token, and so many alternatives; made up, and the same in every run."""
    others = [(f"<{number}>", -float(number)) for number in range(2, 2 + (count if isinstance(count, int) else 0))]
    return [(piece, -0.125 * (1 + len(piece) % 4), others) for piece in pieces]


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
