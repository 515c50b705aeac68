"""One question, one typed answer: how it is asked for, checked, and asked for again with what was wrong."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from dragoman.conversation import Conversation, Message, StopReason, ToolSpec
from dragoman.engines import Reply
from dragoman.errors import InvalidAnswerError
from dragoman.loop import LoopIO, drop_unanswerable_calls
from dragoman.providers import ModelOptions, Profile

from .schema import AnswerType

T = TypeVar("T")

_AGAIN: Final = (
    "That answer cannot be used:\n{problems}\n"
    "Give the whole answer again, corrected, in the form that was asked for and with nothing else."
)
_WHY_NOT: Final = {
    StopReason.MAX_TOKENS: "The answer was cut at the limit of tokens. Raise max_tokens, or ask for less.",
    StopReason.CONTEXT_FULL: "The model's window was full before the answer was. Shorten the history.",
    StopReason.REFUSAL: "The model declined to answer. See error.text, and rephrase the question.",
    StopReason.CONTENT_FILTER: "The provider withheld the answer. Rephrase the question.",
}
"""Endings after which asking the same again would bring the same, and what to do instead."""


class Question:
    """A question under way: the conversation with what was said so far, which the client takes over."""

    def __init__(
        self,
        conversation: Conversation,
        options: ModelOptions,
        profile: Profile,
        *,
        known_tools: tuple[ToolSpec, ...],
        retries: int,
        taken_in: tuple[int, int],
    ) -> None:
        self.conversation: Conversation = conversation
        self.replies: list[Reply] = []
        self.taken_in: tuple[int, int] = taken_in
        """How many messages of the history, and of those that waited to join it, the question was asked with."""
        self._retries: int = retries
        self._prompted: bool = profile.structured == "prompt"
        # The answer is asked for without tools. A provider that wants to know the tools of the history is told of them,
        # and that none may be called.
        wants_tools = profile.needs_tools_of_history and any(each.role == "tool" for each in conversation.messages)
        self._tools: tuple[ToolSpec, ...] = known_tools if wants_tools else ()
        choice = "none" if self._tools else "auto"
        self._options: ModelOptions = msgspec.structs.replace(options, tool_choice=choice, parallel_tool_calls=None)

    async def answer(self, wanted: AnswerType[T], io: LoopIO) -> T:
        """Ask until the answer fits: the answer, or InvalidAnswerError with the last text."""
        # The schema belongs to this question alone.
        options = msgspec.structs.replace(self._options, response_format=wanted.response_format)
        left = self._retries
        asked = self.conversation
        while True:
            reply = await io.reply(asked, self._tools, options)
            self.replies.append(reply)
            said = drop_unanswerable_calls(reply.message)
            self.conversation = asked.plus(said) if said.blocks else asked
            if said.tool_calls:
                self.conversation = self.conversation.repaired().conversation
            try:
                return wanted.read(reply.message, prompted=self._prompted)
            except InvalidAnswerError as error:
                hopeless = _WHY_NOT.get(reply.message.stop_reason or StopReason.END)
                error.text = error.text or reply.message.text
                if hopeless is not None:
                    error.hint = hopeless
                if left <= 0 or hopeless is not None:
                    raise
                problems = "\n".join([f"- {problem}" for problem in error.problems or (error.message,)])
            left -= 1
            asked = self.conversation.plus(Message.user(_AGAIN.format(problems=problems)))
