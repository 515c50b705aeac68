"""Everything that a command has started, and the end of it.

Owns: finding the processes of a command, also those that have left its process group, and killing them.
Must not know: why.

The group takes most of them in one step, and nothing in it can escape by forking. A process that made a session of its
own is found by the token in its environment, or as a descendant; for that Linux must tell (/proc). What clears its
environment and outlives its parent is not found: containing that takes a container.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Process", "kill_all", "strays", "terminate_group"]

_ROUNDS: Final = 100


class Process(NamedTuple):
    """What Linux tells of a process."""

    pid: int
    state: str
    parent: int
    group: int
    started: int


def terminate_group(leader: int) -> None:
    """Ask the processes of the group to end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGTERM)


def kill_all(leader: int | None, token: str, known: Collection[Process] = ()) -> bool:
    """Kill the group and all strays. Whether there was something to kill beside the leader.

    The leader must not have been waited for: until then nobody else can get its number. None if it has. `known` are
    strays that were seen before: a process whose parent has ended meanwhile is nobody's descendant any more.
    """
    found = False
    for _ in range(_ROUNDS):
        left = strays(leader, token, known)
        if leader is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        if not left:
            break
        found = True
        for each in left:
            _kill(each)
    return found


def strays(leader: int | None, token: str, known: Collection[Process] = ()) -> list[Process]:
    """The processes of a command but for its leader: of its group, its descendants, and who bears its token."""
    processes = _processes()
    seen = {(each.pid, each.started) for each in known}
    begun = next((each.started for each in processes if each.pid == leader), 0)
    ours = {
        each.pid
        for each in processes
        if each.group == leader
        or (each.pid, each.started) in seen
        or (each.started >= begun and _bears(each.pid, token))
    }
    ours |= set() if leader is None else {leader}
    while more := {each.pid for each in processes if each.parent in ours} - ours:
        ours |= more
    ours -= {leader or 0, os.getpid()}
    return [each for each in processes if each.pid in ours and each.state not in "ZX"]


def _kill(process: Process) -> None:
    """Kill one process, if its number still means the same one."""
    with suppress(OSError, AttributeError):
        handle = os.pidfd_open(process.pid)
        try:
            now = _process(str(process.pid))
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _process(name: str) -> Process | None:
    with suppress(OSError, ValueError, IndexError):
        # The name of the program, in brackets, may hold anything.
        fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        return Process(int(name), fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19]))
    return None


def _processes() -> list[Process]:
    with suppress(OSError):
        names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 -- no need for paths
        return [each for name in names if (each := _process(name)) is not None]
    return []


def _bears(pid: int, token: str) -> bool:
    with suppress(OSError):
        return token.encode() in Path("/proc", str(pid), "environ").read_bytes()
    return False
