"""Driving a model call in a plain program.

Owns: doing with a plain transport what a call asks for, and the stream that a caller iterates.
Must not know: what is asked for and why.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Self

from dragoman.conversation import Message, ReplyEvent
from dragoman.errors import ProviderError
from dragoman.transport.protocol import Response, Transport

from .model_call import Emit, ModelCall, Open, ReadPiece, Sleep
from .reply import Reply

__all__ = ["ReplyStream", "carry_out", "drive"]


def carry_out(call: ModelCall, transport: Transport, sleep: Callable[[float], None]) -> None:
    """Carry out a call for a whole reply."""
    call.begin()
    while True:
        try:
            response = transport.open(call.request)
            call.opened(response)
            call.take_whole(response.read())  # which releases the connection, however it ends
        except ProviderError as error:
            pause = call.failed(error)
            if pause is None:
                raise
        else:
            return
        sleep(pause)
        call.again()


def drive(call: ModelCall, transport: Transport, sleep: Callable[[float], None]) -> Generator[ReplyEvent, None, None]:
    """Carry out a streamed call, and give its events as they come. Closing the generator closes the connection."""
    steps = call.steps()
    response: Response | None = None
    answer: object = None
    failure: ProviderError | None = None
    try:
        while True:
            try:
                effect = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration:
                return
            answer = failure = None
            if isinstance(effect, Emit):
                yield from effect.events
                continue
            try:
                if isinstance(effect, Open):
                    answer = response = transport.open(effect.request)
                elif isinstance(effect, Sleep):
                    response = _closed(response)
                    sleep(effect.seconds)
                elif response is not None:
                    answer = next(response, b"") if isinstance(effect, ReadPiece) else response.read()
            except ProviderError as error:
                failure = error
    finally:
        steps.close()
        _closed(response)


def _closed(response: Response | None) -> None:
    if response is not None:
        response.close()


class ReplyStream:
    """A reply while it arrives: iterate it inside a `with` block, which closes the connection however it is left."""

    def __init__(self, call: ModelCall, events: Generator[ReplyEvent, None, None]) -> None:
        self._call: ModelCall = call
        self._events: Generator[ReplyEvent, None, None] = events

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._call.message

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        return self._call.reply

    def __iter__(self) -> Iterator[ReplyEvent]:
        return self._events

    def close(self) -> None:
        """Stop the reply and release the connection."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
