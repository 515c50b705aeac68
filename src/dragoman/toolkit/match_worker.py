"""The child process that tries regular expressions: compiles one, and finds the lines that it fits, text by text.

It runs as a file of its own, with the standard library alone. Requests and replies are lines of JSON; a text follows
its request as bytes.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from contextlib import suppress
from typing import BinaryIO

MAX_MEMORY = 1024 * 1024 * 1024


def matching_lines(search: re.Pattern[str], text: str, limit: int) -> tuple[list[int], int]:
    """The numbers (from 0) of the first lines that fit, and how many there are in all."""
    found: list[int] = []
    count = 0
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines):
        if search.search(line.removesuffix("\r")):
            count += 1
            if len(found) < limit:
                found.append(number)
    return found, count


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    def reply(**values: object) -> None:
        replies.write(json.dumps(values).encode() + b"\n")
        replies.flush()

    first = json.loads(requests.readline())
    # Whatever this process does then, it ends: no expression keeps a signal waiting that nobody handles.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, first["seconds"])
    try:
        search = re.compile(first["pattern"], re.IGNORECASE if first["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        reply(failed=str(error) or type(error).__name__)
        return
    reply(ready=True)
    while header := requests.readline():
        asked = json.loads(header)
        text = requests.read(asked["size"]).decode("utf-8", "replace")
        try:
            lines, count = matching_lines(search, text, asked["limit"])
        except (RecursionError, MemoryError) as error:
            reply(failed=type(error).__name__)
        else:
            reply(lines=lines, count=count)


def limit_memory() -> None:
    """A pattern may ask for more memory than there is; then this process shall fail, not the machine."""
    with suppress(ImportError, ValueError, OSError):  # not everywhere, and not below what the system allows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


if __name__ == "__main__":
    limit_memory()
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer)
