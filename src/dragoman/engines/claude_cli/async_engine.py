"""The claude program as an engine, for programs on an event loop.

Owns: AsyncClaudeEngine, the twin of ClaudeEngine. It imports asyncio, so plain programs do not import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

from dragoman.conversation import Conversation, ToolSpec
from dragoman.engines.reply import Reply
from dragoman.providers.codec import Loss
from dragoman.providers.options import ModelOptions

from .call import ProgramCall
from .engine import ClaudeOptions, ClaudeProgram
from .on_loop import AsyncProcess, AsyncProgramStream, acarry_out, adrive
from .pool import Pool

__all__ = ["AsyncClaudeEngine"]


class AsyncClaudeEngine(ClaudeProgram):
    """The claude program, on an event loop. Safe to share between tasks."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(model, **options)
        self._pool: Pool[AsyncProcess] = Pool(self.settings.idle_programs)

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is started."""
        return self._losses(conversation, self._pool)

    async def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus((await self.reply(conversation, tools=tools, options=options)).message)

    async def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        call = self._call(conversation, tools, options, stream=False)
        await acarry_out(call, self.settings.permission)
        return call.reply

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> AsyncProgramStream:
        """The model's reply as it arrives; use it in an `async with` block."""
        call = self._call(conversation, tools, options, stream=True)
        return AsyncProgramStream(call, adrive(call, self.settings.permission))

    def _call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ProgramCall[AsyncProcess]:
        prepared = self._prepared(conversation, tools, options, stream=stream)
        self._refuse_losses(conversation, self._pool)
        return ProgramCall(prepared, self._pool)

    async def aclose(self) -> None:
        """End all programs that wait."""
        for live in self._pool.close():
            await live.handle.stop(gently=live.at_rest)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
