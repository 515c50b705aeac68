"""How many files of the library a plain turn goes through, and how often it changes room.

    .dev/env/bin/python bench/crossings.py [dialect] [--calls]

Counts the calls of functions in the third turn of a client, when everything is loaded and connected. A room is a
directory of src/dragoman, or a module beside them.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import dragoman
from dragoman import ChatClient
from dragoman.simulator import Simulator

SOURCE = Path(dragoman.__file__).parent
MODELS = {
    "openai_chat": "openai:gpt-4o",
    "openai_responses": "openai-responses:gpt-4o",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-flash",
}


class Crossings(NamedTuple):
    """What a turn went through."""

    calls: list[str]
    """`room/file.py:function`, in order."""

    @property
    def files(self) -> list[str]:
        """Each file once, in the order of its first call."""
        return list(dict.fromkeys(call.partition(":")[0] for call in self.calls))

    @property
    def changes(self) -> int:
        """How often one call is in another room than the one before."""
        rooms = [call.partition("/")[0] for call in self.calls]
        return sum(one != other for one, other in pairwise(rooms))


def cross(dialect: str) -> Crossings:
    """Have a plain turn in this dialect."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            calls.append(f"{path.relative_to(SOURCE).as_posix()}:{frame.f_code.co_name}")

    with (
        Simulator(["Hello."] * 3) as simulator,
        ChatClient(MODELS[dialect], key="k", base_url=simulator.base_url(dialect)) as client,
    ):
        client.chat("One.")
        client.chat("Two.")
        sys.setprofile(note)
        try:
            client.chat("Three.")
        finally:
            sys.setprofile(None)
    return Crossings(calls)


def main() -> None:
    """Print the figures of the dialects that are named, or of all."""
    named = [name for name in sys.argv[1:] if name in MODELS]
    for dialect in named or MODELS:
        crossed = cross(dialect)
        print(f"{dialect}: {len(crossed.files)} files, {crossed.changes} changes of room, {len(crossed.calls)} calls")
        print("  " + "\n  ".join(crossed.calls if "--calls" in sys.argv else crossed.files))


if __name__ == "__main__":
    main()
