"""The values of a run of tools: ToolConfig, decisions and approvals, ToolRun (shared by its calls), ToolContext.

Permission rules belong to the toolkit. Code (permission checks, middleware, hooks) is passed to the executor; what is
here is data.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msgspec import Struct, structs

from dragoman._checks import CheckedMeta, Count, NotNegative, Positive
from dragoman._stop import Stop, shorter
from dragoman.conversation import Conversation, Event, ToolCall, ToolChoice, Usage
from dragoman.errors import ToolCancelledError, ToolError

from .meter import Meter

if TYPE_CHECKING:
    import logging

    from .call import CallExecution
    from .definition import AnyTool, Tool
    from .registry import ToolSet

Deps = TypeVar("Deps")

_NO_CONVERSATION = Conversation()

# --- configuration: plain data that a configuration file can hold ----------------------------------------------------


class ToolErrorHandling(Enum):
    """What a run does when a tool fails."""

    CONTINUE = "continue"
    """The model reads the error and continues. A tool is retried only if its definition says so."""
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
    """Seconds for one attempt of one call, unless the tool has its own (`inf`: no limit). None: no limit."""
    run_timeout: NotNegative | None = None
    """Seconds for all tool calls of a run, counted from its start. None: no limit."""
    max_parallel_tools: Positive = 5
    """How many calls run at once. With 1, sync functions without a time limit run in the caller's thread, for functions
    that need that; they cannot be abandoned when the run is cancelled."""
    allowed_tools: frozenset[str] | None = None
    """The tools that may be called; None means all."""
    search: Count | None = None
    """With more tools than this the model gets a few and searches for the others. None: it gets all."""
    always_offered: frozenset[str] = frozenset()
    """With `search`, the tools that the model gets from the start."""
    budgets: dict[str, Count] = {}
    """How often each tool may be called in a run, unless the tool has its own budget."""
    tool_error_handling: ToolErrorHandling = ToolErrorHandling.CONTINUE
    retry: RetryConfig = RetryConfig()
    max_result_size: Count = 1_000_000
    """How many characters of text and JSON of one result the model gets; the rest is replaced by a note."""
    max_media_size: Count = 32_000_000
    """How many bytes of media a result may have; a larger file is replaced by a note."""


# --- decisions, and approvals bound to the exact call -----------------------------------------------------------------


class Allow(Struct, frozen=True):
    """The call may run."""

    approved: bool = False
    """Whether a person has just approved this call, so that a tool with `requires_approval` need not ask again."""
    arguments: str = ""
    """The JSON to run it with instead of its own, which the conversation and approvals keep: for a check that lets run
    only what it has understood."""


class Deny(Struct, frozen=True):
    """The call must not run; the model reads the reason."""

    reason: str


class Ask(Struct, frozen=True):
    """A person must approve this call first."""

    reason: str = ""


Decision: TypeAlias = Allow | Deny | Ask
"""What can be decided about a call before it runs."""

PermissionCheck: TypeAlias = (
    "Callable[[ToolCall, Tool[..., object], ToolContext[object]], Decision | Awaitable[Decision]]"
)
"""Decides about one call before it runs; sync or async."""


class Approval(Struct, frozen=True, kw_only=True):
    """A person's answer to one call. It applies to exactly the arguments that were shown, and to no other call."""

    call_id: str
    fingerprint: str
    approved: bool
    reason: str = ""

    def answers(self, call: ToolCall) -> bool:
        """Whether this is the answer to exactly this call."""
        return self.fingerprint == fingerprint(call)


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for approval."""

    call: ToolCall
    reason: str = ""
    within: ToolCall | None = None
    """The call in the conversation that contains this one, for example an agent's; `call.id` starts with its id."""
    waits_for: tuple[PendingApproval, ...] = ()
    """If its tool has paused the call: the calls inside it, which are answered instead."""
    used: Usage | None = None
    """What the call `within` has used so far, for example an agent's model calls; its result will include it."""

    @property
    def held(self) -> ToolCall:
        """The call in the conversation that has no result meanwhile."""
        return self.within or self.call

    def tool_among(self, tools: ToolSet) -> AnyTool | None:
        """The called tool; None for one of an agent or provider, even if `tools` has one of the same name."""
        return None if self.within is not None or self.call.hosted else tools.find(self.call.name)

    def inside(self, outer: ToolCall, used: Usage | None = None) -> PendingApproval:
        """This approval as the caller of `outer` sees it, which has used this much so far."""
        call = structs.replace(self.call, id=f"{outer.id}>{self.call.id}")
        return PendingApproval(call=call, reason=self.reason, within=outer, used=used)


class Paused(Exception):  # noqa: N818 - nothing went wrong
    """Raised by a tool to pause its call until a person has answered calls that it wants to make.

    They appear in `pending` of the run, with ids that start with the id of the tool's own call. Once one of them is
    answered the tool is called again, and `context.answer_about(call)` returns the answer.
    """

    def __init__(self, pending: Iterable[PendingApproval]) -> None:
        self.pending: tuple[PendingApproval, ...] = tuple(pending)
        super().__init__(", ".join([f"{each.call.name}: {each.reason}" for each in self.pending]))


def fingerprint(call: ToolCall) -> str:
    """A hash of the call's id, tool and exact arguments; a tool hosted by the provider counts as another tool."""
    from hashlib import sha256  # slow to import, and only needed for approvals

    digest = sha256()
    for part in (call.id, call.name, call.arguments, *(["hosted"] if call.hosted else [])):
        raw = part.encode("utf-8", "surrogatepass")
        # Length-prefixed, so that different calls never give the same bytes.
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()


def approve(call: ToolCall, *, reason: str = "") -> Approval:
    """Allow this call, with exactly these arguments."""
    return Approval(call_id=call.id, fingerprint=fingerprint(call), approved=True, reason=reason)


def deny(call: ToolCall, *, reason: str = "") -> Approval:
    """Refuse this call; the model reads the reason."""
    return Approval(call_id=call.id, fingerprint=fingerprint(call), approved=False, reason=reason)


# --- state shared by the calls of a run -------------------------------------------------------------------------------


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
        meter: Meter | None = None,
        earlier: Mapping[str, Usage] | None = None,
    ) -> None:
        self.conversation: Conversation = conversation
        self.deps: object = deps
        self.stop: Stop = stop or Stop()
        """Cancels the run."""
        self.began: float = time.monotonic()
        self.deadline: float | None = shorter(deadline, self.stop.deadline)
        """When all calls must be done (`time.monotonic`); set by an executor with a `run_timeout`."""
        self.counts: dict[str, int] = {}
        """How often each tool has been called."""
        self.crashes: set[tuple[str, type[BaseException]]] = set()
        """The crashes that were logged; each is logged once."""
        self.meant: tuple[type[Exception], ...] = (ToolError,)
        """What a tool raises on purpose, so that it is no crash."""
        self.watched: bool = watched
        """Whether progress reports of tools are read."""
        self.pauses: bool = pauses
        """Whether a call may be paused for approvals inside it."""
        self.caller: object = caller
        """The loop run that made the calls, if any; for tools that are agents."""
        self.meter: Meter = Meter() if meter is None else meter
        """What the run has used, with everything inside its calls."""
        self.earlier: dict[str, Usage] = dict(earlier or {})
        """What calls had used, by id, when they were paused in an earlier run; taken when they go on."""
        self._approvals: dict[str, Approval] = {approval.fingerprint: approval for approval in approvals}
        self._lock: threading.Lock = threading.Lock()

    def answer(self, approval: Approval) -> None:
        """Add a person's answer to a pending call."""
        self._approvals[approval.fingerprint] = approval

    def take_approval(self, call: ToolCall) -> Approval | None:
        """The answer to exactly this call, which is then used up: the same call made again needs another approval."""
        return self._approvals.pop(fingerprint(call), None) if self._approvals else None

    def take_answers_inside(self, call: ToolCall) -> tuple[Approval, ...]:
        """The answers to calls inside this one, which are then used up."""
        if not self._approvals:
            return ()
        inside = [each for each in self._approvals.values() if each.call_id.startswith(f"{call.id}>")]
        return tuple([self._approvals.pop(each.fingerprint) for each in inside])

    def spend(self, name: str, budget: int | None) -> bool:
        """Count one more call of the tool; returns False, without counting, if its budget is used up."""
        with self._lock:
            called = self.counts.get(name, 0)
            if budget is not None and called >= budget:
                return False
            self.counts[name] = called + 1
            return True

    def cancel(self) -> None:
        """Abandon running tools and start no more. Each of these calls gets a `cancelled` result."""
        self.stop.cancel()


# --- the context of a call --------------------------------------------------------------------------------------------


class ToolContext(Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """Passed to a tool that declares it as its first parameter; the model does not see that parameter."""

    call_id: str
    tool_name: str
    deps: Deps
    """Whatever the program passed to the run as `deps`."""
    conversation: Conversation
    """The conversation up to and including the call."""
    stop: Stop
    """Cancels this attempt; the same as `current_stop()` while the function runs."""
    attempt: int = 1
    """1 for the first attempt, 2 for the first retry, and so on."""
    parent_logger: logging.Logger
    run: ToolRun | None = None
    """State shared by the calls of the run; None if the context was created by hand."""
    answers: tuple[Approval, ...] = ()
    """Answers to calls inside this one that it was paused for; see `answer_about`."""
    desk: CallExecution | None = None
    """The execution of this call, which receives progress reports."""

    def report(self, what: str | Event) -> None:
        """Report progress, from any thread. A streamed run yields it as a ToolProgress event, others ignore it.

        Reporting never blocks: after 10,000 unread reports further ones are dropped, and the next one that is delivered
        says how many.
        """
        if self.watched and self.desk is not None:
            self.desk.report(self.stop, what)

    @property
    def watched(self) -> bool:
        """Whether progress reports are read."""
        return self.run is not None and self.run.watched

    def used(self, usage: Usage | None = None, *, tool_calls: int = 0) -> None:
        """Count a model call, or tool calls, made inside this tool: for the limits of all who wait, and its result.

        `usage.charged` is the cost in US dollars; None means unknown.
        """
        meter = self.meter
        if usage is not None:
            meter.begin_call()
            meter.end_call(usage, usage.charged)
        if tool_calls:
            meter.count_tools(tool_calls)

    @property
    def meter(self) -> Meter:
        """What this call has used; that of the run is above it."""
        if self.desk is not None:
            return self.desk.meter
        return Meter(None if self.run is None else self.run.meter)

    def answer_about(self, call: ToolCall) -> Approval | None:
        """The answer to a call that this one was paused for, with exactly these arguments."""
        mark = fingerprint(structs.replace(call, id=f"{self.call_id}>{call.id}"))
        answer = next((each for each in self.answers if each.fingerprint == mark), None)
        if answer is None:
            return None
        return structs.replace(answer, call_id=call.id, fingerprint=fingerprint(call))

    @property
    def logger(self) -> logging.Logger:
        """The tool's logger, a child of the executor's."""
        return self.parent_logger.getChild(self.tool_name)

    @property
    def deadline(self) -> float | None:
        """When the call must be done (`time.monotonic`); None: no limit."""
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
