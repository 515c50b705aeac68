"""Work carried out in plain programs.

Owns: a few connections, each lent to one thread at a time; transactions; forks.
Must not know: what the work is for.

Connections are made by who needs one, at the moment of need. A pool with threads of its own would try again in the
background at ever longer intervals, so that a server that is back would not be noticed for a while, and its threads do
not survive a fork.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar
from weakref import WeakSet

from dragoman._chance import chance

from . import driver
from .driver import Connection
from .opening import MAX_IDLE, Attempt, Options, closed, exhausted
from .troubles import Retries
from .work import Steps, Work

__all__ = ["Runner"]

_T = TypeVar("_T")

_PAUSE: Final = 0.005
"""Seconds between two looks whether a connection is free."""


class Runner:
    """Carries out work on the server at this address."""

    def __init__(
        self,
        conninfo: str,
        options: Options,
        migration: Work[None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = chance,
    ) -> None:
        self.address: Final = driver.address_of(conninfo, options.timeout, prepared=options.prepared_statements)
        self._options: Final = options
        self._migration: Final = migration
        self._sleep: Final = sleep
        self._clock: Final = clock
        self._random: Final = random
        self._begin: Final = driver.begin(options.timeout)
        self._migrated: bool = False
        self._closed: bool = False
        self._idle: deque[tuple[Connection, float]] = deque()
        self._users: set[object] = set()
        """Who has a connection. Not a semaphore: Ctrl-C in the middle of its count would cost a place for good."""
        self._lock: threading.Lock = threading.Lock()
        _runners.add(self)

    def run(self, work: Work[_T]) -> _T:
        """Carry the work out; again where that is safe and may help."""
        if not self._migrated:  # several threads may do it at once: the server lets them in one after the other
            self._run(self._migration)
            self._migrated = True
        return self._run(work)

    def close(self) -> None:
        """Close the connections that nobody uses; the others follow when they are given back."""
        self._closed = True
        self._drop_idle()

    def _run(self, work: Work[_T]) -> _T:
        retries = Retries(repeatable=work.repeatable, hide=self.address.password, random=self._random)
        while True:
            attempt = Attempt()
            try:
                return self._try(work, attempt)
            except driver.ERRORS as error:
                seconds = retries.pause(attempt.failed(error, silent=driver.is_silent(error)))
            if attempt.lost:
                self._drop_idle()  # what broke one has broken the others, too
            self._sleep(seconds)

    def _try(self, work: Work[_T], attempt: Attempt) -> _T:
        def carry_out(connection: Connection) -> _T:
            attempt.stage = "working"
            if work.kind == "look":
                return self._steps(work.steps(), connection)
            connection.carry_out(self._begin, self._options.schema)
            result = self._steps(work.steps(), connection)
            attempt.stage = "committing"
            connection.commit_it()
            return result

        return self._with_connection(attempt, carry_out)

    def _steps(self, steps: Steps[_T], connection: Connection) -> _T:
        try:
            ask = next(steps)
            while True:
                ask = steps.send(connection.carry_out(ask, self._options.schema))
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    # --- connections -------------------------------------------------------------------------------------------------

    def _with_connection(self, attempt: Attempt, work: Callable[[Connection], _T]) -> _T:
        if self._closed:
            raise closed()
        users, user = self._users, object()
        try:
            self._wait_for_place(user)
            connection = self._take()
            try:
                return work(connection)
            except Exception:
                attempt.lost = driver.is_lost(connection)
                with suppress(*driver.ERRORS):
                    if not attempt.lost:
                        connection.rollback()
                raise
            finally:
                self._give_back(connection)
        finally:
            users.discard(user)

    def _wait_for_place(self, user: object) -> None:
        deadline = time.monotonic() + self._options.timeout
        while True:
            with self._lock:
                if len(self._users) < self._options.connections:
                    self._users.add(user)
                    return
            if time.monotonic() >= deadline:
                raise exhausted(self._options)
            time.sleep(_PAUSE)

    def _take(self) -> Connection:
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if not connection.closed and self._clock() - since < MAX_IDLE:
                return connection
            connection.pgconn.finish()
        connection = Connection.connect(**self.address.parameters)
        connection.patience = self._options.timeout
        return connection

    def _give_back(self, connection: Connection) -> None:
        if self._closed or not driver.is_usable(connection):
            connection.pgconn.finish()
        else:
            self._idle.append((connection, self._clock()))
            if self._closed:  # meanwhile
                self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop()[0].pgconn.finish()

    def _start_anew(self) -> None:
        """In the child of a fork: the connections are the parent's, and so are the threads that hold them."""
        self._idle = deque()  # psycopg closes nothing that another process has opened
        self._users = set()
        self._lock = threading.Lock()


_runners: Final[WeakSet[Runner]] = WeakSet()


def _after_fork() -> None:
    for runner in list(_runners):
        runner._start_anew()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
