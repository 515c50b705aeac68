"""A model call that somebody observes: it tells when it begins, when the answer begins to come, and how it ends."""

from __future__ import annotations

from dragoman._observer import Observed, within
from dragoman.conversation import Message, ReplyEvent
from dragoman.errors import ProviderError

from .call import Reply, ReplyCall


class ObservedCall(ReplyCall):
    """Another call, observed."""

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
            if self._handed_over:  # what was asked for only has to be read now
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
        if (failure := self._call.failure) is not None:  # whoever reads may ask another model instead of us
            self._observed.end(self._call.account, failure)
        return events

    async def aclose(self) -> None:
        """Stop, and close what is open: the end, whether all of the reply has come or not."""
        self.over = True
        try:
            with within(self._observed):
                await self._call.aclose()
        finally:
            self._observed.end(self._call.account)
