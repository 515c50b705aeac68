"""Transports that record what another one does, and transports that replay a tape.

Owns: collecting the pieces of a reply while they pass, and handing out recorded ones.
Must not know: files, and which transport it is that does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.errors import DragomanError
from dragoman.transport.bases import BaseAsyncResponse, BaseAsyncTransport, BaseResponse, BaseTransport
from dragoman.transport.protocol import AsyncResponse, AsyncTransport, HttpRequest, Response, Transport
from dragoman.transport.troubles import trouble

from .exchange import Exchange, RecordedError, RecordedReply, RecordedRequest, replaced_bytes, to_bytes, to_data

if TYPE_CHECKING:
    from .tape import Tape

__all__ = ["AsyncRecorder", "AsyncReplayer", "Recorder", "Replayer"]


class _Notes:
    """What has passed of one exchange; goes onto the tape once."""

    def __init__(self, tape: Tape, noted: RecordedRequest, status: int, headers: dict[str, str]) -> None:
        self._tape: Tape = tape
        self._noted: RecordedRequest = noted
        self._status: int = status
        self._headers: dict[str, str] = headers
        self._pieces: list[bytes] = []
        self._written: bool = False

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def write(self, *, complete: bool, error: DragomanError | None = None) -> None:
        if self._written:
            return
        self._written = True
        pieces = tuple(to_data(replaced_bytes(piece, self._tape.replacements)) for piece in self._pieces)
        reply = RecordedReply(status=self._status, headers=self._headers, pieces=pieces, complete=complete)
        recorded = None if error is None else RecordedError.of(error)
        self._tape.write(Exchange(request=self._noted, reply=reply, error=recorded))


def _begin(tape: Tape, noted: RecordedRequest, response: Response | AsyncResponse) -> _Notes:
    headers = RecordedReply.kept_headers(response.headers, tape.further_headers)
    return _Notes(tape, noted, response.status, headers)


def _write_error(tape: Tape, noted: RecordedRequest, error: DragomanError) -> None:
    tape.write(Exchange(request=noted, error=RecordedError.of(error)))


# --- recording -------------------------------------------------------------------------------------------------------


class _RecordingResponse(BaseResponse):
    def __init__(self, request: HttpRequest, response: Response, notes: _Notes) -> None:
        super().__init__(request, response.status, response.headers)
        self._response: Response = response
        self._notes: _Notes = notes

    def __next__(self) -> bytes:
        try:
            piece = next(self._response)
        except StopIteration:
            self._notes.write(complete=True)
            raise
        except DragomanError as error:
            self._notes.write(complete=False, error=error)
            raise
        self._notes.add(piece)
        return piece

    def close(self) -> None:
        self._response.close()
        self._notes.write(complete=False)


class Recorder(BaseTransport):
    """Sends requests through another transport and writes down what comes back."""

    def __init__(self, tape: Tape, transport: Transport) -> None:
        self._tape: Tape = tape
        self._transport: Transport = transport

    def open(self, request: HttpRequest) -> BaseResponse:
        noted = self._tape.note(request)
        try:
            response = self._transport.open(request)
        except DragomanError as error:
            _write_error(self._tape, noted, error)
            raise
        return _RecordingResponse(request, response, _begin(self._tape, noted, response))

    def close(self) -> None:
        self._transport.close()


class _AsyncRecordingResponse(BaseAsyncResponse):
    def __init__(self, request: HttpRequest, response: AsyncResponse, notes: _Notes) -> None:
        super().__init__(request, response.status, response.headers)
        self._response: AsyncResponse = response
        self._notes: _Notes = notes

    async def __anext__(self) -> bytes:
        try:
            piece = await anext(self._response)
        except StopAsyncIteration:
            self._notes.write(complete=True)
            raise
        except DragomanError as error:
            self._notes.write(complete=False, error=error)
            raise
        self._notes.add(piece)
        return piece

    async def aclose(self) -> None:
        await self._response.aclose()
        self._notes.write(complete=False)


class AsyncRecorder(BaseAsyncTransport):
    """The same for an async transport."""

    def __init__(self, tape: Tape, transport: AsyncTransport) -> None:
        self._tape: Tape = tape
        self._transport: AsyncTransport = transport

    async def open(self, request: HttpRequest) -> BaseAsyncResponse:
        noted = self._tape.note(request)
        try:
            response = await self._transport.open(request)
        except DragomanError as error:
            _write_error(self._tape, noted, error)
            raise
        return _AsyncRecordingResponse(request, response, _begin(self._tape, noted, response))

    async def aclose(self) -> None:
        await self._transport.aclose()


# --- replaying -------------------------------------------------------------------------------------------------------


class _Playback:
    """The recorded reply to a request, piece by piece."""

    def __init__(self, tape: Tape, request: HttpRequest) -> None:
        exchange = tape.find(request)
        if exchange.reply is None:
            raise exchange.error.again() if exchange.error is not None else trouble("closed_early", request)
        self.reply: RecordedReply = exchange.reply
        self._request: HttpRequest = request
        self._error: RecordedError | None = exchange.error
        self._position: int = 0

    def next(self) -> bytes | None:
        """The next piece, or None at the end."""
        if self._position < len(self.reply.pieces):
            self._position += 1
            return to_bytes(self.reply.pieces[self._position - 1])
        if self._error is not None:
            raise self._error.again()
        if not self.reply.complete:  # nobody knows how it went on
            raise trouble("cut_off", self._request, detail="the recording was stopped here")
        return None

    def stop(self) -> None:
        """Nothing more is wanted."""
        self._position = len(self.reply.pieces)
        self._error = None
        self.reply = RecordedReply(status=self.reply.status, headers=self.reply.headers)


class _ReplayedResponse(BaseResponse):
    def __init__(self, request: HttpRequest, playback: _Playback) -> None:
        super().__init__(request, playback.reply.status, playback.reply.headers)
        self._playback: _Playback = playback

    def __next__(self) -> bytes:
        piece = self._playback.next()
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        self._playback.stop()


class Replayer(BaseTransport):
    """Answers from a tape; no connection is made."""

    def __init__(self, tape: Tape) -> None:
        self._tape: Tape = tape

    def open(self, request: HttpRequest) -> BaseResponse:
        return _ReplayedResponse(request, _Playback(self._tape, request))

    def close(self) -> None:
        pass


class _AsyncReplayedResponse(BaseAsyncResponse):
    def __init__(self, request: HttpRequest, playback: _Playback) -> None:
        super().__init__(request, playback.reply.status, playback.reply.headers)
        self._playback: _Playback = playback

    async def __anext__(self) -> bytes:
        piece = self._playback.next()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._playback.stop()


class AsyncReplayer(BaseAsyncTransport):
    """The same for an async transport."""

    def __init__(self, tape: Tape) -> None:
        self._tape: Tape = tape

    async def open(self, request: HttpRequest) -> BaseAsyncResponse:
        return _AsyncReplayedResponse(request, _Playback(self._tape, request))

    async def aclose(self) -> None:
        pass
