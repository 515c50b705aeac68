"""A model call that reports its start, its first content and its end to the observer."""

from __future__ import annotations

from dragoman._observer import Observed, within
from dragoman.conversation import Message, ReplyEvent
from dragoman.errors import ProviderError

from .call import Reply, ReplyCall


class ObservedCall(ReplyCall):
    """Wraps another call."""

    def __init__(self, call: ReplyCall, observed: Observed[Reply]) -> None:
        super().__init__()
        self._call: ReplyCall = call
        self._observed: Observed[Reply] = observed
        self.attempts = call.attempts

    @property
    def message(self) -> Message:
        return self._call.message

    @property
    def failure(self) -> ProviderError | None:
        return self._call.failure

    @property
    def account(self) -> Reply:
        return self._call.account

    async def reply(self) -> Reply:
        try:
            with within(self._observed):
                reply = await self._call.reply()
        except BaseException as error:
            self._observed.end(self._call.account, error)
            raise
        self._observed.end(reply)
        return reply

    async def next(self) -> list[ReplyEvent]:
        try:
            if self._handed_over:  # only reading from here on
                events = await self._call.next()
            else:
                with within(self._observed):
                    events = await self._call.next()
        except BaseException as error:
            self._observed.end(self._call.account, error)
            raise
        if events and not self._handed_over:
            self._handed_over = True
            self._observed.mark()
        self.over = not events
        if (failure := self._call.failure) is not None:  # a fallback chain may now try another model
            self._observed.end(self._call.account, failure)
        return events

    async def aclose(self) -> None:
        """End the call, whether the reply is complete or not."""
        self.over = True
        try:
            with within(self._observed):
                await self._call.aclose()
        finally:
            self._observed.end(self._call.account)
