"""The child process that runs regular expressions, so that it can be killed.

It runs as a file of its own, with the standard library alone. Requests and replies are lines of JSON: first the
pattern, then the size of each text, which follows as bytes. A reply is the number of matching lines
and the positions of the first ones, or an error.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from contextlib import suppress
from itertools import islice
from typing import BinaryIO

MAX_MEMORY = 1024 * 1024 * 1024
MAX_LINES = 201
"""One more than Grep shows."""


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    def reply(value: object) -> None:
        replies.write(json.dumps(value).encode() + b"\n")
        replies.flush()

    first = json.loads(requests.readline())
    # Without a handler the signal ends this process, even in the middle of an expression.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, first["seconds"])
    try:
        search = re.compile(first["pattern"], re.IGNORECASE if first["ignore_case"] else 0).search
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        reply(str(error) or type(error).__name__)
        return
    reply([])
    while size := requests.readline():
        text = requests.read(int(size)).decode("utf-8", "replace")
        lines = text.removesuffix("\n").split("\n") if text else []
        try:
            numbers = (number for number, line in enumerate(lines) if search(line.removesuffix("\r")))
            first = list(islice(numbers, MAX_LINES))
            reply([len(first) + sum(1 for _ in numbers), *first])
        except (RecursionError, MemoryError) as error:
            reply(type(error).__name__)


if __name__ == "__main__":
    with suppress(ImportError, ValueError, OSError):  # not on every system, nor below its own limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer)
