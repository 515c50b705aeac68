"""The output of a turn so far, as numbered frames of server-sent events, and the response that sends them.

Each watcher reads the log from its own position at its own pace. The log is bounded: when it is full, its oldest frames
are dropped, and a watcher that has not read them is cut off. It may come back with the number of the last frame it has
seen, and gets what is still there.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""How much of a turn is kept for late and slow watchers."""
IDLE_SECONDS: Final = 15.0
"""After this long without a frame a watcher gets a comment, so that no proxy closes the stream."""
_MOST_FRAMES: Final = 512
_MOST_BYTES: Final = 64 * 1024
"""The maximum of a single write, which limits the buffer of a slow watcher."""
STALLED_SECONDS: Final = 60.0
"""A watcher that reads nothing for this long is cut off."""

_IDLE: Final = b": idle\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer the stream
]


class MissedError(Exception):
    """The next frames for this watcher were dropped."""


class FrameLog:
    """A bounded log of frames, numbered from 1; their ids name the log."""

    def __init__(self, limit: int = MAX_LOG_BYTES) -> None:
        self._limit: int = limit
        self._name: str = secrets.token_hex(6)
        self._frames: list[bytes] = []
        self._size: int = 0
        self._dropped: int = 0
        """How many frames were dropped."""
        self._waiting: list[asyncio.Future[None]] = []
        self._watchers: set[EventStream] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.closed: bool = False
        """Whether the turn is over."""

    @property
    def last(self) -> int:
        """The number of the newest frame; 0 before the first."""
        return self._dropped + len(self._frames)

    @property
    def complete(self) -> bool:
        """Whether nothing was dropped."""
        return not self._dropped

    def has(self, after: int) -> bool:
        """Whether all frames after this number are there."""
        return self._dropped <= after <= self.last

    def find(self, id: str) -> int | None:
        """The number of the last frame that a watcher has seen, by its id; None if it cannot continue from it."""
        name, _, number = id.partition(".")
        if not id:
            after = 0
        elif name == self._name and number.isdecimal() and len(number) < 16:
            after = int(number)
        else:
            return None  # a frame of another turn
        return after if self.has(after) else None

    def append(self, data: bytes) -> None:
        """Add a frame with this data and the next number."""
        frame = b"id: %b.%d\ndata: %b\n\n" % (self._name.encode(), self.last + 1, data)
        self._frames.append(frame)
        self._size += len(frame)
        if self._size > self._limit:
            self._trim()
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def forget(self) -> None:
        """Drop all frames."""
        self._dropped, self._frames, self._size = self.last, [], 0

    def _trim(self) -> None:
        """Drop the oldest frames: more than needed, so that this is not done for every frame."""
        gone = 0
        while gone < len(self._frames) - 1 and self._size > self._limit * 3 // 4:
            self._size -= len(self._frames[gone])
            gone += 1
        del self._frames[:gone]
        self._dropped += gone

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def read(self, after: int) -> tuple[int, bytes]:
        """The next frames after this number, and the number of the last of them. Raises MissedError."""
        if after < self._dropped:
            raise MissedError
        found: list[bytes] = []
        size, first = 0, after - self._dropped
        for frame in islice(self._frames, first, first + _MOST_FRAMES):
            size += len(frame)
            if found and size > _MOST_BYTES:
                break
            found.append(frame)
        return after + len(found), b"".join(found)

    async def wait(self, after: int) -> None:
        """Wait for a frame after this number, for the end of the log, or until it has been idle for a while."""
        if self.last > after or self.closed:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    # --- watchers ---

    # One timer for all of them: with one each, five hundred would cost more than the frames.

    def join(self, watcher: EventStream) -> None:
        """Wake this watcher when the log is idle, and cut it off when it reads nothing."""
        self._watchers.add(watcher)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._look)

    def leave(self, watcher: EventStream) -> None:
        self._watchers.discard(watcher)
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for watcher in list(self._watchers):
            watcher.cut_off_if_stalled(loop.time())
        self._wake()
        self._timer = loop.call_later(IDLE_SECONDS, self._look)


class EventStream:
    """An ASGI response: the frames of a log after a number, as they come, then `end`.

    A watcher that has missed frames is cut off without the end; its client may reconnect.
    """

    def __init__(
        self,
        log: FrameLog,
        *,
        after: int = 0,
        end: bytes = b"",
        headers: Mapping[str, str] | None = None,
        when_left: Callable[[], object] | None = None,
    ) -> None:
        self._log: FrameLog = log
        self._after: int = after
        self._end: bytes = end
        self._when_left: Callable[[], object] | None = when_left
        """Called when the watcher leaves before the end."""
        self._sending: asyncio.Future[None] | None = None
        self._since: float | None = None
        """When the current write started; None if there is none."""
        self._headers: list[tuple[bytes, bytes]] = [
            *_HEADERS,
            *[(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        sending = self._sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_wait_until_gone(receive))
        self._log.join(self)
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if self._when_left is not None and not self._log.closed:
                self._when_left()
        finally:
            self._log.leave(self)
            sending.cancel()
            leaving.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await sending

    async def _send_all(self, send: Send) -> None:
        log, after, now = self._log, self._after, asyncio.get_running_loop().time
        over = False
        while not over:
            await log.wait(after)
            try:
                after, frames = log.read(after)
                over = log.closed and after >= log.last
                body = frames + self._end if over else frames or _IDLE
            except MissedError:
                over, body = True, b""
            self._since = now()
            await send({"type": "http.response.body", "body": body, "more_body": not over})
            self._since = None

    def cut_off_if_stalled(self, now: float) -> None:
        """Cancel a write that takes too long."""
        if self._since is not None and now - self._since > STALLED_SECONDS and self._sending is not None:
            self._sending.cancel()


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
