"""Threads for tools: plain workers that can be given up, and one thread with an event loop.

Owns: starting, reusing, counting and ending these threads.
Must not know: tools.

The standard thread pool joins its threads when the interpreter exits, so that one hanging tool would hang the whole
program. These workers are daemons: a call that takes too long is abandoned, counted, and never waited for.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopThread", "WorkerThreads"]

_IDLE_SECONDS = 10.0
_JOIN_SECONDS = 5.0

_Job: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class WorkerThreads:
    """Runs functions in daemon threads, as many at once as are asked for; idle threads are reused, then end."""

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[_Job | None]] = []
        self._abandoned: set[Future[Any]] = set()
        self._closed: bool = False

    @property
    def abandoned(self) -> int:
        """How many calls were given up and still run."""
        with self._lock:
            return len(self._abandoned)

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Run the function in a worker, in a copy of the caller's context variables."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        job = (future, partial(contextvars.copy_context().run, function))
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue[_Job | None]()
            threading.Thread(target=self._work, args=(inbox,), name="dragoman-tool", daemon=True).start()
        inbox.put(job)
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Stop waiting for a call; it is counted until it ends by itself."""
        with self._lock:
            self._abandoned.add(future)
        future.add_done_callback(self._forget)

    def close(self) -> None:
        """Let the idle threads end. Abandoned ones end when their function returns."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._abandoned.discard(future)

    def _work(self, inbox: queue.SimpleQueue[_Job | None]) -> None:
        while (job := self._next_job(inbox)) is not None:
            future, function = job
            try:
                value = function()
            except BaseException as error:  # noqa: BLE001 -- whatever a tool raises belongs to its call
                settle, outcome = future.set_exception, error
            else:
                settle, outcome = future.set_result, value
            with self._lock:
                reusable = not self._closed
                if reusable:  # before the caller hears of the end, so that its next call finds this thread
                    self._idle.append(inbox)
            settle(outcome)
            del job, future, function, settle, outcome  # an idle thread keeps nothing alive
            if not reusable:
                return

    def _next_job(self, inbox: queue.SimpleQueue[_Job | None]) -> _Job | None:
        try:
            return inbox.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            pass
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        return inbox.get()  # somebody took this thread in the last moment: the job is on its way


class LoopThread:
    """One event loop in a daemon thread, started on first need, for coroutines of a program that has no loop.

    A thread of its own works also where the caller's thread already runs a loop, as in a notebook.
    """

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._loop is not None

    def submit(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Future[Any]:
        """Run the coroutine on the loop, with the caller's context variables (asyncio copies them)."""
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="dragoman-loop", daemon=True)
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(make(), loop)

    def close(self) -> None:
        """Cancel what still runs and end the thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:  # bounded: a task that refuses to be cancelled is left behind with its loop
                loop.run_until_complete(asyncio.wait(tasks, timeout=_JOIN_SECONDS / 2))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
