"""What the simulator needs of a dialect: to read its requests and to write its replies and errors; routes.

Must not know: any particular dialect, connections, faults.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import Citation, Opaque, StopReason, Text, ToolCall, Usage
from dragoman.errors import ToolValidationError

from .exchange import DialectName, Entry, JsonObject, Part, Reply, Request, members, objects

FrameKind: TypeAlias = Literal["start", "part", "delta", "other", "finish", "end"]
"""start: the reply begins; part: a part of it begins; finish: says why it ended; end: the last event."""


class Frame(Struct, frozen=True):
    """One event of a stream, before it is encoded."""

    data: JsonObject | bytes
    name: str = ""
    kind: FrameKind = "other"

    @property
    def encoded(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else msgspec.json.encode(self.data)


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818 -- what the provider does
    """The provider refuses a request, or fails; each dialect writes this in its own shape."""

    status: int
    message: str
    code: str | None = None
    """The provider's error code; by default the dialect's usual one for the status."""
    param: str | None = None
    retry_after: str | None = None
    """Seconds, for a dialect that puts them into the body."""


class ScriptError(Exception):
    """The script has no reply for this request, or one that this dialect cannot express."""


def estimate_tokens(text: str | bytes) -> int:
    return max(len(text) // 4, 1)


class Answer:
    """The reply to a request, with everything filled in that the script left open."""

    def __init__(self, reply: Reply, request: Request) -> None:
        blocks = list(reply.blocks)
        size = calls = 0
        for index, block in enumerate(blocks):
            match block:
                case ToolCall():
                    calls += 1
                    size += len(block.name + block.arguments)
                    if not block.id:  # an id that no other call of this simulator has
                        blocks[index] = msgspec.structs.replace(block, id=f"call_sim{request.number:06d}_{index}")
                case Opaque():
                    size += len(bytes(block.raw))
                case _:
                    size += len(block.text)
        estimated = Usage(input=estimate_tokens(request.raw), output=max(size // 4, 1))
        self.request = request
        self.blocks: tuple[Part, ...] = tuple(blocks)
        self.usage: Usage | None = estimated if reply.usage is None else reply.usage if reply.usage != Usage() else None
        self.stop_reason = reply.stop_reason or (StopReason.TOOL_CALLS if calls else StopReason.END)
        self.model = request.model
        self._delta = reply.delta

    def id(self, prefix: str) -> str:
        """An id of this reply: the same in every run."""
        return f"{prefix}sim{self.request.number:06d}"

    @property
    def texts(self) -> list[Text]:
        return [block for block in self.blocks if isinstance(block, Text)]

    def pieces(self, text: str) -> list[str]:
        """The text in pieces of one event each; an empty text has none."""
        size = self._delta or max(len(text), 1)
        return [text[start : start + size] for start in range(0, len(text), size)]

    def arguments(self, call: ToolCall) -> JsonObject:
        """The arguments of a call, for a dialect that sends them as an object. Raises ScriptError."""
        try:
            return call.parsed
        except ToolValidationError as error:
            raise ScriptError(f"{error.message} This dialect sends arguments as an object.") from None

    def opaque_value(self, block: Opaque, dialect: DialectName) -> JsonObject:
        """The content of an opaque block. Raises ScriptError if it is a block of another dialect."""
        if block.provider != dialect:
            raise ScriptError(f"A block of {block.provider!r} cannot be sent in the {dialect} dialect.")
        return members(block.value)

    def pages(self, *texts: Text) -> list[tuple[Citation, int, int]]:
        """The pages that texts cite, each with its span in the joined text. Raises ScriptError."""
        pages: list[tuple[Citation, int, int]] = []
        base = 0
        for text in texts:
            for page in text.citations:
                if not page.url:
                    raise ScriptError("The simulator cites web pages: give each citation a url.")
                start, end = (0, len(text.text)) if page.start is None or page.end is None else (page.start, page.end)
                pages.append((page, base + start, base + end))
            base += len(text.text)
        return pages

    def choices(self, choice: JsonObject, count: object) -> list[JsonObject]:
        """As many choices as were asked for, all the same."""
        return [{"index": index} | choice for index in range(max(count, 1) if isinstance(count, int) else 1)]

    def logprobs(self, pieces: list[str], count: object) -> list[tuple[str, float, list[tuple[str, float]]]]:
        """For each piece, as a token, a logprob and `count` alternatives: made up, and the same in every run."""
        others = [(f"<{number}>", -float(number)) for number in range(2, 2 + (count if isinstance(count, int) else 0))]
        return [(piece, -0.125 * (1 + len(piece) % 4), others) for piece in pieces]


class Block(Struct, frozen=True):
    """A content block: its start and deltas in a stream, and the block of a whole reply."""

    start: JsonObject
    deltas: list[JsonObject]
    whole: JsonObject


class Dialect(ABC):
    """A dialect, from the server's side."""

    name: ClassVar[DialectName]
    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    has_comments: ClassVar[bool] = True
    """Whether a stream may have comments between its events."""
    id_header: ClassVar[str] = ""
    """The header with the id of a request."""
    unknown_event: ClassVar[Frame]
    """An event of a type that no client knows yet."""

    def tools(self, body: JsonObject) -> list[JsonObject]:
        """The definitions of the functions that the model may call."""
        return objects(body.get("tools"))

    @abstractmethod
    def history(self, body: JsonObject) -> Iterator[Entry]:
        """The conversation in a request."""

    def is_continued(self, body: JsonObject) -> bool:
        """Whether the provider holds the start of the conversation."""
        return False

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
        """The reply to a request for a token count."""
        return {"input_tokens": tokens}

    @abstractmethod
    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        """The body of an error."""

    def failure_in_stream(self, refusal: Refusal, answer: Answer, number: int) -> Frame:
        """The event of an error in a stream; `number` counts the events before it."""
        return Frame(self.failure(refusal, answer.id("req_")), kind="end")

    def failure_headers(self, refusal: Refusal) -> dict[str, str]:
        """More headers of an error."""
        return {}

    @abstractmethod
    def bad_key(self, given: str | None) -> Refusal:
        """The refusal of a wrong or missing key."""

    def event(self, name: str, data: bytes, line_end: bytes) -> bytes:
        """One event of a stream as bytes: a server-sent event."""
        named = b"event: " + name.encode() + line_end if name else b""
        return named + b"data: " + data + line_end + line_end


# --- routes ----------------------------------------------------------------------------------------------------------

Handler: TypeAlias = Callable[[Request], Awaitable[JsonObject | bytes | tuple[JsonObject, dict[str, str]]]]
"""Returns the body of the response, perhaps with headers. Raises Refusal."""


class Route(Struct, frozen=True):
    """Requests of one kind, and who answers them."""

    method: str
    path: str
    """A pattern of the whole path. Its groups may be `model`, `stream`, and `count` for a token count."""
    dialect: Dialect
    """Writes the errors."""
    handle: Handler | None = None
    """None: a turn of a conversation."""
    header: str = ""
    """A header that the request must have: two providers may have the same paths."""
    scripted: bool = False
    """Whether the faults of the script's next reply apply to the answer of `handle`."""

    def match(self, request: Request) -> dict[str, str | None] | None:
        """The groups of the path, if this is a request of this kind."""
        if request.method != self.method or (self.header and self.header not in request.headers):
            return None
        matched = re.fullmatch(self.path, request.path)
        return None if matched is None else matched.groupdict()


# --- signatures, which only prove that a text came back unchanged ----------------------------------------------------

_MARK = b"dragoman-simulator:"


def sign(text: str) -> str:
    """A signature of this text, in base64 as the providers' are."""
    return b64encode(_MARK + sha256(text.encode()).digest()[:12]).decode()


def has_bad_signature(signature: str, text: str) -> bool:
    """Whether the signature was made here, for another text. Foreign signatures pass."""
    try:  # Google's SDK returns signatures in the URL-safe alphabet
        data = b64decode(signature.translate(str.maketrans("-_", "+/")), validate=True)
    except ValueError:
        return False
    return data.startswith(_MARK) and data != b64decode(sign(text))
