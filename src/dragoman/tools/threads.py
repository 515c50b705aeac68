"""Where the functions of tools run and how their end is awaited, sync and async.

Owns: the threads (workers that can be abandoned, and one with an event loop), and the Runner of each batch.
Must not know: tools.

The standard thread pool joins its threads at exit, so one hanging tool would hang the whole program. These workers are
daemon threads: a function that takes too long is abandoned.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

_IDLE_SECONDS = 10.0
_JOIN_SECONDS = 5.0
_EXIT_SECONDS = 2.0
_GRACE_SECONDS = 0.2
"""How long cancelled tasks may take to clean up."""

T = TypeVar("T")
_Work: TypeAlias = tuple[contextvars.Context, Callable[[], object], Callable[[], object]]


def start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread; Ctrl-C meanwhile raises KeyboardInterrupt.

    Python waits for the thread to start with a Condition, which releases its lock twice when interrupted at the wrong
    moment and then raises RuntimeError instead of KeyboardInterrupt.
    """
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # also if the system has no more threads
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
    return thread


# --- a running function -----------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """How a function ended: its value or its error, and when."""

    value: Any
    error: BaseException | None
    at: float


class Job:
    """A running function."""

    def __init__(self) -> None:
        self.ended: Ended | None = None
        """How it ended, once the waiting side may know."""
        self.cancel: Callable[[], object] | None = None
        """Cancels it; None for a function in a thread, which cannot be cancelled."""
        self.awaitable: object = None
        """The awaitable that it awaits, if it did not make it itself."""
        self._result: Ended | None = None
        self._is_given_up: bool = False

    def run(self, function: Callable[[], Any]) -> None:
        """Call the function; `end` publishes the result. Any exception is a result, except the user's Ctrl-C."""
        try:
            self._result = Ended(function(), None, time.monotonic())
        except BaseException as error:  # noqa: BLE001
            self._result = _failed(error)
        if self._is_given_up:  # at once: the loop that would call `end` may be closed by now
            self.give_up()

    async def arun(self, function: Callable[[], Any], then: Callable[[], object]) -> None:
        """Await an async function, publish the result, and call `then`. Cancellation is a result too."""
        try:
            self._result = Ended(await function(), None, time.monotonic())
        except BaseException as error:  # noqa: BLE001
            self._result = _failed(error)
        self.end()
        then()

    def end_unbegun(self, then: Callable[[], object], _task: object) -> None:
        """Done callback of the task of `arun`: without a result, it was cancelled before it started."""
        if self.ended is None:
            from concurrent.futures import CancelledError  # already loaded: the task was a future

            self._result = Ended(None, CancelledError(), time.monotonic())
            self.end()
            then()

    def end(self) -> None:
        self.ended = self._result
        if self._is_given_up:
            self.give_up()

    def give_up(self) -> None:
        """Abandon it: cancel it if possible, and drop its value."""
        self._is_given_up = True
        if self.cancel is not None:
            self.cancel()
        discard(self.awaitable)
        if self._result is not None:
            discard(self._result.value)
            self.ended = self._result = self._result._replace(value=None)


def _failed(error: BaseException) -> Ended:
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
    return Ended(None, error, time.monotonic())


def discard(awaitable: object) -> None:
    """Close an awaitable that was never started, so that Python does not warn about it."""
    if isinstance(awaitable, CoroutineType):
        from inspect import CORO_CREATED, getcoroutinestate  # hardly ever needed

        coroutine = cast("CoroutineType[Any, Any, Any]", awaitable)
        if getcoroutinestate(coroutine) == CORO_CREATED:
            coroutine.close()
    elif hasattr(type(awaitable), "__await__") and hasattr(type(awaitable), "close"):
        cast("Any", awaitable).close()


# --- the threads -----------------------------------------------------------------------------------------------------


class WorkerThreads:
    """Runs functions in daemon threads, without a limit of its own; idle threads are reused, then end."""

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[_Work | None]] = []
        self._abandoned: list[Job] = []
        self._closed: bool = False
        _OWNERS.add(self)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run the function in a worker, in a copy of the caller's context variables."""
        from concurrent.futures import Future  # calls of tools do without

        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 -- raised by the future
                future.set_exception(error)

        self.start(work, lambda: None)
        return future

    def start(self, work: Callable[[], object], then: Callable[[], object]) -> None:
        """Call `work` in a worker, in a copy of the caller's context, and `then` once the worker is idle again.

        Neither may raise.
        """
        job = (contextvars.copy_context(), work, then)
        with self._lock:
            inbox = self._idle[-1] if self._idle else None
            if inbox is not None:
                del self._idle[-1]  # not pop(): Ctrl-C after a call would lose the thread
                inbox.put(job)
        if inbox is None:
            inbox = queue.SimpleQueue[_Work | None]()
            inbox.put(job)  # before the start, which Ctrl-C may interrupt: else a thread would wait for ever
            start_thread(partial(self._work, inbox), "dragoman-tool")

    @property
    def abandoned(self) -> int:
        """How many abandoned functions still run."""
        with self._lock:
            return len([job for job in self._abandoned if job.ended is None])

    def abandon(self, job: Job) -> None:
        with self._lock:
            self._abandoned = [each for each in (*self._abandoned, job) if each.ended is None and each.cancel is None]

    def close(self) -> None:
        """Let the idle threads end. Busy ones end when their function returns."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _work(self, inbox: queue.SimpleQueue[_Work | None]) -> None:
        while (job := self._next_job(inbox)) is not None:
            context, work, then = job
            context.run(work)
            with self._lock:
                reusable = not self._closed
                if reusable:  # before the caller is notified, so that its next call finds this thread
                    self._idle.append(inbox)
            then()
            del job, context, work, then  # an idle thread must keep nothing alive
            if not reusable:
                return

    def _next_job(self, inbox: queue.SimpleQueue[_Work | None]) -> _Work | None:
        try:
            return inbox.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            pass
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        return inbox.get()  # this thread was taken at the last moment: the job is there


class LoopThread:
    """One event loop in a daemon thread, started on first use, for async tools in a sync program.

    It also works if the caller's thread already runs a loop, as in a notebook.
    """

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._unfinished: set[Future[Any]] = set()
        _OWNERS.add(self)

    @property
    def running(self) -> bool:
        return self._loop is not None

    def submit(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Future[Any]:
        """Run the coroutine on the loop, in a copy of the caller's context.

        Not from the loop's own thread: waiting for the result there would block the loop for ever.
        """
        import asyncio

        # All under the lock: a loop that `close` stops in between would never run this coroutine.
        with self._lock:
            if self._thread is threading.current_thread():
                message = "an async tool cannot wait for another one here: it would block their event loop"
                raise RuntimeError(message)
            loop = self._loop or self._start()
            future, unfinished = asyncio.run_coroutine_threadsafe(make(), loop), self._unfinished
            unfinished.add(future)
        future.add_done_callback(unfinished.discard)
        return future

    def close(self) -> None:
        with self._lock:
            loop, thread = self._loop, self._thread
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
            self._loop = self._thread = None
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def _start(self) -> asyncio.AbstractEventLoop:
        ready = queue.SimpleQueue["asyncio.AbstractEventLoop | Exception"]()
        unfinished: set[Future[Any]] = set()
        known: list[asyncio.AbstractEventLoop] = []
        thread = start_thread(partial(self._run, ready, known, unfinished), "dragoman-loop")
        loop = ready.get()
        if isinstance(loop, Exception):
            raise loop
        self._loop, self._thread, self._unfinished = loop, thread, unfinished
        known.append(loop)
        return loop

    def _run(
        self,
        ready: queue.SimpleQueue[asyncio.AbstractEventLoop | Exception],
        known: list[asyncio.AbstractEventLoop],
        unfinished: set[Future[Any]],
    ) -> None:
        import asyncio

        try:
            loop = asyncio.new_event_loop()  # here, where Ctrl-C does not arrive
        except Exception as error:  # noqa: BLE001 -- too many open files, for example; raised by `_start`
            ready.put(error)
            return
        ready.put(loop)
        with self._lock:  # held by `_start` until the loop is registered, or the start was interrupted
            pass
        if not known:
            loop.close()
            return
        asyncio.set_event_loop(loop)
        with suppress(SystemExit, KeyboardInterrupt):  # raised by a tool's callback; must not end the program
            loop.run_forever()
        with self._lock:
            if self._loop is loop:  # not closed by us, so the next coroutine needs a new one
                self._loop = self._thread = None
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:  # bounded: a task that ignores cancellation is left behind with its loop
            loop.run_until_complete(asyncio.wait(tasks, timeout=_JOIN_SECONDS / 2))
        loop.run_until_complete(loop.shutdown_asyncgens())
        for future in list(unfinished):
            future.cancel()  # its task will not end, but a thread may wait for it
        loop.close()


_OWNERS: weakref.WeakSet[WorkerThreads | LoopThread] = weakref.WeakSet()


def _start_anew() -> None:
    """After a fork: threads do not survive it, so work given to them would never be done."""
    for owner in list(_OWNERS):
        owner.__init__()


def _await_abandoned() -> None:
    """At exit: give abandoned functions a moment to clean up, for example to kill a child process."""
    deadline = time.monotonic() + _EXIT_SECONDS
    workers = [owner for owner in list(_OWNERS) if isinstance(owner, WorkerThreads)]
    while any(each.abandoned for each in workers) and time.monotonic() < deadline:
        time.sleep(0.005)


atexit.register(_await_abandoned)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


# --- runners: start functions and wait for them -----------------------------------------------------------------------


class Runner:
    """Runs functions for a sync program. `inline`: sync functions without a time limit run in the caller's thread."""

    def __init__(self, workers: WorkerThreads, loop: LoopThread | None = None, *, inline: bool = False) -> None:
        self._workers: WorkerThreads = workers
        self._loop: LoopThread | None = loop
        self._inline: bool = inline
        # A SimpleQueue is reentrant: a signal handler that cancels the run may `put` while this thread is in `get`.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(self, function: Callable[[], Any], *, is_async: bool, is_limited: bool) -> Job:
        """Start a function. One with a time limit never runs in the caller's thread."""
        job = Job()
        if is_async:
            self._start_async(job, function)
        elif self._inline and not is_limited:
            job.run(function)
            self._end(job)
        else:
            self._workers.start(partial(job.run, function), partial(self._end, job))
        return job

    def _start_async(self, job: Job, function: Callable[[], Any]) -> None:
        assert self._loop is not None
        future = self._loop.submit(partial(job.arun, function, self.wake))
        job.cancel = future.cancel
        future.add_done_callback(partial(job.end_unbegun, self.wake))

    def _end(self, job: Job) -> None:
        """Publish the end of a sync function, from its thread."""
        job.end()
        self.wake()

    async def wait(self, until: float | None) -> None:
        """Wait until a function has ended, `wake` was called, or the given time. May return early."""
        if until is None:
            self._bell.get()
            return
        with suppress(queue.Empty):
            self._bell.get(timeout=min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))

    def wake(self) -> None:
        """End a `wait`, from any thread."""
        self._bell.put(None)

    def give_up(self, job: Job) -> None:
        """Abandon this function; it is counted as abandoned if it cannot be cancelled."""
        job.give_up()
        self._workers.abandon(job)

    async def close(self) -> None:
        """Give cancelled functions a moment to clean up."""


class AsyncRunner(Runner):
    """Runs functions for an async program: async ones as tasks of the running loop."""

    def __init__(self, workers: WorkerThreads) -> None:
        import asyncio  # which plain programs do not load

        super().__init__(workers)
        self._running: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._event: asyncio.Event = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _start_async(self, job: Job, function: Callable[[], Any]) -> None:
        # Sets the event directly: a wake-up from another thread takes two more iterations of the loop.
        task = self._running.create_task(job.arun(function, self._event.set))
        self._tasks.append(task)
        job.cancel = task.cancel
        task.add_done_callback(partial(job.end_unbegun, self._event.set))

    def _end(self, job: Job) -> None:
        # On the loop, after callbacks that the function has scheduled there.
        try:
            self._running.call_soon_threadsafe(self._end_on_loop, job)
        except RuntimeError:  # the loop was closed meanwhile
            job.end()

    def _end_on_loop(self, job: Job) -> None:
        job.end()
        self._event.set()

    async def wait(self, until: float | None) -> None:
        timer = None if until is None else self._running.call_later(until - time.monotonic(), self._event.set)
        try:
            await self._event.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._event.clear()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
            self._running.call_soon_threadsafe(self._event.set)

    async def close(self) -> None:
        if cancelled := [task for task in self._tasks if not task.done()]:
            import asyncio

            await asyncio.wait(cancelled, timeout=_GRACE_SECONDS)
