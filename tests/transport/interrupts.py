"""A program that is interrupted with Ctrl-C in the middle of plain turns, over and over, and goes on.

    python -m tests.transport.interrupts 5000        so many interrupts, with a line for every 500

The child takes turns until a real SIGINT ends them, which the parent sends at a random moment; then it looks whether
everything still works. Other threads of the child use the same pool all the while, as those of a server would.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from dragoman import ChatClient
from dragoman.transport import SocketTransport
from tests.transport.server import Server
from tests.transport.service import Service
from tests.transport.turns import Received, Turn, problems, script
from tests.transport.users import User, engines_on

ROOT = Path(__file__).resolve().parent.parent.parent
OTHERS = 4
"""Threads beside the one that is interrupted."""
TURNS = 40
"""More than anybody takes between two interrupts."""
LONGEST = 0.004
"""Seconds until an interrupt, at most: enough for a few turns."""
SPARED = 500
"""So many interrupts may cost one thread with its event loop, not more: one that comes inside the standard library's
Thread.start loses the thread, whatever the caller does."""
LOOP_DESCRIPTORS = 3
"""What an event loop holds open."""
LIMIT = 30.0
"""Seconds without a word from the child; only a hang takes that long."""


def calm_script(seed: int) -> list[list[Turn]]:
    """Turns that the service answers and that nobody leaves, for the threads beside and the interrupted one.

    The turns of the latter are in two parts, with a plain and with an async tool.
    """
    return [
        [replace(turn, service="answers", act="waits", compressed=False) for turn in turns]
        for turns in script(seed, users=OTHERS + 2, turns=TURNS)
    ]


# --- the child -------------------------------------------------------------------------------------------------------


def work(url: str, seed: int, count: int) -> None:
    """Be interrupted so many times. Every line says what was wrong; `go` asks for an interrupt, `done` is the last."""
    signal.signal(signal.SIGINT, _press)
    faulthandler.register(signal.SIGUSR1)
    sys.setswitchinterval(1e-6)  # threads meet more often
    before = _owned()
    *others, with_plain_tool, with_async_tool = calm_script(seed)
    with SocketTransport() as transport:
        engines = engines_on(transport, url, plain=True)
        User(engines, with_async_tool).act()  # what is imported at the first use is there when the interrupts begin
        over = threading.Event()
        threads = [threading.Thread(target=_beside, args=(engines, turns, over), daemon=True) for turns in others]
        for thread in threads:
            thread.start()
        draw = random.Random(seed)
        for _ in range(count):
            turns = draw.choice((with_plain_tool, with_async_tool))
            _one_interrupt(engines, draw.sample(turns, len(turns)))
        over.set()
        for thread in threads:
            thread.join(LIMIT)
    _look_for_losses(before, count // SPARED)
    _say("done")


def _look_for_losses(before: tuple[int, int], allowed: int) -> None:
    end = time.monotonic() + LIMIT / 3
    while True:
        gc.collect()
        threads, descriptors = _owned()
        if threads <= before[0] + allowed and descriptors <= before[1] + allowed * LOOP_DESCRIPTORS:
            return
        if time.monotonic() > end:
            _say(f"{threads} threads, {descriptors} descriptors; before, {before}: {threading.enumerate()}")
            return
        time.sleep(0.01)


_pressed: list[str] = []
"""Where the last interrupt came."""


def _press(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does, and note where."""
    _pressed[:] = traceback.format_stack(frame)[-8:]
    signal.default_int_handler(number, frame)


def _one_interrupt(engines: Mapping[tuple[str, bool], Any], turns: list[Turn]) -> None:
    user = User(engines, turns)
    clients: list[ChatClient] = []
    now = (turns[0], Received())
    swallowed: list[Any] = []
    sys.unraisablehook = lambda unraisable: swallowed.append(unraisable.exc_type)
    _pressed.clear()
    try:
        _say("go")
        for turn in turns:
            now = (turn, Received())
            _take(user, *now, clients)
            if KeyboardInterrupt in swallowed:  # in a finaliser, where Python drops every exception
                break
        else:
            time.sleep(LIMIT / 3)
            _say(f"an interrupt got lost: {_pressed}")
    except KeyboardInterrupt:
        turn, got = now
        got.history = clients[-1].history if clients else ()
        user.problems += problems(replace(turn, act="leaves"), got, user.own)
    for client in clients:
        client.close()  # the interrupt may have kept it from that
    user = User(engines, turns)
    _take(user, turns[0], Received(), [])
    for problem in user.problems:
        _say(problem)


def _take(user: User, turn: Turn, got: Received, clients: list[ChatClient]) -> None:
    client = ChatClient(user.engine(turn), user.tools)
    clients.append(client)
    user.talk(client, turn, got)
    got.history = client.history
    user.judge(turn, got)
    client.close()


def _beside(engines: Mapping[tuple[str, bool], Any], turns: list[Turn], over: threading.Event) -> None:
    while not over.is_set():
        user = User(engines, turns)
        try:
            user.act()
        except Exception as error:  # noqa: BLE001 - whatever ends this thread
            user.problems.append(f"turns beside the interrupted ones end with {error!r}")
            over.set()
        for problem in user.problems:
            _say(problem)


def _owned() -> tuple[int, int]:
    """How many threads and descriptors there are."""
    return threading.active_count(), len(list(Path("/dev/fd").iterdir()))


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # at once: an interrupt in a buffered write may lose or repeat a line


# --- the parent ------------------------------------------------------------------------------------------------------


def interrupt_many(count: int, *, seed: int = 0, every: int = 0) -> list[str]:
    """Interrupt a child so many times. Returns what was wrong."""
    service = Service([turn for turns in calm_script(seed) for turn in turns])
    with Server({"*": service}) as server, tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", "tests.transport.interrupts", "--child", server.url, str(seed), str(count)]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, bufsize=0)
        try:
            found = _interrupted(child, random.Random(seed), every)
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
        errors.seek(0)
        if found:
            found.append(errors.read().decode(errors="replace")[-4000:])
        return [*service.problems, *found]


def _interrupted(child: subprocess.Popen[bytes], draw: random.Random, every: int) -> list[str]:
    found: list[str] = []
    done = 0
    while (line := _line(child)) != "done":
        if line == "go":
            time.sleep(draw.uniform(0.0, LONGEST))
            child.send_signal(signal.SIGINT)
            done += 1
            if every and done % every == 0:
                sys.stdout.write(f"{done} interrupts, {len(found)} problems\n")
                sys.stdout.flush()
        elif line:
            found.append(line)
        else:
            return [*found, f"the child came to a halt after {done} interrupts"]
    return found


def _line(child: subprocess.Popen[bytes]) -> str:
    """The next line of the child; empty where none comes. What a child that hangs was doing is in its errors."""
    assert child.stdout is not None
    if not select.select([child.stdout], [], [], LIMIT)[0]:
        child.send_signal(signal.SIGUSR1)
        time.sleep(1)
        return ""
    return child.stdout.readline().decode().rstrip("\n")


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        wrong = interrupt_many(int(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0, every=500)
        sys.stdout.write("\n".join(wrong))
        sys.exit(bool(wrong))
