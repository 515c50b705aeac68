"""What several batches of tool calls have in common: one run of the loop.

Owns: the run's deadline, the counts for budgets, cancellation, approvals, and what tools get to see.
Must not know: how a call is carried out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from dragoman.conversation import Conversation, ToolCall
from dragoman.tools.permission import Approval

__all__ = ["ToolRun"]

_NO_CONVERSATION = Conversation()


class ToolRun:
    """State shared by all tool calls of one run. `cancel()` may be called from any thread."""

    def __init__(
        self,
        *,
        conversation: Conversation = _NO_CONVERSATION,
        deps: object = None,
        approvals: Iterable[Approval] = (),
        deadline: float | None = None,
    ) -> None:
        self.conversation: Conversation = conversation
        self.deps: object = deps
        self.deadline: float | None = deadline
        """When all calls must be done, on the clock of `time.monotonic`; an executor with a `run_timeout` sets it."""
        self.counts: dict[str, int] = {}
        """How often each tool has been called."""
        self._approvals: dict[str, Approval] = {approval.call_id: approval for approval in approvals}
        # Re-entrant: a signal handler that cancels may interrupt the very thread that holds it.
        self._lock: threading.RLock = threading.RLock()
        self.cancelled: bool = False
        """Whether the run was told to stop. Say `cancel()` to stop it."""
        self._listeners: list[Callable[[], None]] = []

    def answer(self, approval: Approval) -> None:
        """Take in a person's answer about a pending call."""
        self._approvals[approval.call_id] = approval

    def approval_of(self, call: ToolCall) -> Approval | None:
        """The answer about exactly this call; one about other arguments does not count."""
        approval = self._approvals.get(call.id)
        return approval if approval is not None and approval.answers(call) else None

    def take_approval(self, call: ToolCall) -> Approval | None:
        """The same, and it is used up: a model that makes the very same call again must be approved again."""
        approval = self.approval_of(call)
        if approval is not None:
            self._approvals.pop(call.id, None)
        return approval

    def spend(self, name: str, budget: int | None) -> bool:
        """Count one more call of the tool; False, and nothing counted, if it has been called that often already."""
        with self._lock:
            called = self.counts.get(name, 0)
            if budget is not None and called >= budget:
                return False
            self.counts[name] = called + 1
            return True

    def cancel(self) -> None:
        """Stop waiting for tools and start no more. Every call still gets its result: `cancelled`."""
        with self._lock:
            self.cancelled = True
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def on_cancel(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener on cancellation, from the cancelling thread, or now if it is too late for that.

        Returns a function that takes the listener away again.
        """
        with self._lock:
            self._listeners.append(listener)
            already = self.cancelled
        if already:
            listener()

        def forget() -> None:
            with self._lock:
                self._listeners.remove(listener)

        return forget
