"""One exchange on a tape: a line of JSON.

Owns: the form of a line; which headers and which parts of an address are kept; which requests count as the same.
Must not know: files, and how requests are sent.
"""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct

from dragoman import errors
from dragoman.errors import DragomanError, ProviderError
from dragoman.transport.protocol import HttpRequest

__all__ = ["Exchange", "RecordedError", "RecordedReply", "RecordedRequest", "explain_miss", "to_bytes", "to_text"]

# --- text or bytes ---------------------------------------------------------------------------------------------------


class Base64(Struct, frozen=True):
    """Bytes that are not text."""

    base64: str


Data: TypeAlias = str | Base64


def to_data(data: bytes) -> Data:
    """Text where it is text, so that people can read a tape."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return Base64(base64.b64encode(data).decode("ascii"))


def to_bytes(data: Data) -> bytes:
    return data.encode("utf-8") if isinstance(data, str) else base64.b64decode(data.base64)


def to_text(data: Data) -> str:
    """Something to search in."""
    return data if isinstance(data, str) else to_bytes(data).decode("latin-1")


# --- the parts of a line ---------------------------------------------------------------------------------------------

_REQUEST_HEADERS: Final = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta"})
_REPLY_HEADERS: Final = frozenset(
    {
        "content-type",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-request-id",
        "x-should-retry",
    }
)
_REPLY_PREFIXES: Final = ("anthropic-ratelimit-", "ratelimit-", "x-ratelimit-")
# Names of parameters that carry keys.
_SECRET_PARAMETERS: Final = ("key", "token", "secret", "password", "auth", "signature", "credential")


class RecordedRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a request."""

    method: str
    host: str
    path: str
    """With the query, but without parameters whose names promise a key."""
    headers: Mapping[str, str] = {}
    body: Data = ""

    @classmethod
    def of(cls, request: HttpRequest, *, headers: Collection[str], replace: Mapping[str, str]) -> RecordedRequest:
        """The request as it goes onto a tape: few headers, no keys in the address, texts replaced."""
        parts = urlsplit(request.url)
        query = [
            (name, value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
            if not any(word in name.lower() for word in _SECRET_PARAMETERS)
        ]
        path = parts.path + (f"?{urlencode(query)}" if query else "")
        kept = {
            name.lower(): replaced(value, replace)
            for name, value in request.headers.items()
            if name.lower() in _REQUEST_HEADERS or name.lower() in headers
        }
        return cls(
            method=request.method,
            host=request.host,
            path=replaced(path or "/", replace),
            headers=kept,
            body=to_data(replaced_bytes(request.body, replace)),
        )


class RecordedError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error of the transport in place of a reply, or in the middle of one."""

    type: str
    message: str
    hint: str = ""
    code: str | None = None
    status: int | None = None

    @classmethod
    def of(cls, error: DragomanError) -> RecordedError:
        code, status = (error.code, error.status) if isinstance(error, ProviderError) else (None, None)
        return cls(type=type(error).__name__, message=error.message, hint=error.hint, code=code, status=status)

    def again(self) -> DragomanError:
        """The error, ready to raise."""
        kind: object = getattr(errors, self.type, None)
        if isinstance(kind, type) and issubclass(kind, ProviderError):
            return kind(self.message, hint=self.hint, code=self.code, status=self.status)
        return errors.ConfigurationError(self.message, hint=self.hint)


class RecordedReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a reply: the pieces of its body as they came, unpacked."""

    status: int
    headers: Mapping[str, str] = {}
    pieces: tuple[Data, ...] = ()
    complete: bool = True
    """False where the caller closed the reply before its end."""

    @staticmethod
    def kept_headers(headers: Mapping[str, str], more: Collection[str]) -> dict[str, str]:
        return {
            name: value
            for name, value in headers.items()
            if name in _REPLY_HEADERS or name in more or name.startswith(_REPLY_PREFIXES)
        }


class Exchange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and what came of it."""

    request: RecordedRequest
    reply: RecordedReply | None = None
    error: RecordedError | None = None

    def texts(self) -> list[tuple[str, str]]:
        """Everything in it that could hold a key, each with the name of its place."""
        request, reply = self.request, self.reply
        found = [("the address of a request", request.path), ("the body of a request", to_text(request.body))]
        found += [(f"the header {name!r} of a request", f"{name}: {value}") for name, value in request.headers.items()]
        if reply is not None:
            found += [(f"the header {name!r} of a reply", f"{name}: {value}") for name, value in reply.headers.items()]
            # In one piece: a key may be spread over two.
            found.append(("the body of a reply", b"".join(map(to_bytes, reply.pieces)).decode("utf-8", "replace")))
        if self.error is not None:
            found.append(("the text of an error", f"{self.error.message} {self.error.hint}"))
        return found


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Exchange)


def to_line(exchange: Exchange) -> bytes:
    return _ENCODER.encode(exchange) + b"\n"


def from_line(line: bytes) -> Exchange:
    """Raises msgspec.DecodeError or msgspec.ValidationError."""
    return _DECODER.decode(line)


def replaced(text: str, replace: Mapping[str, str]) -> str:
    for old, new in replace.items():
        text = text.replace(old, new)
    return text


def replaced_bytes(data: bytes, replace: Mapping[str, str]) -> bytes:
    for old, new in replace.items():
        data = data.replace(old.encode(), new.encode())
    return data


# --- sameness --------------------------------------------------------------------------------------------------------

Key: TypeAlias = tuple[str, str, bytes]


def key_of(request: RecordedRequest, ignore: Collection[str]) -> Key:
    """What must be equal for a recorded reply to answer a request: method, path, and body as far as it means something.

    JSON is compared by value: order and blanks do not matter, nor do the members to be ignored.
    """
    body = to_bytes(request.body)
    value = _parsed(body)
    if value is not _NOT_JSON:
        body = json.dumps(_without(value, ignore), sort_keys=True, separators=(",", ":")).encode()
    return request.method, request.path, body


_NOT_JSON: Final = object()


def _parsed(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return _NOT_JSON


def _without(value: object, ignore: Collection[str]) -> object:
    if isinstance(value, dict):
        members: dict[str, object] = value  # pyright: ignore[reportUnknownVariableType] -- JSON has text as names
        return {name: _without(member, ignore) for name, member in members.items() if name not in ignore}
    if isinstance(value, list):
        items: list[object] = value  # pyright: ignore[reportUnknownVariableType]
        return [_without(item, ignore) for item in items]
    return value


def explain_miss(wanted: RecordedRequest, recorded: Collection[RecordedRequest]) -> str:
    """How the nearest recorded request differs from the one that was made."""
    if not recorded:
        return "The tape is empty."
    nearest = max(recorded, key=lambda each: _likeness(wanted, each))
    if (nearest.method, nearest.path) != (wanted.method, wanted.path):
        return f"The nearest on the tape is {nearest.method} {nearest.path}."
    lines = difflib.unified_diff(_lines(nearest), _lines(wanted), "on the tape", "asked for", n=1, lineterm="")
    shown = [line[:200] for line in lines][:40]
    return "\n".join(["The nearest on the tape differs in its body:", *shown])


def _likeness(one: RecordedRequest, other: RecordedRequest) -> tuple[bool, float, float]:
    paths = difflib.SequenceMatcher(None, one.path, other.path).ratio()
    # Quick: an upper bound is good enough to choose by, and bodies are long.
    bodies = difflib.SequenceMatcher(None, _lines(one), _lines(other)).quick_ratio()
    return one.method == other.method, paths, bodies


def _lines(request: RecordedRequest) -> list[str]:
    value = _parsed(to_bytes(request.body))
    if value is _NOT_JSON:
        return to_text(request.body).splitlines()
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
