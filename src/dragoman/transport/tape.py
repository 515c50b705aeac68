"""Record, replay and redact: exchanges with a server on a tape, around any transport in either colour.

    from dragoman.transport.tape import Tape

    tape = Tape("tests/tapes/weather.jsonl")
    transport = tape.transport(SocketTransport)

Owns: the file and its modes; one exchange as a line of JSON; which requests count as the same; what must never be on a
tape; transports that record what another one does, and one that replays.

A tape is made to be committed and shared, so the scan for keys is suspicious: it would rather refuse a harmless text
than let a key through. Nothing is replaced behind the user's back; what is refused has to be taken out on purpose.
"""

from __future__ import annotations

import base64
import difflib
import json
import math
import os
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from dragoman import errors
from dragoman.errors import ConfigurationError, DragomanError, ProviderError

from .errors import error_for
from .protocol import BaseResponse, BaseTransport, HttpRequest, Response, Transport, keys_in

Mode: TypeAlias = Literal["record", "replay", "auto"]
"""What to do: ask the server and write its answers; answer from the file alone; or record if there is no file yet."""

_FIRST_LINE: Final = b'{"dragoman_tape":1}\n'
_KEY_LENGTH: Final = 12
"""A shorter value of a header is a stand-in of some test (`any`, `test-key`), which a text may well contain."""


class NotOnTapeError(ConfigurationError):
    """A request was made that is not on the tape, or more often than it was recorded."""

    next_step = "If the request is meant to be like this, record the tape again: mode='record'."


class SecretFoundError(ConfigurationError):
    """Something that looks like a key was about to be written to a tape. Nothing was written."""

    next_step = "Take it out of the request, or give it a harmless stand-in with Tape(replace={…})."


class Tape:
    """A file of recorded exchanges.

    `secrets` are values that must not be on the tape in any form; `headers` are kept besides the few harmless ones;
    `replace` maps texts to harmless stand-ins, in what is recorded and in what is compared; `ignore` names members of
    JSON bodies that do not matter when requests are compared.

    Recording starts the file anew. Each recorded exchange answers one request, those of equal requests in their order.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode = "auto",
        secrets: Collection[str] = (),
        headers: Collection[str] = (),
        replace: Mapping[str, str] | None = None,
        ignore: Collection[str] = (),
    ) -> None:
        self.path: Path = Path(path)
        self.recording: bool = mode == "record" or (mode == "auto" and not self.path.exists())
        self._headers: frozenset[str] = frozenset(name.lower() for name in headers)
        self._replace: Mapping[str, str] = replace or {}
        self._ignore: frozenset[str] = frozenset(ignore)
        self._forms: tuple[str, ...] = _secret_forms(secrets)
        self._keys: frozenset[str] = frozenset()
        self._lock: threading.Lock = threading.Lock()
        self._started: bool = False
        self._exchanges: list[Exchange] = [] if self.recording else _load(self.path)
        self._waiting: dict[_Key, deque[Exchange]] = {}
        for exchange in self._exchanges:
            self._waiting.setdefault(_key_of(exchange.request, self._ignore), deque()).append(exchange)

    # --- for users ---------------------------------------------------------------------------------------------------

    def transport(self, make: Callable[[], Transport]) -> Transport:
        """A transport that records what the made one does, or replays; `make` is called only to record."""
        return _Recorder(self, make()) if self.recording else _Replayer(self)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """What is on the tape."""
        return tuple(self._exchanges)

    @property
    def unplayed(self) -> tuple[Exchange, ...]:
        """What is on the tape and was not asked for."""
        return tuple(exchange for waiting in self._waiting.values() for exchange in waiting)

    # --- for transports ----------------------------------------------------------------------------------------------

    def note(self, request: HttpRequest) -> RecordedRequest:
        """The request as it goes onto the tape. SecretFoundError if it must not."""
        noted = RecordedRequest.of(request, headers=self._headers, replace=self._replace)
        if self.recording:
            self._keep_off(request)
            _refuse_secrets(Exchange(request=noted).texts(), self._forms)
        return noted

    def _keep_off(self, request: HttpRequest) -> None:
        """The keys of the request itself are secrets too: a server may repeat them in what it answers."""
        known = frozenset(key for key in keys_in(request.headers) if len(key) >= _KEY_LENGTH)
        with self._lock:
            if not known <= self._keys:
                self._keys |= known
                self._forms = tuple(dict.fromkeys((*self._forms, *_secret_forms(known))))

    def write_reply(
        self,
        noted: RecordedRequest,
        response: Response,
        pieces: Iterable[bytes],
        *,
        complete: bool,
        error: DragomanError | None,
    ) -> None:
        """Put a reply on the tape, as far as it came. SecretFoundError if it must not."""
        kept = _REPLY_HEADERS | self._headers
        reply = RecordedReply(
            status=response.status,
            headers={
                name: value
                for name, value in response.headers.items()
                if name in kept or name.startswith(_REPLY_PREFIXES)
            },
            pieces=tuple(_to_data(_replace(piece, self._replace)) for piece in pieces),
            complete=complete,
        )
        self.write(Exchange(request=noted, reply=reply, error=None if error is None else RecordedError.of(error)))

    def write(self, exchange: Exchange) -> None:
        """Put an exchange on the tape. SecretFoundError if it must not."""
        line = msgspec.json.encode(exchange) + b"\n"
        _refuse_secrets([*exchange.texts(), ("an exchange", line.decode("utf-8"))], self._forms)
        with self._lock:
            self._exchanges.append(exchange)
            if not self._started:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_bytes(_FIRST_LINE)
                self._started = True
            with self.path.open("ab") as file:
                file.write(line)

    def find(self, request: HttpRequest) -> Exchange:
        """The next recorded exchange for this request. NotOnTapeError if there is none."""
        noted = self.note(request)
        key = _key_of(noted, self._ignore)
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting:
                return waiting.popleft()
        asked = f"{noted.method} {noted.path}"
        if waiting is not None:
            times = sum(_key_of(each.request, self._ignore) == key for each in self._exchanges)
            message = f"{asked} is on the tape {self.path.name} {times} times, and was asked for once more."
            raise NotOnTapeError(message)
        detail = _explain_miss(noted, [exchange.request for exchange in self._exchanges])
        message = f"{asked} is not on the tape {self.path.name}. {detail}\n"
        raise NotOnTapeError(message)


def _load(path: Path) -> list[Exchange]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        message = f"There is no tape {path.name}."
        raise NotOnTapeError(message, hint="Record it first: mode='record'.") from None
    if not lines or lines[0] != _FIRST_LINE:
        message = f"{path.name} is not a tape, or one of a newer version."
        raise ConfigurationError(message)
    exchanges: list[Exchange] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            exchanges.append(msgspec.json.decode(line, type=Exchange))
        except msgspec.DecodeError as error:
            message = f"Line {number} of the tape {path.name} cannot be read: {error}."
            raise ConfigurationError(message, hint="Record the tape again.") from error
    return exchanges


# --- transports ------------------------------------------------------------------------------------------------------


class _RecordingResponse(BaseResponse):
    """Hands out the pieces of another response, and puts the exchange on the tape once it is over."""

    def __init__(self, request: HttpRequest, response: Response, tape: Tape, noted: RecordedRequest) -> None:
        super().__init__(request, response.status, response.headers)
        self._response: Response = response
        self._tape: Tape = tape
        self._noted: RecordedRequest = noted
        self._pieces: list[bytes] = []
        self._written: bool = False

    async def next(self) -> bytes:
        try:
            piece = await self._response.next()
        except DragomanError as error:
            self._write(complete=False, error=error)
            raise
        if piece:
            self._pieces.append(piece)
        else:
            self._write(complete=True)
        return piece

    async def aclose(self) -> None:
        await self._response.aclose()
        self._write(complete=False)

    def _write(self, *, complete: bool, error: DragomanError | None = None) -> None:
        if not self._written:
            self._written = True
            self._tape.write_reply(self._noted, self, self._pieces, complete=complete, error=error)


class _Recorder(BaseTransport):
    """Sends requests through another transport and writes down what comes back."""

    def __init__(self, tape: Tape, transport: Transport) -> None:
        self._tape: Tape = tape
        self._transport: Transport = transport
        self.blocking: bool | None = getattr(transport, "blocking", None)

    async def open(self, request: HttpRequest) -> BaseResponse:
        noted = self._tape.note(request)
        try:
            response = await self._transport.open(request)
        except DragomanError as error:
            self._tape.write(Exchange(request=noted, error=RecordedError.of(error)))
            raise
        return _RecordingResponse(request, response, self._tape, noted)

    async def aclose(self) -> None:
        await self._transport.aclose()


class _ReplayedResponse(BaseResponse):
    """The recorded reply to a request, piece by piece."""

    def __init__(self, request: HttpRequest, reply: RecordedReply, error: RecordedError | None) -> None:
        super().__init__(request, reply.status, reply.headers)
        self._pieces: deque[_Data] = deque(reply.pieces)
        self._complete: bool = reply.complete
        self._error: RecordedError | None = error

    async def next(self) -> bytes:
        if self._pieces:
            return _to_bytes(self._pieces.popleft())
        if self._error is not None:
            raise self._error.again()
        if not self._complete:  # nobody knows how it went on
            raise error_for("cut_off", self.request, detail="the recording was stopped here")
        return b""

    async def aclose(self) -> None:
        self._pieces.clear()
        self._error, self._complete = None, True


class _Replayer(BaseTransport):
    """Answers from a tape; no connection is made."""

    def __init__(self, tape: Tape) -> None:
        self._tape: Tape = tape

    async def open(self, request: HttpRequest) -> BaseResponse:
        exchange = self._tape.find(request)
        if exchange.reply is None:
            raise exchange.error.again() if exchange.error is not None else error_for("closed_early", request)
        return _ReplayedResponse(request, exchange.reply, exchange.error)

    async def aclose(self) -> None:
        pass


# --- what is on a tape -----------------------------------------------------------------------------------------------


class _Base64(Struct, frozen=True):
    """Bytes that are not text."""

    base64: str


_Data: TypeAlias = str | _Base64


def _to_data(data: bytes) -> _Data:
    """Text where it is text, so that people can read a tape."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _Base64(base64.b64encode(data).decode("ascii"))


def _to_bytes(data: _Data) -> bytes:
    return data.encode("utf-8") if isinstance(data, str) else base64.b64decode(data.base64)


def _to_text(data: _Data) -> str:
    """Something to search in."""
    return data if isinstance(data, str) else _to_bytes(data).decode("latin-1")


_REQUEST_HEADERS: Final = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta"})
_REPLY_HEADERS: Final = frozenset(
    {"content-type", "request-id", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry"}
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
    body: _Data = ""

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
            name.lower(): _replace(value.encode(), replace).decode()
            for name, value in request.headers.items()
            if name.lower() in _REQUEST_HEADERS or name.lower() in headers
        }
        return cls(
            method=request.method,
            host=request.host,
            path=_replace((path or "/").encode(), replace).decode(),
            headers=kept,
            body=_to_data(_replace(request.body, replace)),
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
    pieces: tuple[_Data, ...] = ()
    complete: bool = True
    """False where the caller closed the reply before its end."""


class Exchange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and what came of it."""

    request: RecordedRequest
    reply: RecordedReply | None = None
    error: RecordedError | None = None

    def texts(self) -> list[tuple[str, str]]:
        """Everything in it that could hold a key, each with the name of its place."""
        request, reply = self.request, self.reply
        found = [("the address of a request", request.path), ("the body of a request", _to_text(request.body))]
        found += [(f"the header {name!r} of a request", f"{name}: {value}") for name, value in request.headers.items()]
        if reply is not None:
            found += [(f"the header {name!r} of a reply", f"{name}: {value}") for name, value in reply.headers.items()]
            # In one piece: a key may be spread over two.
            found.append(("the body of a reply", b"".join(map(_to_bytes, reply.pieces)).decode("utf-8", "replace")))
        if self.error is not None:
            found.append(("the text of an error", f"{self.error.message} {self.error.hint}"))
        return found


def _replace(data: bytes, replace: Mapping[str, str]) -> bytes:
    for old, new in replace.items():
        data = data.replace(old.encode(), new.encode())
    return data


# --- sameness --------------------------------------------------------------------------------------------------------

_Key: TypeAlias = tuple[str, str, bytes]


def _key_of(request: RecordedRequest, ignore: Collection[str]) -> _Key:
    """What must be equal for a recorded reply to answer a request: method, path, and body as far as it means something.

    JSON is compared by value: order and blanks do not matter, nor do the members to be ignored.
    """
    body = _to_bytes(request.body)
    value = _parse(body)
    if value is not _NOT_JSON:
        body = json.dumps(_without(value, ignore), sort_keys=True, separators=(",", ":")).encode()
    return request.method, request.path, body


_NOT_JSON: Final = object()


def _parse(body: bytes) -> object:
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


def _explain_miss(wanted: RecordedRequest, recorded: Collection[RecordedRequest]) -> str:
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
    value = _parse(_to_bytes(request.body))
    if value is _NOT_JSON:
        return _to_text(request.body).splitlines()
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()


# --- what must never be on one ---------------------------------------------------------------------------------------

# What each is was looked up in the providers' documentation; the text of a refusal names it.
_SIGNS: Final[tuple[tuple[str, str], ...]] = (
    ("an API key (sk-…)", r"\bsk-[A-Za-z0-9_-]{16,}"),
    ("a Google API key (AIza…)", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("a Google access token (ya29.…)", r"\bya29\.[A-Za-z0-9_-]{20,}"),
    ("a Groq key (gsk_…)", r"\bgsk_[A-Za-z0-9]{20,}"),
    ("an xAI key (xai-…)", r"\bxai-[A-Za-z0-9]{20,}"),
    ("a Hugging Face token (hf_…)", r"\bhf_[A-Za-z0-9]{20,}"),
    ("a Perplexity key (pplx-…)", r"\bpplx-[A-Za-z0-9]{20,}"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("an AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    ("a signed token (JWT)", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("a bearer token", r"(?i:\bbearer)\s+[A-Za-z0-9._~+/-]{16,}"),
    ("a basic login", r"(?i:\bbasic)\s+[A-Za-z0-9+/]{16,}={0,2}(?![A-Za-z0-9+/])"),
    ("a password in an address", r"\b[a-z][a-z0-9+.-]*://[^/\s:@\"']{1,100}:[^/\s@\"']{1,200}@"),
)
_ANY_SIGN: Final = re.compile("|".join(f"(?:{pattern})" for _, pattern in _SIGNS))

# A name that promises a secret, followed by something long and random. Quotes may be escaped: JSON in JSON.
_NAMED: Final = re.compile(
    r"(?i:(?:api|access|secret|private|auth|subscription)[_-]?key|apikey|token|secret|passw(?:or)?d|credentials?|"
    r"authorization)\\*[\"']?\s*[:=]\s*\\*[\"']?([A-Za-z0-9_+/.~-]{20,})"
)
_RANDOM_BITS: Final = 3.2
"""Bits for each character. English words have about 2.5 to 3 here, random base64 of this length about 4."""


def _secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """The forms in which a secret may appear in a text: as it is, in a URL, in JSON, as a part of a basic login."""
    forms: dict[str, None] = {}
    for secret in secrets:
        if len(secret) < 4:  # would be found everywhere
            continue
        forms[secret] = None
        forms[quote(secret, safe="")] = None
        forms[json.dumps(secret)[1:-1]] = None
        # As the second part of "user:password" its base64 depends on what comes before, in three ways.
        for before in range(3):
            packed = base64.b64encode(b" " * before + secret.encode())[4 if before else 0 : -4].decode()
            if len(packed) >= 8:
                forms[packed] = None
    return tuple(forms)


def _refuse_secrets(texts: Iterable[tuple[str, str]], forms: tuple[str, ...]) -> None:
    """Raise SecretFoundError if one of the texts, each with the name of its place, holds a key. It is not repeated."""
    for place, text in texts:
        if any(form in text for form in forms):
            raise _refusal("one of the given secrets", place)
        if _ANY_SIGN.search(text):
            sign = next(name for name, pattern in _SIGNS if re.search(pattern, text))
            raise _refusal(sign, place)
        for found in _NAMED.finditer(text):
            if _is_random(found[1]):
                raise _refusal("a long random value behind a name like 'key' or 'token'", place)


def _refusal(what: str, place: str) -> SecretFoundError:
    return SecretFoundError(f"The tape refuses to record {place}: it contains what looks like {what}.")


def _is_random(text: str) -> bool:
    if not (any(map(str.isdigit, text)) and any(map(str.isalpha, text))):
        return False
    shares = [number / len(text) for number in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares) >= _RANDOM_BITS
