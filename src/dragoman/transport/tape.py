"""Record exchanges with a server on a tape and replay them, with any transport, sync or async.

Tapes are meant to be committed, so the scan for keys is strict: it would rather refuse a harmless text than let a key
through. Nothing is replaced silently; what is refused has to be removed on purpose.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from msgspec import Struct, structs

from dragoman._decoding import decode_as
from dragoman.errors import ConfigurationError, DragomanError

from .errors import error_for
from .protocol import HttpRequest, Response, Transport, keys_in

Mode: TypeAlias = Literal["record", "replay", "auto"]
"""`record` responses of the server, `replay` from the file only, or `auto`: record if there is no file yet."""

_FIRST_LINE: Final = b'{"dragoman_tape":1}\n'
_KEY_LENGTH: Final = 12
"""Shorter header values are placeholders in tests (`any`, `test-key`), which a text may contain."""


class NotOnTapeError(ConfigurationError):
    """A request is not on the tape, or was made more often than recorded."""

    next_step = "If the request is right, record the tape again: mode='record'."


class SecretFoundError(ConfigurationError):
    """Something that looks like a key was about to be written to a tape. Nothing was written."""

    next_step = "Remove it from the request, or replace it by a placeholder: Tape(replace={…})."


class Tape:
    """A file of recorded exchanges.

    `secrets` are values that must not be on the tape in any form; `replace` maps texts to placeholders, when recording
    and when comparing; `ignore` names members of JSON bodies that are not compared.

    Recording overwrites the file. Each recorded exchange answers one request; equal requests are answered in order.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode = "auto",
        secrets: Collection[str] = (),
        replace: Mapping[str, str] | None = None,
        ignore: Collection[str] = (),
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigurationError(f"mode={mode!r} is not one of {', '.join(get_args(Mode))}.")
        if isinstance(secrets, str) or isinstance(ignore, str):
            raise ConfigurationError("secrets and ignore must be lists of texts.", hint="Put the text into a list.")
        self.path: Path = Path(path)
        self.recording: bool = mode == "record" or (mode == "auto" and not self.path.exists())
        self._replace: Mapping[str, str] = replace or {}
        self._ignore: frozenset[str] = frozenset(ignore)
        self._forms: frozenset[str] = _secret_forms(secrets)
        self._lock: threading.Lock = threading.Lock()
        self._started: bool = False
        self._exchanges: list[Exchange] = [] if self.recording else _load(self.path)
        self._unplayed: list[tuple[_Key, Exchange]] = [(_key_of(each, self._ignore), each) for each in self._exchanges]

    def transport(self, make: Callable[[], Transport]) -> Transport:
        """A transport that records or replays; `make` creates the transport to record with."""
        return _TapeTransport(self, make() if self.recording else None)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges on the tape."""
        return tuple(self._exchanges)

    @property
    def unplayed(self) -> tuple[Exchange, ...]:
        """The exchanges that were not replayed."""
        return tuple(exchange for _, exchange in self._unplayed)

    def replaced(self, data: bytes) -> bytes:
        """The data after `replace`."""
        for old, new in self._replace.items():
            data = data.replace(old.encode(), new.encode())
        return data

    def note(self, request: HttpRequest) -> Exchange:
        """The request as it is recorded. SecretFoundError if it contains a key."""
        noted = Exchange.of(request, self.replaced)
        if self.recording:
            # The keys of the request are secrets too: the server may echo them.
            with self._lock:
                self._forms |= _secret_forms(key for key in keys_in(request.headers) if len(key) >= _KEY_LENGTH)
            self._refuse_secrets(noted)
        return noted

    def write(self, exchange: Exchange) -> None:
        """Record an exchange with as much of the response as arrived. SecretFoundError if it contains a key."""
        self._refuse_secrets(exchange)
        with self._lock:
            self._exchanges.append(exchange)
            if not self._started:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_bytes(_FIRST_LINE)
                self._started = True
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(exchange) + b"\n")

    def _refuse_secrets(self, exchange: Exchange) -> None:
        """Raise SecretFoundError, without the key in its text, if the exchange contains one."""
        if found := exchange.secret(self._forms):
            raise SecretFoundError(f"The tape refuses to record {found}.")

    def find(self, request: HttpRequest) -> Exchange:
        """The next recorded exchange for this request. NotOnTapeError if there is none."""
        noted = self.note(request)
        key = _key_of(noted, self._ignore)
        with self._lock:
            for place, (recorded, exchange) in enumerate(self._unplayed):
                if recorded == key:
                    del self._unplayed[place]
                    return exchange
        times = sum(_key_of(each, self._ignore) == key for each in self._exchanges)
        again = f"It was recorded {times} times and requested once more."
        detail = again if times else _explain_miss(noted, self._exchanges)
        raise NotOnTapeError(f"{noted.method} {noted.path} is not on the tape {self.path.name}. {detail}\n")


def _load(path: Path) -> list[Exchange]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        raise NotOnTapeError(f"There is no tape {path.name}.", hint="Record it first: mode='record'.") from None
    if not lines or lines[0] != _FIRST_LINE:
        raise ConfigurationError(f"{path.name} is not a tape, or one of a newer version.")
    try:
        return [decode_as(line, Exchange) for line in lines[1:]]
    except msgspec.DecodeError as error:
        message = f"The tape {path.name} cannot be read: {error}."
        raise ConfigurationError(message, hint="Record the tape again.") from error


# --- transports ------------------------------------------------------------------------------------------------------


class _TapeTransport(Transport):
    """Records the exchanges of another transport; without one, replays the tape."""

    def __init__(self, tape: Tape, transport: Transport | None) -> None:
        self._tape: Tape = tape
        self._transport: Transport | None = transport
        self.blocking: bool | None = getattr(transport, "blocking", None)

    async def open(self, request: HttpRequest) -> Response:
        if self._transport is None:
            return _ReplayedResponse(request, self._tape.find(request))
        noted = self._tape.note(request)
        return _RecordedResponse(await self._transport.open(request), request, self._tape, noted)

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()


class _RecordedResponse(Response):
    """Passes on another response, and records the exchange when it ends."""

    def __init__(self, response: Response, request: HttpRequest, tape: Tape, noted: Exchange) -> None:
        super().__init__(request, response.status, response.headers)
        self._response: Response = response
        self._tape: Tape = tape
        self._noted: Exchange | None = noted
        self._pieces: list[bytes] = []

    async def next(self) -> bytes:
        try:
            piece = await self._response.next()
        except DragomanError:
            self._write(complete=False)
            raise
        if piece:
            self._pieces.append(piece)
        else:
            self._write(complete=True)
        return piece

    async def aclose(self) -> None:
        await self._response.aclose()
        self._write(complete=False)

    async def finish(self) -> None:
        await self._response.finish()
        self._write(complete=True)

    def _write(self, *, complete: bool) -> None:
        noted, self._noted = self._noted, None
        if noted is not None:
            pieces = map(self._tape.replaced, self._pieces)
            self._tape.write(noted.answered(self, pieces, complete=complete))


class _ReplayedResponse(Response):
    """The recorded reply to a request, piece by piece."""

    def __init__(self, request: HttpRequest, recorded: Exchange) -> None:
        super().__init__(request, recorded.status, recorded.reply_headers)
        self._pieces: deque[_Data] = deque(recorded.pieces)
        self._complete: bool = recorded.complete

    async def next(self) -> bytes:
        if self._pieces:
            return _to_bytes(self._pieces.popleft())
        if not self._complete:  # the rest is unknown
            raise error_for("cut_off", self.request, detail="the recording was stopped here")
        return b""

    async def aclose(self) -> None:
        self._pieces.clear()
        self._complete = True


# --- exchanges --------------------------------------------------------------------------------------------------------


class _Base64(Struct, frozen=True):
    """Bytes that are not text."""

    base64: str


_Data: TypeAlias = str | _Base64


def _to_data(data: bytes) -> _Data:
    """As text if possible, so that people can read a tape."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _Base64(base64.b64encode(data).decode("ascii"))


def _to_bytes(data: _Data) -> bytes:
    return data.encode("utf-8") if isinstance(data, str) else base64.b64decode(data.base64)


_KEPT_OF_REQUEST: Final = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta"})
_KEPT_OF_REPLY: Final = re.compile(
    r"content-type|(x-)?request-id|retry-after(-ms)?|x-should-retry|(anthropic-|x-)?ratelimit-.*"
).fullmatch
# Parts of the names of query parameters that contain keys.
_SECRET_PARAMETERS: Final = ("key", "token", "secret", "password", "auth", "signature", "credential")


class Exchange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and its response, with the decompressed pieces of its body."""

    method: str
    host: str
    path: str
    """With the query, but without parameters that may contain a key."""
    headers: Mapping[str, str] = {}
    body: _Data = ""
    status: int = 0
    reply_headers: Mapping[str, str] = {}
    pieces: tuple[_Data, ...] = ()
    complete: bool = True
    """False if the caller closed the response, or the connection broke, before its end."""

    @classmethod
    def of(cls, request: HttpRequest, replaced: Callable[[bytes], bytes]) -> Exchange:
        """The request as it is recorded: few headers, no keys in the URL, texts replaced."""
        parts = urlsplit(request.url)
        query = [
            (name, value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
            if not any(word in name.lower() for word in _SECRET_PARAMETERS)
        ]
        path = parts.path + (f"?{urlencode(query)}" if query else "")
        kept = {
            name.lower(): replaced(value.encode()).decode()
            for name, value in request.headers.items()
            if name.lower() in _KEPT_OF_REQUEST
        }
        return cls(
            method=request.method,
            host=request.host,
            path=replaced((path or "/").encode()).decode(),
            headers=kept,
            body=_to_data(replaced(request.body)),
        )

    def answered(self, response: Response, pieces: Iterable[bytes], *, complete: bool) -> Exchange:
        return structs.replace(
            self,
            status=response.status,
            reply_headers={name: value for name, value in response.headers.items() if _KEPT_OF_REPLY(name)},
            pieces=tuple(map(_to_data, pieces)),
            complete=complete,
        )

    def __repr__(self) -> str:  # it may still contain a key
        return f"Exchange({self.method} {self.host}, {self.status})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("method", self.method), ("host", self.host), ("status", self.status)]

    def secret(self, forms: Collection[str]) -> str:
        """Describes where a key was found. Does not raise: a traceback with local variables would show the key."""
        places = {
            "the address of a request": self.path.encode(),
            "the headers of a request": msgspec.json.encode(self.headers),
            "the body of a request": _to_bytes(self.body),
            "the headers of a reply": msgspec.json.encode(self.reply_headers),
            "the body of a reply": b"".join(map(_to_bytes, self.pieces)),  # joined: a key may span two pieces
        }
        for place, data in places.items():
            text = data.decode("utf-8", "replace")
            found = "one of the given secrets" if any(form in text for form in forms) else ""
            found = found or next((name for name, pattern in _SIGNS if re.search(pattern, text)), "")
            if found:
                return f"{place}: it contains what looks like {found}"
        return ""


# --- comparison -------------------------------------------------------------------------------------------------------

_Key: TypeAlias = tuple[str, str, bytes]


def _key_of(request: Exchange, ignore: Collection[str]) -> _Key:
    """What must be equal for a recorded response to answer a request: method, path and body.

    JSON is compared by value: order, whitespace and ignored members do not matter.
    """
    body = _to_bytes(request.body)
    with suppress(msgspec.DecodeError):
        body = msgspec.json.encode(_without(msgspec.json.decode(body), ignore), order="sorted")
    return request.method, request.path, body


def _without(value: object, ignore: Collection[str]) -> object:
    if isinstance(value, dict):
        members: dict[str, object] = value  # pyright: ignore[reportUnknownVariableType] -- JSON has text as names
        return {name: _without(member, ignore) for name, member in members.items() if name not in ignore}
    if isinstance(value, list):
        items: list[object] = value  # pyright: ignore[reportUnknownVariableType]
        return [_without(item, ignore) for item in items]
    return value


def _explain_miss(wanted: Exchange, recorded: Collection[Exchange]) -> str:
    """How the most similar recorded request differs from this one."""
    alike = [each for each in recorded if (each.method, each.path) == (wanted.method, wanted.path)]
    if not alike:
        return f"It has: {', '.join(dict.fromkeys(f'{each.method} {each.path}' for each in recorded)) or 'nothing'}."
    lines = _lines(wanted)
    nearest = max([_lines(each) for each in alike], key=lambda each: SequenceMatcher(None, each, lines).quick_ratio())
    shown = [line[:200] for line in unified_diff(nearest, lines, "on the tape", "requested", n=1, lineterm="")]
    return "\n".join(["The most similar one has another body:", *shown[:40]])


def _lines(request: Exchange) -> list[str]:
    body = _to_bytes(request.body)
    with suppress(msgspec.DecodeError):
        body = msgspec.json.format(msgspec.json.encode(msgspec.json.decode(body), order="sorted"), indent=1)
    return body.decode("utf-8", "replace").splitlines()


# --- secrets ----------------------------------------------------------------------------------------------------------

_NAMED_VALUE: Final = (  # quotes may be escaped: JSON inside JSON
    r"(?i:(?:api|access|secret|private|auth|subscription)[_-]?key|apikey|token|secret|passw(?:or)?d|credentials?|"
    r"authorization)\\*[\"']?\s*[:=]\s*\\*[\"']?(?=[\w+/.~-]*[0-9])(?=[\w+/.~-]*[A-Za-z])[A-Za-z0-9_+/.~-]{20,}"
)
# From the providers' documentation; the error message names what was found.
_SIGNS: Final[tuple[tuple[str, str], ...]] = (
    ("an API key (sk-…)", r"\bsk-[A-Za-z0-9_-]{16,}"),
    ("an API key (gsk_…, hf_…, pplx-…, xai-…)", r"\b(?:gsk_|hf_|pplx-|xai-)[A-Za-z0-9]{20,}"),
    ("a key of Google (AIza…, ya29.…)", r"\b(?:AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,})"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("an AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    ("a signed token (JWT)", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("a bearer token", r"(?i:\bbearer)\s+[A-Za-z0-9._~+/-]{16,}"),
    ("a basic login", r"(?i:\bbasic)\s+[A-Za-z0-9+/]{16,}={0,2}(?![A-Za-z0-9+/])"),
    ("a long random value behind a name like 'key' or 'token'", _NAMED_VALUE),
    ("a password in an address", r"\b[a-z][a-z0-9+.-]*://[^/\s:@\"']{1,100}:[^/\s@\"']{1,200}@"),
)


def _secret_forms(secrets: Iterable[str]) -> frozenset[str]:
    """The forms in which a secret may appear: as it is, in a URL, in JSON, in a basic login."""
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) < 4:  # would match everywhere
            continue
        forms |= {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
        # In the base64 of "user:password" it appears in three ways, depending on what comes before.
        for before in range(3):
            packed = base64.b64encode(b" " * before + secret.encode())[4 if before else 0 : -4].decode()
            if len(packed) >= 8:
                forms.add(packed)
    return frozenset(forms)
