"""Ctrl-C at a chosen moment: wherever Python looks for signals, which is after calls, at jumps back, and on entry."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dragoman

_ROOT = Path(dragoman.__file__).parent
_LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")
_DOES_NOT_LOOK = ("JUMP_BACKWARD_NO_INTERRUPT", "CALL_INTRINSIC_1", "CALL_INTRINSIC_2")


@cache
def _moments(code: CodeType) -> frozenset[int]:
    """The offsets before which Python has looked for signals."""
    found: set[int] = set()
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if before is not None and before.opname.startswith(_LOOKS) and before.opname not in _DOES_NOT_LOOK:
            found.add(instruction.offset)
        before = instruction
    return frozenset(found)


def in_a_thread_of_its_own(test: Callable[[], None]) -> None:
    """Runs what interrupts. In Python 3.11, an exception that a trace function raises as an `except` is entered leaves
    the handled one behind in the thread, and every later exception there would have it as its `__context__`.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(test).result()


class Interrupting:
    """Counts the moments at which Ctrl-C could come while these rooms are at work, and comes at one of them."""

    def __init__(self, at: int, rooms: Sequence[str] = ("chat", "loop")) -> None:
        self.at = at
        self._places = tuple(str(_ROOT / room) for room in rooms)
        self.moments = 0
        self.where = ""

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(self._places):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return self._trace
        if event == "opcode" and frame.f_lasti in _moments(frame.f_code):
            if self.moments == self.at:
                self.moments += 1
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise KeyboardInterrupt
            self.moments += 1
        return self._trace

    @contextmanager
    def at_work(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
