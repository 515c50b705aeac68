"""Children that are forked from a process which has loaded what they need, so that they are there at once."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from typing import Any

from tests.processes import LIMIT

__all__ = ["forked"]

_context = get_context("forkserver")
_context.set_forkserver_preload(["tests.fleet.program", "tests.temporal.world"])


@contextmanager
def forked(work: Callable[..., None], *arguments: Any) -> Iterator[ForkServerProcess]:
    """A child that calls `work(ready, …)` and has called `ready()`; it is dead when the block ends, however it does."""
    receiver, sender = _context.Pipe(duplex=False)
    process = _context.Process(target=_call, args=(work, sender, arguments))
    process.start()
    sender.close()
    watchdog = threading.Timer(LIMIT, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        assert receiver.poll(LIMIT)
        receiver.recv()  # raises where the child has died before
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.join()
        process.close()
        receiver.close()


def _call(work: Callable[..., None], sender: Any, arguments: tuple[Any, ...]) -> None:
    faulthandler.enable()  # a child that crashes says where
    work(lambda: sender.send(True), *arguments)
