"""A child that saves and journals in a loop until it is killed, and the look at what it left.

    python -m tests.stores.crash sqlite 500          so many kills, with a line for every 50

The child says what it has done only after the store has said so; after a kill, all of that must be there.
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
"""Kills on one store; then comes an empty one, so that its making is hit, too."""


# --- the child -------------------------------------------------------------------------------------------------------


def work(store: ConversationStore, seed: int) -> None:
    """Conversations of a few turns, each turn journalled step by step; every line follows what it tells of."""

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
    """A child for each line of standard input, which names its place and seed: Python and the store are loaded once."""
    for line in sys.stdin:
        place, seed = line.split()
        child = os.fork()
        if child == 0:
            work(SHARED[backend].open(Path(place)), int(seed))
        os.waitpid(child, 0)
        # On a line of its own: the last one of the child may have no end.
        sys.stdout.write(f"\n{GONE}\n")
        sys.stdout.flush()


# --- the killer ------------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What the child had been told by the store when it died."""

    saved: dict[str, int]
    """Snapshots and the number of their messages."""
    recorded: dict[str, int]
    """The length of the journal behind a snapshot."""
    uncertain: set[str]
    """Ids that the last, unfinished step was about: it may have happened or not."""


def understood(lines: list[str]) -> Told:
    told = Told({}, {}, set())
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
    """Have a child made, kill it at a random moment, and give back the lines that it wrote."""
    draw = random.Random(seed)
    told, heard = _pipes(children)
    told.write(f"{place} {seed}\n")
    told.flush()
    child = int(heard.readline())
    # By lines rather than by time, plus a little time, so that any point of a step is hit on any machine.
    lines = [heard.readline().rstrip("\n") for _ in range(draw.randint(0, 60))]
    threading.Event().wait(draw.random() * 0.004)
    os.kill(child, signal.SIGKILL)
    lines += iter(lambda: heard.readline().rstrip("\n"), GONE)
    # The last line was cut off by the kill, or is empty: what it tells of had happened, but nobody was told.
    return lines[:-1]


def _pipes(children: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert children.stdin is not None
    assert children.stdout is not None
    return children.stdin, children.stdout


def check(backend: str, place: Path, told: Told) -> None:
    """Everything that the child was told is there."""
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


def kill_many(backend: str, directory: Path, count: int, *, seed: int = 0, every: int = 0) -> int:
    """So many kills; the number of acknowledged saves that were found again, at once and at the end."""
    found = 0
    command = [sys.executable, "-m", "tests.stores.crash", "--children", backend]
    with started(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as children:
        for begin in range(0, count, FRESH):
            place = directory / str(begin)
            place.mkdir()
            with SHARED[backend].around(place):
                everything: dict[str, int] = {}
                for number in range(begin, min(begin + FRESH, count)):
                    told = understood(kill_one(children, place, seed + number))
                    check(backend, place, told)
                    everything |= told.saved
                    if every and (number + 1) % every == 0:
                        done = found + len(everything)
                        sys.stdout.write(f"{number + 1} kills, {done} acknowledged saves found again\n")
                        sys.stdout.flush()
                check(backend, place, Told(everything, {}, set()))
                found += len(everything)
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--children":
        fork_children(sys.argv[2])
    else:
        _, backend, count = sys.argv
        with tempfile.TemporaryDirectory() as directory:
            kill_many(backend, Path(directory), int(count), every=50)
