"""A turn with its questions: the model speaks, tools run, a person is asked, and so on until it is done.

Owns: the order of these, and that a run's limit of steps holds across its questions.
Must not know: how anything is shown.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dragoman.chat.client import ChatClient
from dragoman.chat.prompt import Prompt
from dragoman.conversation import Event
from dragoman.errors import StepLimitError
from dragoman.loop.run import RunResult
from dragoman.tools.permission import Approval

from .approvals import Approver

__all__ = ["Turn", "View", "take_turn"]


class View(Protocol):
    """Shows a turn while it happens."""

    def event(self, event: Event) -> None:
        """Something has happened."""
        ...

    def waiting(self) -> None:
        """The model has been asked, and nothing has been heard yet."""
        ...

    def still(self) -> None:
        """Nothing happens until somebody else has used the terminal, or the turn is over."""
        ...


class Turn(NamedTuple):
    """What came of it."""

    result: RunResult
    """Of the last run; what was said before a question is in its conversation."""
    since: int
    """How many messages there were before."""


def take_turn(client: ChatClient, prompt: Prompt | None, approver: Approver, view: View) -> Turn:
    """Let the model answer, asking about calls in between. Without a prompt it goes on from where it stands."""
    since, steps = len(client.history), 0
    most = client.tools.config.max_iterations
    approvals: list[Approval] = []
    if prompt is None and client.uncertain:
        # Who speaks instead has answered: the calls are not run. Calls that had not begun are asked about by the loop.
        approvals = approver.answers(client.uncertain, client.tools.tools, client.uncertain)
    while True:
        try:
            with client.stream_chat(prompt, approvals=approvals) as stream:
                view.waiting()
                for event in stream:
                    view.event(event)
        finally:
            view.still()
        result = stream.result
        if not result.pending:
            return Turn(result, since)
        steps += result.spent.steps
        if steps >= most:
            message = f"max iterations ({most}) reached"
            raise StepLimitError(message, conversation=client.conversation, limit="steps")
        approvals = approver.answers(result.pending, client.tools.tools, client.uncertain)
        prompt = None
