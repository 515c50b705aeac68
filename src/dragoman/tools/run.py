"""One run of tools: how they are used in it (ToolConfig), whether a call may run (Decision, Approval), what its calls
share (ToolRun), what a tool may know of its call (ToolContext).

Rules are the toolkit's business, and who is asked is the program's. What is code rather than data (permissions,
middleware, hooks) goes to the executor's constructor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msgspec import Struct, structs

from dragoman._checks import CheckedMeta, Count, NotNegative, Positive
from dragoman._stop import Stop, shorter
from dragoman.conversation import Conversation, Event, ToolCall, ToolChoice, Usage
from dragoman.errors import ToolCancelledError

if TYPE_CHECKING:
    import logging

    from .call import CallExecution
    from .definition import AnyTool, Tool
    from .registry import ToolSet

Deps = TypeVar("Deps")

_NO_CONVERSATION = Conversation()

# --- how tools are used, as plain data that a configuration file can hold ---------------------------------------------


class ToolErrorHandling(Enum):
    """What a run does when a tool fails."""

    CONTINUE = "continue"
    """The model reads the error and goes on. A tool is retried only if its definition says so."""
    ABORT = "abort"
    """The run stops; calls that have not finished are cancelled."""
    RETRY = "retry"
    """Every tool is retried, except those that say `retries=0`; then the model reads the error."""


class RetryConfig(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a failed or timed-out call is tried again, and how long to wait in between."""

    max_retries: Count = 2
    backoff_base: NotNegative = 0.5
    """Seconds before the first retry."""
    backoff_factor: NotNegative = 2.0
    backoff_max: NotNegative = 30.0
    jitter: NotNegative = 0.25
    """The wait varies by up to this share in both directions, so that many clients do not retry in step."""

    def delay(self, retry: int, random: float) -> float:
        """Seconds to wait before retry number `retry` (from 1); `random` is between 0 and 1."""
        # Capped before the power can overflow: 2.0 ** 2000 is an error in Python.
        exponent = min(retry - 1, 64)
        wait = min(self.backoff_base * self.backoff_factor**exponent, self.backoff_max)
        return max(0.0, wait * (1.0 + self.jitter * (2.0 * random - 1.0)))


class ToolConfig(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tools are used in a run."""

    enabled: bool = True
    tool_choice: ToolChoice = "auto"
    max_iterations: Count = 20
    execution_timeout: NotNegative | None = None
    """Seconds for one try of one call, where the tool does not say otherwise (`inf`: no limit). None: no limit."""
    run_timeout: NotNegative | None = None
    """Seconds for all tool calls of a run, counted from its start. None: no limit."""
    max_parallel_tools: Positive = 5
    """How many calls run at once. With 1, plain functions without a time limit run in the thread of a plain program
    itself: for those that are bound to it. Nobody can give up on them then."""
    allowed_tools: frozenset[str] | None = None
    """The tools that may be called; None means all."""
    search: Count | None = None
    """With more tools than this the model is told of a few, and finds the others; None: it is told of all."""
    always_offered: frozenset[str] = frozenset()
    """Where tools are searched, those of which the model is told from the beginning."""
    budgets: dict[str, Count] = {}
    """How often each tool may be called in a run, where the tool does not say otherwise."""
    tool_error_handling: ToolErrorHandling = ToolErrorHandling.CONTINUE
    retry: RetryConfig = RetryConfig()
    max_result_size: Count = 1_000_000
    """How many characters of text and JSON the model reads of one result; the rest is cut, and a note says so."""
    max_media_size: Count = 32_000_000
    """How many bytes an image, document, recording or film in a result may have; a note stands for a larger one."""


# --- may a call run: the answers, and approvals bound to the exact call -----------------------------------------------


class Allow(Struct, frozen=True):
    """The call may run."""

    approved: bool = False
    """A person has just approved this very call, so a tool that `requires_approval` need not ask again."""


class Deny(Struct, frozen=True):
    """The call must not run; the model reads the reason."""

    reason: str


class Ask(Struct, frozen=True):
    """A person must approve this very call first."""

    reason: str = ""


Decision: TypeAlias = Allow | Deny | Ask
"""What can be decided about a call before it runs."""

PermissionCheck: TypeAlias = (
    "Callable[[ToolCall, Tool[..., object], ToolContext[object]], Decision | Awaitable[Decision]]"
)
"""Decides about one call before it runs; plain or async."""


class Approval(Struct, frozen=True, kw_only=True):
    """A person's answer about one call. It holds for exactly the arguments that were shown, and for no other call."""

    call_id: str
    fingerprint: str
    approved: bool
    reason: str = ""

    def answers(self, call: ToolCall) -> bool:
        """Whether this is the answer about that call, unchanged."""
        return self.fingerprint == fingerprint(call)


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for a person."""

    call: ToolCall
    reason: str = ""
    within: ToolCall | None = None
    """The call of the conversation itself for which this one is made, by an agent say. `call.id` begins with its id."""
    waits_for: tuple[PendingApproval, ...] = ()
    """Of a call that its tool has paused: those inside it, which are to be answered in its place."""

    @property
    def held(self) -> ToolCall:
        """The call of the conversation itself that has no result meanwhile."""
        return self.within or self.call

    def tool_among(self, tools: ToolSet) -> AnyTool | None:
        """The tool that is called. Those of agents and providers are not here, even if one of the same name is."""
        return None if self.within is not None or self.call.hosted else tools.find(self.call.name)

    def inside(self, outer: ToolCall) -> PendingApproval:
        """The same as the caller of that call sees it."""
        call = structs.replace(self.call, id=f"{outer.id}>{self.call.id}")
        return PendingApproval(call=call, reason=self.reason, within=outer)


class Paused(Exception):  # noqa: N818 - nothing went wrong
    """Raised by a tool whose call waits for a person: these calls, made on its behalf, are to be answered first.

    They come up in `pending` of whoever made the call, with ids that begin with its own. Once one of them is answered
    the tool is called again, and `context.answer_about(call)` says what the person said.
    """

    def __init__(self, pending: Iterable[PendingApproval]) -> None:
        self.pending: tuple[PendingApproval, ...] = tuple(pending)
        super().__init__(", ".join([f"{each.call.name}: {each.reason}" for each in self.pending]))


def fingerprint(call: ToolCall) -> str:
    """A hash of the call's id, tool and exact arguments; a tool of the provider's is another one."""
    from hashlib import sha256  # slow to load, and needed only where people are asked

    digest = sha256()
    for part in (call.id, call.name, call.arguments, *(["hosted"] if call.hosted else [])):
        raw = part.encode("utf-8", "surrogatepass")
        # With its length in front no two different calls can give the same bytes.
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()


def approve(call: ToolCall, *, reason: str = "") -> Approval:
    """Allow this call, with exactly these arguments."""
    return Approval(call_id=call.id, fingerprint=fingerprint(call), approved=True, reason=reason)


def deny(call: ToolCall, *, reason: str = "") -> Approval:
    """Refuse this call; the model reads the reason."""
    return Approval(call_id=call.id, fingerprint=fingerprint(call), approved=False, reason=reason)


# --- what the calls of a run share -----------------------------------------------------------------------------------


class ToolRun:
    """State shared by all tool calls of one run. `cancel()` may be called from any thread."""

    def __init__(
        self,
        *,
        conversation: Conversation = _NO_CONVERSATION,
        deps: object = None,
        approvals: Iterable[Approval] = (),
        deadline: float | None = None,
        stop: Stop | None = None,
        watched: bool = False,
        pauses: bool = True,
        caller: object = None,
    ) -> None:
        self.conversation: Conversation = conversation
        self.deps: object = deps
        self.stop: Stop = stop or Stop()
        """Tells the run to stop."""
        self.began: float = time.monotonic()
        self.deadline: float | None = shorter(deadline, self.stop.deadline)
        """When all calls must be done, on the clock of `time.monotonic`; an executor with a `run_timeout` sets it."""
        self.counts: dict[str, int] = {}
        """How often each tool has been called."""
        self.watched: bool = watched
        """Whether somebody reads what tools report."""
        self.pauses: bool = pauses
        """Whether somebody can go on with a call that its tool has paused."""
        self.caller: object = caller
        """The run of the loop that the calls belong to, if there is one; for tools that are runs themselves."""
        self.used: list[Usage] = []
        """What models behind the tools have used so far, those of agents say, for each call of one."""
        self.calls_inside: int = 0
        """How many calls of tools were made behind the tools."""
        self._approvals: dict[str, Approval] = {approval.fingerprint: approval for approval in approvals}
        self._lock: threading.Lock = threading.Lock()

    def answer(self, approval: Approval) -> None:
        """Take in a person's answer about a pending call."""
        self._approvals[approval.fingerprint] = approval

    def take_approval(self, call: ToolCall) -> Approval | None:
        """The answer about exactly this call. It is used up: the very same call, made again, must be approved again."""
        return self._approvals.pop(fingerprint(call), None) if self._approvals else None

    def take_answers_inside(self, call: ToolCall) -> tuple[Approval, ...]:
        """The answers about calls that are made on behalf of this one. They are used up, too."""
        if not self._approvals:
            return ()
        inside = [each for each in self._approvals.values() if each.call_id.startswith(f"{call.id}>")]
        return tuple([self._approvals.pop(each.fingerprint) for each in inside])

    def count(self, usage: Usage | None, tool_calls: int) -> None:
        """Count what was done behind a tool: a call of a model, or calls of tools."""
        with self._lock:
            self.used += [] if usage is None else [usage]
            self.calls_inside += tool_calls

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
        self.stop.cancel()


# --- what a tool may know of its call --------------------------------------------------------------------------------


class ToolContext(Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """The call a tool runs for. A tool that declares it as its first parameter gets it; the model never sees it."""

    call_id: str
    tool_name: str
    deps: Deps
    """Whatever the program gave to the run for its tools."""
    conversation: Conversation
    """The conversation as it was when the model made the call."""
    stop: Stop
    """Tells this try of the call to stop. While the function runs it is also what `current_stop()` gives."""
    attempt: int = 1
    """1 for the first try, then 2 for the first retry, and so on."""
    parent_logger: logging.Logger
    run: ToolRun | None = None
    """What the calls of the run share; None where the context was made by hand."""
    answers: tuple[Approval, ...] = ()
    """What people have said about calls inside this one, which it has paused for; see `answer_about`."""
    desk: CallExecution | None = None
    """The call under way, which takes what the tool reports, and what it has used."""

    def report(self, what: str | Event) -> None:
        """Say how it goes, from any thread. In a streamed run it becomes a ToolProgress, elsewhere nothing at all.

        Nobody waits for a slow reader: behind 10,000 unread reports further ones are left out, and the next that gets
        through says how many.
        """
        if self.watched and self.desk is not None:
            self.desk.report(self.stop, what)

    @property
    def watched(self) -> bool:
        """Whether somebody reads what is reported."""
        return self.run is not None and self.run.watched

    def used(self, usage: Usage | None = None, *, tool_calls: int = 0) -> None:
        """Count a call of a model behind this tool, or calls of tools: for the limits of the run, and in the result.

        `usage.charged` is what it cost, in US dollars; None says that nobody knows.
        """
        if self.run is not None:
            self.run.count(usage, tool_calls)
        if usage is not None and self.desk is not None:
            self.desk.take_usage(usage)

    def answer_about(self, call: ToolCall) -> Approval | None:
        """What a person has said about a call that this one was paused for; for exactly these arguments."""
        mark = fingerprint(structs.replace(call, id=f"{self.call_id}>{call.id}"))
        said = next((each for each in self.answers if each.fingerprint == mark), None)
        if said is None:
            return None
        return structs.replace(said, call_id=call.id, fingerprint=fingerprint(call))

    @property
    def logger(self) -> logging.Logger:
        """A logger of the tool's own, below that of the executor."""
        return self.parent_logger.getChild(self.tool_name)

    @property
    def deadline(self) -> float | None:
        """When the call must be done, on the clock of `time.monotonic`; None means no limit."""
        return self.stop.deadline

    @property
    def remaining(self) -> float | None:
        """Seconds left, never negative; None means no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the time is over, or the run was cancelled, aborted or left.

        A long-running function should look at it now and then; a thread cannot be stopped from outside.
        """
        return self.stop.cancelled or self.remaining == 0.0

    def raise_if_cancelled(self) -> None:
        """Stop here if nobody waits for the result any more."""
        if self.cancelled:
            message = f"The call of {self.tool_name!r} was cancelled."
            raise ToolCancelledError(message, tool_name=self.tool_name, call_id=self.call_id)
