"""Kill a child that saves and journals in a loop, and check what it left.

    python -m tests.stores.crash sqlite 500          kill it 500 times

The child reports what it has done only after the store acknowledged it; after a kill, all of that must be there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, NamedTuple

from dragoman.conversation import Conversation, Message, ToolCall, ToolResult
from dragoman.stores import ConversationStore, MessageAdded, Snapshot, ToolCallBegun, ToolCallDone, resume
from tests.processes import started
from tests.stores.backends import SHARED

ROOT = Path(__file__).resolve().parent.parent.parent
FRESH = 8
"""Kills per store; then a new one is used, so that some kills hit its creation."""


# --- the child -------------------------------------------------------------------------------------------------------


def work(store: ConversationStore, seed: int) -> None:
    """Save conversations of a few turns, with a journal, and report each step after it is done."""

    def tell(*words: object) -> None:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()

    draw = random.Random(seed)
    tell(os.getpid())
    while True:
        snapshot = Snapshot.first(Conversation("s").plus(Message.user("begin")), provider="p", model="m")
        store.save(snapshot)
        tell("saved", snapshot.id, snapshot.root, len(snapshot.messages))
        for turn in range(draw.randint(1, 6)):
            call = ToolCall(f"call_{turn}", "pay", "{}")
            result = ToolResult(call.id, "pay")
            reply, answer = Message.assistant("x" * draw.randint(0, 3000), call), Message.tool([result])
            steps = [MessageAdded(reply), ToolCallBegun(call), ToolCallDone(result), MessageAdded(answer)]
            at = 0
            while at < len(steps):
                some = draw.randint(1, 2)
                tell("trying", snapshot.id, at, some)
                at = store.record(snapshot.id, steps[at : at + some], after=at)
                tell("recorded", snapshot.id, at)
            longer = snapshot.conversation.plus(reply, answer)
            if draw.random() < 0.2:
                longer = longer.up_to(1)  # as if it had been compacted
            snapshot = snapshot.next(longer)
            tell("saving", snapshot.id)
            store.save(snapshot, after=at)
            tell("saved", snapshot.id, snapshot.root, len(snapshot.messages))
        if draw.random() < 0.1:
            tell("deleting", snapshot.root)
            store.delete(snapshot.id)
            tell("deleted", snapshot.root)


GONE = "-- gone --"


def fork_children(backend: str) -> None:
    """Fork a child for each line of standard input, which has its directory and seed."""
    for line in sys.stdin:
        place, seed = line.split()
        child = os.fork()
        if child == 0:
            work(SHARED[backend].open(Path(place)), int(seed))
        os.waitpid(child, 0)
        # On a new line: the last line of the child may be incomplete.
        sys.stdout.write(f"\n{GONE}\n")
        sys.stdout.flush()


# --- the killer ------------------------------------------------------------------------------------------------------


class Acknowledged(NamedTuple):
    """What the store had acknowledged when the child died."""

    saved: dict[str, int]
    """Snapshots and the number of their messages."""
    recorded: dict[str, int]
    """The length of the journal after a snapshot."""
    uncertain: set[str]
    """The ids of the last, unfinished step, which may have happened or not."""


def parse(lines: list[str]) -> Acknowledged:
    told = Acknowledged({}, {}, set())
    roots: dict[str, str] = {}

    def forget(root: str) -> None:
        for id in [id for id, of in roots.items() if of == root]:
            told.saved.pop(id, None)
            told.recorded.pop(id, None)

    for line in lines:
        match line.split():
            case ["saved", id, root, count]:
                roots[id] = root
                told.saved[id] = int(count)
                told.recorded.clear()
                told.recorded[id] = 0
                told.uncertain.clear()
            case ["recorded", id, length]:
                told.recorded[id] = int(length)
                told.uncertain.clear()
            case ["trying" | "saving", id, *_]:
                told.uncertain.add(id)
            case ["deleting" | "deleted", root]:
                forget(root)
                told.uncertain.clear()
            case words:
                raise AssertionError(f"the child said {words}")
    return told


def kill_one(children: subprocess.Popen[str], place: Path, seed: int) -> list[str]:
    """Start a child, kill it at a random moment, and return the lines that it wrote."""
    draw = random.Random(seed)
    told, heard = _pipes(children)
    told.write(f"{place} {seed}\n")
    told.flush()
    child = int(heard.readline())
    # After some lines plus a little time, so that any point of a step is hit on any machine.
    lines = [heard.readline().rstrip("\n") for _ in range(draw.randint(0, 60))]
    threading.Event().wait(draw.random() * 0.004)
    os.kill(child, signal.SIGKILL)
    lines += iter(lambda: heard.readline().rstrip("\n"), GONE)
    # The last line is incomplete or empty.
    return lines[:-1]


def _pipes(children: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert children.stdin is not None
    assert children.stdout is not None
    return children.stdin, children.stdout


def check(backend: str, place: Path, told: Acknowledged) -> None:
    """Check that everything that was acknowledged is there."""
    with SHARED[backend].open(place) as store:
        for id, count in told.saved.items():
            assert len(store.load(id).messages) == count, f"{id} has lost messages"
        for id, length in told.recorded.items():
            journal = store.journal(id)
            if journal.snapshot == id:
                assert journal.position >= length, f"the journal of {id} has lost entries"
                found = resume(store, id)
                assert len(found.uncertain_calls) <= 1
                assert not found.done_results or not found.uncertain_calls
            else:
                assert told.uncertain, f"{id} was followed by a save that nobody asked for"
        page = store.list(limit=1000)
        assert not page.unreadable
    assert not SHARED[backend].litter(place), "files were left behind"


def kill_many(backend: str, directory: Path, count: int) -> int:
    """Kill the child this many times; returns the number of acknowledged saves, all of which were found again."""
    found = 0
    command = [sys.executable, "-m", "tests.stores.crash", "--children", backend]
    with started(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as children:
        for begin in range(0, count, FRESH):
            place = directory / str(begin)
            place.mkdir()
            with SHARED[backend].around(place):
                everything: dict[str, int] = {}
                for number in range(begin, min(begin + FRESH, count)):
                    told = parse(kill_one(children, place, number))
                    check(backend, place, told)
                    everything |= told.saved
                check(backend, place, Acknowledged(everything, {}, set()))
                found += len(everything)
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--children":
        fork_children(sys.argv[2])
    else:
        _, backend, count = sys.argv
        with tempfile.TemporaryDirectory() as directory:
            found = kill_many(backend, Path(directory), int(count))
        sys.stdout.write(f"{count} kills, {found} acknowledged saves found again\n")
