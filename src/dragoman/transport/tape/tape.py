"""A tape: a file of exchanges, and what is done with it.

Owns: the modes, reading and writing the file, finding the recorded reply to a request.
Must not know: how requests are sent.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.errors import ConfigurationError
from dragoman.transport.protocol import AsyncTransport, HttpRequest, Transport
from dragoman.transport.secret_headers import keys_in

from .exchange import Exchange, Key, RecordedRequest, explain_miss, from_line, key_of, to_line
from .scan import refuse_secrets, secret_forms
from .wrapping import AsyncRecorder, AsyncReplayer, Recorder, Replayer

__all__ = ["Mode", "NotOnTapeError", "Tape"]

Mode: TypeAlias = Literal["record", "replay", "auto"]
"""What to do: ask the server and write its answers; answer from the file alone; or record if there is no file yet."""

_FIRST_LINE: Final = b'{"dragoman_tape":1}\n'
_KEY_LENGTH: Final = 12
"""A shorter value of a header is a stand-in of some test (`any`, `test-key`), which a text may well contain."""


class NotOnTapeError(ConfigurationError):
    """A request was made that is not on the tape, or more often than it was recorded."""

    next_step = "If the request is meant to be like this, record the tape again: mode='record'."


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
        self._forms: tuple[str, ...] = secret_forms(secrets)
        self._keys: frozenset[str] = frozenset()
        self._lock: threading.Lock = threading.Lock()
        self._started: bool = False
        self._exchanges: list[Exchange] = [] if self.recording else _load(self.path)
        self._waiting: dict[Key, deque[Exchange]] = {}
        for exchange in self._exchanges:
            self._waiting.setdefault(key_of(exchange.request, self._ignore), deque()).append(exchange)

    # --- for users ---------------------------------------------------------------------------------------------------

    def transport(self, make: Callable[[], Transport]) -> Transport:
        """A plain transport that records what the made one does, or replays; `make` is called only to record."""
        return Recorder(self, make()) if self.recording else Replayer(self)

    def async_transport(self, make: Callable[[], AsyncTransport]) -> AsyncTransport:
        """The same for an async transport."""
        return AsyncRecorder(self, make()) if self.recording else AsyncReplayer(self)

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
            refuse_secrets(Exchange(request=noted).texts(), self._forms)
        return noted

    def _keep_off(self, request: HttpRequest) -> None:
        """The keys of the request itself are secrets too: a server may repeat them in what it answers."""
        known = frozenset(key for key in keys_in(request.headers) if len(key) >= _KEY_LENGTH)
        with self._lock:
            if not known <= self._keys:
                self._keys |= known
                self._forms = tuple(dict.fromkeys((*self._forms, *secret_forms(known))))

    @property
    def further_headers(self) -> frozenset[str]:
        return self._headers

    @property
    def replacements(self) -> Mapping[str, str]:
        return self._replace

    def write(self, exchange: Exchange) -> None:
        """Put an exchange on the tape. SecretFoundError if it must not."""
        line = to_line(exchange)
        refuse_secrets([*exchange.texts(), ("an exchange", line.decode("utf-8"))], self._forms)
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
        key = key_of(noted, self._ignore)
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting:
                return waiting.popleft()
        asked = f"{noted.method} {noted.path}"
        if waiting is not None:
            times = sum(key_of(each.request, self._ignore) == key for each in self._exchanges)
            message = f"{asked} is on the tape {self.path.name} {times} times, and was asked for once more."
            raise NotOnTapeError(message)
        detail = explain_miss(noted, [exchange.request for exchange in self._exchanges])
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
            exchanges.append(from_line(line))
        except msgspec.DecodeError as error:
            message = f"Line {number} of the tape {path.name} cannot be read: {error}."
            raise ConfigurationError(message, hint="Record the tape again.") from error
    return exchanges
