"""A workflow of one's own, in Temporal's sandbox: a draft, and a second agent that is asked about it."""

from __future__ import annotations

from temporalio import workflow

from dragoman.conversation import Conversation, Message
from dragoman.temporal import begin_turn, run_turn
from dragoman.tools import Approval, PendingApproval


@workflow.defn
class Reviewed:
    """Ends when the reviewer is content."""

    @workflow.run
    async def run(self, question: str) -> Conversation:
        talk = Conversation().plus(Message.user(question))
        while True:
            talk = (await run_turn("writer", talk)).conversation
            review = await run_turn("reviewer", Conversation().plus(Message.user(talk.text)))
            if review.text == "good":
                return talk
            talk = talk.plus(Message.user(review.text))


@workflow.defn
class Approved:
    """A turn whose calls wait for a signal; what waits and what was answered are values of ours."""

    def __init__(self) -> None:
        self.waiting: tuple[PendingApproval, ...] = ()
        self.answers: list[Approval] = []

    @workflow.run
    async def run(self, question: Message) -> Conversation:
        turn = await begin_turn("writer", Conversation().plus(question))
        result = await turn.complete()
        while result.pending:
            self.waiting = result.pending
            await workflow.wait_condition(lambda: len(self.answers) == len(self.waiting))
            answers, self.answers = self.answers, []
            result = await run_turn(
                "writer", result.conversation, approvals=answers, waiting=result.pending, spent=result.spent
            )
        return result.conversation

    @workflow.signal
    def answer(self, answer: Approval) -> None:
        self.answers.append(answer)

    @workflow.query
    def pending(self) -> list[PendingApproval]:
        return list(self.waiting)

    @workflow.query
    def first(self) -> PendingApproval:
        return self.waiting[0]
