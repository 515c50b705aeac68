"""Many users on one pool of connections: nobody gets anybody else's answer, whatever the service and the others do.

    python -m tests.transport.users 20000            so many turns in all, over all transports
    python -m tests.transport.users 20000 7          the same, beginning with another seed

Every user has words of their own (turns.py), and so has the service's answer to them (service.py). All four dialects
go to one server through one transport, so that any connection may serve anybody next.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from itertools import chain, cycle
from typing import Any, NamedTuple

from dragoman import (
    AsyncChatClient,
    ChatClient,
    DragomanError,
    Engine,
    Event,
    RetryPolicy,
    TextDelta,
    Timeouts,
    async_engine,
    engine,
    tool,
)
from dragoman.tools import AnyTool
from dragoman.transport import PoolLimits
from tests.transport.colours import KINDS, QUICK, Kind
from tests.transport.replies import DIALECTS
from tests.transport.server import Server
from tests.transport.service import Service
from tests.transport.turns import ByUser, Received, Turn, problems, script

USERS = 50
TURNS = 20
"""Turns of a user on one transport in a long run; then comes a fresh one, with another seed."""
LIMITS = PoolLimits(connections=24, idle=24, wait=60.0)
"""Fewer connections than users, so that none rests for long."""
HASTY = Timeouts(connect=20.0, read=0.015, total=0.025)
RETRY = RetryPolicy(max_attempts=3, first_wait=0.002, longest_wait=0.004)
"""A service may close a connection in the very moment in which it is used again; no client can do without a retry."""
HANG = 120.0
"""Seconds for all turns of a user; only a hang takes that long."""


class Account(NamedTuple):
    """How a run went."""

    problems: list[str]
    seen: Counter[str]
    """What was done how often; `turns` and `answered` are the turns, and those that came to an answer."""


def run(kind: Kind, seed: int, turns: int) -> Account:
    """Let every user take so many turns on one transport."""
    scripts = script(seed, USERS, turns)
    service = Service(chain.from_iterable(scripts))
    with Server({"*": service}) as server, kind.client(limits=LIMITS) as client:
        engines = engines_on(client.transport, server.url, plain=client.plain)
        everybody = [User(engines, turns) for turns in scripts]
        if client.plain:
            _together(everybody)
        else:
            client.run(_together_on_loop(everybody))
    found = list(chain(service.problems, *(user.problems for user in everybody)))
    seen = sum((user.seen for user in everybody), Counter[str]())
    return Account([f"{problem} (seed {seed}, {kind!r})" for problem in found], seen)


def engines_on(transport: Any, url: str, *, plain: bool) -> Mapping[tuple[str, bool], Any]:
    """Engines by dialect and hastiness, all on the same transport."""
    make: Any = engine if plain else async_engine
    return {
        (name, hasty): make(
            dialect.model,
            key="k",
            base_url=url + dialect.base,
            transport=transport,
            retry=RETRY,
            timeouts=HASTY if hasty else QUICK,
        )
        for name, dialect in DIALECTS.items()
        for hasty in (False, True)
    }


class User:
    """One user, who takes turn after turn and looks at what comes back."""

    def __init__(self, engines: Mapping[tuple[str, bool], Any], turns: list[Turn]) -> None:
        self._engines = engines
        self._turns = turns
        self.own = ByUser(turns)
        self.tools = [self._tool(on_loop=turns[0].user % 2 == 1)]
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()

    def _tool(self, *, on_loop: bool) -> AnyTool:
        if on_loop:

            @tool
            async def note(word: str) -> str:
                """Note a word."""
                await asyncio.sleep(0)
                self.own.noted.append(word)
                return f"noted {word}"

        else:

            @tool
            def note(word: str) -> str:
                """Note a word."""
                self.own.noted.append(word)
                return f"noted {word}"

        return note

    def judge(self, turn: Turn, got: Received) -> None:
        """Look at what came of a turn."""
        self.problems += problems(turn, got, self.own)
        self.seen.update([turn.dialect, turn.service, turn.act, "streamed" if turn.streamed else "whole"])
        self.seen["turns"] += 1
        self.seen["answered"] += got.answer is not None

    def _take(self, turn: Turn, got: Received, event: Event) -> bool:
        """Look at an event. Returns whether the user has seen enough."""
        got.events += 1
        if isinstance(event, TextDelta):
            got.streamed += event.text
        return turn.act == "leaves" and got.events == turn.events

    # --- plain: a thread a user ---

    def act(self) -> None:
        """Take all turns. Cancelling is for event loops: who would cancel is hasty here."""
        for turn in self._turns:
            got = Received()
            with ChatClient(self.engine(turn), self.tools) as client:
                try:
                    self.talk(client, turn, got)
                except DragomanError as error:
                    got.error = error
                got.history = client.history
            self.judge(turn, got)

    def engine(self, turn: Turn) -> Engine:
        """The engine for a plain turn."""
        return self._engines[turn.dialect, turn.act in ("hasty", "cancels", "expires")]

    def talk(self, client: ChatClient, turn: Turn, got: Received) -> None:
        """Take one turn. What has come is in `got`, also where the turn ends with an exception."""
        if not turn.streamed:
            got.answer = client.chat(turn.prompt).text
            return
        with client.stream_chat(turn.prompt) as stream:
            for event in stream:
                if self._take(turn, got, event):
                    if turn.linger != "no":
                        time.sleep(turn.block)
                    return
        got.answer = stream.result.text

    # --- on an event loop: a task a user ---

    async def act_on_loop(self) -> None:
        """Take all turns."""
        for turn in self._turns:
            got = Received()
            hasty = turn.act == "hasty"
            async with AsyncChatClient(self._engines[turn.dialect, hasty], self.tools) as client:
                try:
                    await self._until_given_up(client, turn, got)
                except (DragomanError, TimeoutError) as error:
                    got.error = error
                got.history = client.history
            self.judge(turn, got)

    async def _until_given_up(self, client: AsyncChatClient, turn: Turn, got: Received) -> None:
        loop = asyncio.get_running_loop()
        if turn.act == "cancels":
            talk = asyncio.create_task(self._talk_on_loop(client, turn, got))
            giving_up = loop.call_later(turn.patience, talk.cancel)
            await asyncio.wait([talk])
            giving_up.cancel()
            if not talk.cancelled():
                talk.result()
        elif turn.act == "expires":
            # The reply may come, and the time run out, while the loop stands still: it then learns of both at once.
            loop.call_later(turn.patience, time.sleep, turn.block)
            async with asyncio.timeout(turn.patience + turn.block / 2):
                await self._talk_on_loop(client, turn, got)
        else:
            await self._talk_on_loop(client, turn, got)

    async def _talk_on_loop(self, client: AsyncChatClient, turn: Turn, got: Received) -> None:
        if not turn.streamed:
            got.answer = (await client.chat(turn.prompt)).text
            return
        async with client.stream_chat(turn.prompt) as stream:
            async for event in stream:
                if self._take(turn, got, event):
                    if turn.linger == "awaits":
                        await asyncio.sleep(turn.block)
                    elif turn.linger == "blocks":
                        time.sleep(turn.block)  # noqa: ASYNC251 - a program that keeps its event loop waiting
                        await asyncio.sleep(0)
                    return
        got.answer = stream.result.text


def _together(users: list[User]) -> None:
    threads = [threading.Thread(target=user.act, daemon=True) for user in users]
    for thread in threads:
        thread.start()
    end = time.monotonic() + HANG
    for user, thread in zip(users, threads, strict=True):
        thread.join(max(end - time.monotonic(), 0))
        if thread.is_alive():
            user.problems.append("a user's turns came to no end")


async def _together_on_loop(users: list[User]) -> None:
    async with asyncio.timeout(HANG):
        await asyncio.gather(*(user.act_on_loop() for user in users))


def main(count: int, seed: int) -> int:
    """So many turns in all, one transport after the other. Returns the exit code."""
    done, kinds = 0, cycle(KINDS)
    while done < count:
        kind = next(kinds)
        account = run(kind, seed, TURNS)
        done += account.seen["turns"]
        _say(f"{done} turns; seed {seed}, {kind!r}: {account.seen['answered']} answers")
        for problem in account.problems[:10]:
            _say(problem)
        if account.problems:
            return 1
        seed += 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
