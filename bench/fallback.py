"""What a chain costs: a turn while the first provider is down and its breaker open, against a turn without a chain.

    python bench/fallback.py

CPU of the calling thread, the two kinds of turns by turns in one run; a simulator on loopback answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from dragoman import Conversation, Message, engine
from dragoman.engines import Engine, Fallback, FallbackEngine
from dragoman.simulator import Reply, Simulator, Status
from dragoman.transport import RetryPolicy

ASKED = Conversation("Be brief.").plus(Message.user("Hello"))
ROUNDS = 1000
DOWN, WELL = "anthropic:claude-sonnet-4-5", "openai:gpt-4o"


def measure(turn: Callable[[], object]) -> float:
    """Microseconds of CPU of one turn."""
    began = time.thread_time_ns()
    turn()
    return (time.thread_time_ns() - began) / 1000


def main() -> None:
    with Simulator(lambda request: Status(503) if request.dialect == "anthropic" else Reply("Hello.")) as simulator:

        def make(model: str) -> Engine:
            base_url = simulator.base_url(model.partition(":")[0])
            return engine(model, key="any", base_url=base_url, retry=RetryPolicy(first_wait=0.0))

        with make(DOWN) as down, make(WELL) as well:
            one = engine([down, well], fallback=Fallback(open_for=3600, longest_open=3600))
            assert isinstance(one, FallbackEngine)
            first = measure(lambda: one.reply(ASKED))
            assert one.health[0].state == "open"
            turns = {"alone": well, "chain, the first one open": one}
            taken = {
                name: [measure(lambda each=each: each.reply(ASKED)) for _ in range(50)] for name, each in turns.items()
            }
            for _ in range(ROUNDS):
                for name, each in turns.items():
                    taken[name].append(measure(lambda each=each: each.reply(ASKED)))
        assert sum(request.dialect == "anthropic" for request in simulator.requests) == 3
    alone, chained = (median(each[50:]) for each in taken.values())
    print(f"the turn in which it opens (3 attempts, then the next model): {first:.0f} µs of CPU")
    print(f"a turn without a chain: {alone:.0f} µs; with its first model passed over: {chained:.0f} µs")
    print(f"added: {chained - alone:.0f} µs of CPU a turn")


if __name__ == "__main__":
    main()
