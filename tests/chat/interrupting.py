"""Ctrl-C at a chosen moment: wherever Python looks for signals, which is after calls, at jumps back, and on entry."""

from __future__ import annotations

import dis
import sys
import threading
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
        # A call that makes a coroutine is looked at when the coroutine begins, not before.
        looks = before is not None and before.opname.startswith(_LOOKS) and before.opname not in _DOES_NOT_LOOK
        if looks and instruction.opname != "GET_AWAITABLE":
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

    def _pass(self, code: CodeType, line: int) -> None:
        """A moment, at which Ctrl-C comes if it is the chosen one."""
        self.moments += 1
        if self.moments == self.at + 1:
            self.where = f"{code.co_qualname}:{line}"
            raise KeyboardInterrupt

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with self._monitored() if sys.version_info >= (3, 12) else self._traced():
            yield

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(self._places):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode" and frame.f_lasti in _moments(frame.f_code):
            self._pass(frame.f_code, frame.f_lineno)
        return self._trace

    @contextmanager
    def _traced(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    if sys.version_info >= (3, 12):

        @contextmanager
        def _monitored(self) -> Iterator[None]:
            """Trace functions miss most instructions from Python 3.12 on."""
            monitoring, thread = sys.monitoring, threading.get_ident()
            tool, instruction = monitoring.DEBUGGER_ID, monitoring.events.INSTRUCTION

            def look(code: CodeType, offset: int) -> object:
                if not code.co_filename.startswith(self._places) or offset not in _moments(code):
                    return monitoring.DISABLE  # for this instruction alone
                if threading.get_ident() == thread:
                    self._pass(code, _line(code, offset))
                return None

            monitoring.use_tool_id(tool, __name__)
            monitoring.register_callback(tool, instruction, look)
            monitoring.restart_events()
            monitoring.set_events(tool, instruction)
            try:
                yield
            finally:
                monitoring.set_events(tool, 0)
                monitoring.register_callback(tool, instruction, None)
                monitoring.free_tool_id(tool)


def _line(code: CodeType, offset: int) -> int:
    return next((line or 0 for start, end, line in code.co_lines() if start <= offset < end), 0)
