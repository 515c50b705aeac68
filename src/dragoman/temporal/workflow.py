"""The ready-made workflow: one conversation.

    say, resume                    updates: a turn, and a turn that continues after a person's decisions; its outcome
    add, stop, close               signals: add a message, end the running turn, end the conversation
    conversation, standing, seen   queries: all of it, its state, new messages for a watcher

Owns: the conversation between turns, one turn at a time, and continuing as new. A turn is in turns.py.

Cancelling the workflow ends the running turn and then the conversation. It continues as new only between turns, with
its whole state, when its history grows long. A turn that did nothing before it failed leaves no trace, as in a chat
client.

It runs outside Temporal's sandbox, which would reload modules for every conversation: nothing here reads a clock, a
random number or a file, and recorded histories are replayed in the tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Raw, structs
from temporalio import workflow

from dragoman.conversation import (
    Conversation,
    Ended,
    Message,
    StopReason,
    Usage,
    conversation_from_json,
    message_from_json,
    message_to_json,
)
from dragoman.errors import ConcurrentUseError, ConfigurationError, ConversationError
from dragoman.loop import ENDINGS, Cancelled, Done, LoopHooks, LoopRun, NoAnswer, Spent
from dragoman.tools import Approval, PendingApproval

from .payloads import (
    LARGEST,
    NOTHING,
    Answers,
    ConversationStart,
    Seen,
    TurnOutcome,
    waits_of,
    write_conversation,
)
from .turns import begin_turn


class _Forgetting(LoopHooks):
    """Counts the messages that context policies remove, so that a watcher's position stays valid."""

    def __init__(self, messages: int) -> None:
        self.messages: int = messages

    def compacted(self, run: LoopRun, before: Conversation) -> None:
        self.messages += len(before.messages) - len(run.conversation.messages)


@workflow.defn(name="dragoman.conversation", sandboxed=False)
class ConversationWorkflow:
    """A conversation with an agent."""

    @workflow.init
    def __init__(self, start: ConversationStart) -> None:
        self._start: ConversationStart = start
        self._held: Conversation | None = None
        """The conversation between turns; None if this worker cannot read it."""
        self._waiting: tuple[PendingApproval, ...] = ()
        self._queue: tuple[Message, ...] = tuple([message_from_json(bytes(each)) for each in start.queue])
        self._spent: Spent = start.spent
        self._usage: Usage = start.outcome.usage
        self._ending: Ended | None = "await_approval" if start.waits else start.outcome.ending
        self._stop_reason: StopReason | None = start.outcome.stop_reason
        self._note: str = start.outcome.note
        self._left_out: Raw = start.outcome.reply if start.outcome.ending == "no_answer" else NOTHING
        """The reply that ended the last turn, if it said nothing and is no part of the conversation."""
        self._run: LoopRun | None = None
        self._busy: bool = False
        self._stopped: bool = False
        """Whether the turn was stopped before its run existed."""
        self._closed: bool = False
        self._last: tuple[str, TurnOutcome] = (start.key, start.outcome)
        """The key and the outcome of the last turn: Temporal forgets keys when it continues as new."""
        self._forgotten: _Forgetting = _Forgetting(start.forgotten)
        with suppress(ConversationError):
            self._held = self._read()
            calls = self._held.pending_tool_calls  # those of a given conversation may have run before
            self._waiting = tuple([PendingApproval(call=call, reason=start.waits.get(call.id, "")) for call in calls])

    @workflow.run
    async def run(self, start: ConversationStart) -> Conversation:
        """Wait until the conversation is closed."""
        try:
            await workflow.wait_condition(lambda: self._closed or (self._is_long and not self._busy))
            await workflow.wait_condition(workflow.all_handlers_finished)
        except asyncio.CancelledError:
            self.stop()
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise
        if not self._closed:
            workflow.continue_as_new(self._carried())
        write_conversation(self._read())  # raises if the server would refuse it
        return self._read()

    # --- turns ---

    @workflow.update
    async def say(self, message: Message) -> TurnOutcome:
        """Add a message and run a turn."""
        return await self._turn((message,), ())

    @say.validator
    def _check_say(self, message: Message) -> None:
        if self._refuse_busy() and self._waiting:
            hint = "Decide about them first: approve(call) or deny(call)."
            raise ConfigurationError("Calls of this conversation wait for a person.", hint=hint)

    @workflow.update
    async def resume(self, answers: Answers) -> TurnOutcome:
        """Decide about pending calls and continue the turn."""
        return await self._turn((), answers.approvals)

    @resume.validator
    def _check_resume(self, answers: Answers) -> None:
        self._refuse_busy()

    def _refuse_busy(self) -> bool:
        """Raise if no turn can start now; False if this one has run already."""
        if _key() == self._last[0]:
            return False
        if self._busy or self._closed:
            message = "A turn of this conversation is running." if self._busy else "This conversation was closed."
            raise ConcurrentUseError(message, hint="Wait for the turn, or `add` the message to it.")
        return True

    async def _turn(self, said: Iterable[Message], answers: Iterable[Approval]) -> TurnOutcome:
        if _key() == self._last[0]:
            return self._last[1]
        self._busy, self._stopped = True, False
        try:
            conversation, queue = self._read(), self._queue
            turn = await begin_turn(
                self._start.agent,
                conversation,
                options=self._start.options,
                limits=self._start.limits,
                approvals=answers,
                waiting=self._waiting,
                unread=(*queue, *said),
                spent=self._spent if conversation.pending_tool_calls else Spent(),
                hooks=(self._forgotten,),
            )
            run = turn.run
            for late in self._queue[len(queue) :]:
                run.add(late)
            self._run, self._queue = run, queue
            if self._stopped:
                run.cancel()
            try:
                await turn.complete()
            except (Exception, asyncio.CancelledError):
                self._take_over(run, failed=True)
                raise
            self._take_over(run, failed=False)
        finally:
            self._busy, self._run = False, None
            self._say_queued()
        self._last = (_key(), self.standing())
        return self._last[1]

    def _take_over(self, run: LoopRun, *, failed: bool) -> None:
        """Take the state over from a turn, however it ended."""
        if run.has_done_something or not (failed or isinstance(run.ending, Cancelled)):
            self._held, self._queue, self._waiting = run.conversation, tuple(run.unread), run.pending
        else:
            self._queue = (*self._queue, *run.added)
        self._spent, self._usage = run.spent, run.usage
        self._ending = None if run.ending is None else ENDINGS[type(run.ending)]
        last = run.ending.message if isinstance(run.ending, Done | NoAnswer) else None
        self._left_out = Raw(message_to_json(last)) if last is not None and last.says_nothing else NOTHING
        self._stop_reason, self._note = (None, "")
        if run.ending is not None:
            self._stop_reason, self._note = run.result.stop_reason, run.result.note

    # --- signals ---

    @workflow.signal
    def add(self, message: Message) -> None:
        """Add a message without calling the model; a running turn includes it in its next model call."""
        if self._run is not None:
            self._run.add(message)
        else:
            self._queue = (*self._queue, message)
            self._say_queued()

    @workflow.signal
    def stop(self) -> None:
        """End the running turn."""
        self._stopped = True
        if self._run is not None:
            self._run.cancel()

    @workflow.signal
    def close(self) -> None:
        """End the conversation after the running turn."""
        self._closed = True

    # --- queries ---

    @workflow.query
    def conversation(self) -> Conversation | Raw:
        """The conversation so far, including the running turn."""
        return self._start.conversation if self._held is None else self._now

    @workflow.query
    def standing(self) -> TurnOutcome:
        """The state of the conversation, with its pending calls."""
        replies = [each for each in self._now.messages if each.role == "assistant"]
        reply = NOTHING if self._busy else self._left_out
        return TurnOutcome(
            ending=None if self._busy else self._ending,
            reply=Raw(message_to_json(replies[-1])) if replies and reply == NOTHING else reply,
            stop_reason=None if self._busy else self._stop_reason,
            note="" if self._busy else self._note,
            waits=waits_of(self._waiting) if self._run is None else {},
            spent=self._spent if self._run is None else self._run.spent,
            usage=self._usage,
        )

    @workflow.query
    def seen(self, position: int) -> Seen:
        """The messages from this position on, as many as fit into a payload."""
        gone, size, new = self._forgotten.messages, 0, list[Raw]()
        position = max(position, gone)
        for message in self._now.messages[position - gone :]:
            new.append(Raw(message_to_json(message)))
            size += len(bytes(new[-1]))
            if size > LARGEST and len(new) > 1:
                new.pop()
                break
        return Seen(messages=tuple(new), position=position + len(new))

    # --- its state ---

    @property
    def _now(self) -> Conversation:
        return self._read() if self._run is None else self._run.conversation

    def _read(self) -> Conversation:
        """The conversation. One of a newer version is an error for the caller, and kept for newer workers."""
        return conversation_from_json(bytes(self._start.conversation)) if self._held is None else self._held

    def _say_queued(self) -> None:
        """Add the queued messages to the conversation, unless results of pending calls come first."""
        if self._held is not None and not (self._busy or self._held.pending_tool_calls):
            self._held, self._queue = self._held.plus(*self._queue), ()

    @property
    def _is_long(self) -> bool:
        info, longest = workflow.info(), self._start.longest_history
        if not info.is_continue_as_new_suggested() and (
            longest is None or info.get_current_history_length() <= longest
        ):
            return False
        with suppress(ConfigurationError):  # one that is too large cannot continue as new
            return bool(self._carried())
        return False

    def _carried(self) -> ConversationStart:
        queue = tuple([Raw(message_to_json(each)) for each in self._queue])
        if self._held is None:
            return structs.replace(self._start, queue=queue)
        return structs.replace(
            self._start,
            conversation=write_conversation(self._held),
            waits=waits_of(self._waiting),
            spent=self._spent,
            queue=queue,
            forgotten=self._forgotten.messages,
            key=self._last[0],
            outcome=self._last[1],
        )


def _key() -> str:
    """The caller's key for this turn."""
    info = workflow.current_update_info()
    return "" if info is None else info.id
