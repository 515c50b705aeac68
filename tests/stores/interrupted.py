"""A program that uses a store and is interrupted again and again: the child process of test_interrupts.py.

A timer of the kernel sends a signal at a random moment, and its handler raises KeyboardInterrupt wherever the program
is, as that of Ctrl-C does. What the program has seen is the JSON that it prints.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dragoman import ChatClient, Message, ScriptedEngine, ToolCall, tool
from dragoman.engines import ScriptedCall
from dragoman.stores import ConversationStore, MessageAdded, Snapshot
from tests.stores.backends import SHARED
from tests.stores.cases import after, first

DEADLINE = 100.0
"""Seconds after which the program prints where it hangs, and ends."""
STRAY = 30
"""Interrupts for each of which one thread of async tools may be left: the standard library's own futures and events
are not safe from Ctrl-C, and a loop may wait for ever for one that was interrupted."""
SETTLING = 10.0
"""Seconds for what is closed to be gone."""
TURNS = 12
"""Rounds after which a conversation is long enough, and the next one begins."""

Acknowledged = dict[str, int]
"""Of each conversation, how many messages the store has confirmed."""


_pressed: list[bool] = []
"""Whether Ctrl-C counts now; a signal may be a little late."""


def press(_number: int, _frame: object) -> None:
    if _pressed:
        raise KeyboardInterrupt


def interrupted(work: Callable[[], None], seconds: float) -> bool:
    """Do this, and press Ctrl-C after so many seconds; whether it came before the end."""
    try:
        try:
            _pressed.append(True)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            work()
        finally:
            _pressed.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    return False


def files() -> int:
    """Open files and directories. Pipes and sockets are not the store's."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the directory itself, while it was read
            count += str(link.readlink()).startswith("/")
    return count


def threads() -> int:
    """As the system counts them: Python counts also those that were interrupted before they began."""
    return len(list(Path("/proc/self/task").iterdir()))


def settled(read: Callable[[], int], wanted: int) -> int:
    """What this reads as soon as it is no more than what is wanted, or after a while."""
    end = time.monotonic() + SETTLING
    while (found := read()) > wanted and time.monotonic() < end:
        gc.collect()
        time.sleep(0.05)
    return found


@tool
def look(word: str) -> str:
    """Look a word up."""
    return f"{word} it is"


@tool
async def ask(word: str) -> str:
    """Ask somebody about a word."""
    return f"{word}, they say"


def _reply(call: ScriptedCall) -> str | Message:
    if call.conversation.messages[-1].role == "tool":
        return "Done."
    number = len(call.conversation.messages)
    names = [("look",), ("ask",), ("look", "ask"), ()][number % 4]
    calls = [ToolCall(f"{name}-{number}", name, '{"word": "word"}') for name in names]
    return Message.assistant("Let me see.", *calls) if calls else "Nothing to look up."


class Talking:
    """Turns of a conversation that a client keeps in the store, if there is one."""

    def __init__(self, store: ConversationStore | None, confirmed: Acknowledged) -> None:
        self._store, self._confirmed = store, confirmed
        self._client: ChatClient | None = None
        self._turns = 0

    def begin(self) -> None:
        """Begin a new conversation now and then; this is not interrupted."""
        # Without a store, each client has one turn: all of it that happens once is hit, too.
        if self._client is None or self._store is None or self._turns % TURNS == 0:
            self.close()
            self._client = ChatClient(ScriptedEngine([_reply] * 100), [look, ask], store=self._store)
        self._turns += 1

    def once(self) -> None:
        assert self._client is not None
        self._client.chat("Go on.")
        if self._store is not None:
            assert self._client.id is not None
            self._confirmed[self._client.id] = len(self._client.history)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class Saving:
    """Saves, records and reads, straight from the store."""

    def __init__(self, store: ConversationStore, confirmed: Acknowledged) -> None:
        self._store, self._confirmed = store, confirmed
        self._newest: Snapshot | None = None

    def begin(self) -> None:
        """An interrupted save may have been carried out: go on from what the store has."""
        if self._newest is None or len(self._newest.messages) >= TURNS:
            self._newest = first("saved")
            self._store.save(self._newest)
        else:
            self._newest = self._store.latest(self._newest.id)

    def once(self) -> None:
        assert self._newest is not None
        journal = self._store.journal(self._newest.id)
        entry = MessageAdded(Message.user("noted"))
        position = self._store.record(self._newest.id, [entry], after=journal.position)
        new = after(self._newest, "more")
        self._store.save(new, after=position)
        self._confirmed[new.root] = len(new.messages)
        assert self._store.latest(new.id) == new

    def close(self) -> None:
        """There is nothing to close."""


def main(backend: str, place: Path, wanted: int, seed: int) -> None:
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    signal.signal(signal.SIGINT, press)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    chance = random.Random(seed)
    confirmed: Acknowledged = {}
    warm_up(place)
    opened, tasks = files(), threads()
    store = None if backend == "none" else SHARED[backend].open(place)
    works = [Talking(None, confirmed)] if store is None else [Talking(store, confirmed), Saving(store, confirmed)]
    durations = [0.01 for _ in works]
    count = rounds = 0
    while count < wanted and rounds < 4 * wanted:
        number = rounds % len(works)
        rounds += 1
        works[number].begin()
        began = time.monotonic()
        # Up to a little more than a round takes, so that every part of it is hit.
        if interrupted(works[number].once, chance.uniform(0.00005, 1.2 * durations[number])):
            count += 1
        else:
            durations[number] = 0.8 * durations[number] + 0.2 * (time.monotonic() - began)
    for work in works:
        work.begin()
        work.once()
    sys.stdin.readline()
    say({"interrupts": count, "rounds": rounds})
    sys.stdin.readline()  # meanwhile another process uses the store, which this one has not closed
    for work in works:
        work.close()
    if store is not None:
        store.close()
    say(
        {
            "confirmed": confirmed,
            "threads": settled(threads, tasks + wanted // STRAY) - tasks,
            "files": settled(files, opened) - opened,
        }
    )


def say(seen: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()


def warm_up(place: Path) -> None:
    """Load whatever is loaded once, and open whatever stays open for good."""
    store = SHARED["file"].open(place / "warm")
    works = [Talking(store, {}), Saving(store, {})]
    for _ in range(4):
        for work in works:
            work.begin()
            work.once()
    for work in works:
        work.close()
    store.close()
    settled(threads, 1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
