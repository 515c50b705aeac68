"""What the tool layer costs: `python bench/tool_dispatch.py` in the development environment.

Everything is measured in one run, in turns, and compared as a ratio, because machines are noisy:

- dispatch: validate, call and record a no-op tool with three arguments, against decoding the same JSON into a struct
  with msgspec and calling the function. It runs in a worker thread, where a run that is stopped can leave it, and the
  way there and back is nearly half of this; with `max_parallel_tools=1` it runs in the thread of the caller.
- first use: 200 functions become tools, and each decodes its first call. Wanted: at most 50 ms of processor time.
- parallel: eight tools of 100 ms at once, plain and async, in both colours. Wanted: 130 ms.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

import msgspec

from dragoman import ToolCall, ToolConfig, ToolExecutor, tool

ROUNDS = 120
REPEATS = 1_000
"""Many short rounds: what disturbs the machine then disturbs all contenders of a round alike."""
ARGUMENTS = '{"a":1,"b":"hello","c":2.5}'
FUNCTIONS = 200
FUNCTION = '''
def function_{number}(city: str, days: int = {number}, units: str = "metric") -> str:
    """Say how the weather will be, by source {number}.

    Args:
        city: Where to look.
        days: How many days ahead, today included.
        units: In which units.
    """
    return city
'''


class Arguments(msgspec.Struct):
    a: int
    b: str
    c: float


def nothing(a: int, b: str, c: float) -> None: ...


@tool
def nap() -> None:
    time.sleep(0.1)


@tool
async def anap() -> None:
    await asyncio.sleep(0.1)


def nanoseconds(work: Callable[[], object]) -> float:
    start = time.process_time_ns()
    for _ in range(REPEATS):
        work()
    return (time.process_time_ns() - start) / REPEATS


def dispatch() -> None:
    call = ToolCall("1", "nothing", ARGUMENTS)
    with ToolExecutor([nothing]) as executor, ToolExecutor([nothing], ToolConfig(max_parallel_tools=1)) as inline:
        contenders: dict[str, Callable[[], object]] = {
            "empty loop": lambda: None,
            "decode": lambda: msgspec.json.decode(ARGUMENTS, type=Arguments),
            "bare call": lambda: nothing(1, "hello", 2.5),
            "dispatch": lambda: executor.execute(call),
            "dispatch, own thread": lambda: inline.execute(call),
        }
        samples: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, work in contenders.items():
                samples[name].append(nanoseconds(work))
    empty = samples.pop("empty loop")
    costs = {name: [a - b for a, b in zip(values, empty, strict=True)] for name, values in samples.items()}
    for name, values in costs.items():
        print(f"{name:<28}{statistics.median(values):8.0f} ns")
    for name in ("dispatch", "dispatch, own thread"):
        rounds = zip(costs["decode"], costs["bare call"], costs[name], strict=True)
        ratio = statistics.median([dispatched / (decoded + called) for decoded, called, dispatched in rounds])
        print(f"{f'{name}, to decode + call':<28}{ratio:8.1f} ×")


def first_use() -> None:
    names: dict[str, Callable[..., str]] = {}
    exec("from __future__ import annotations\n" + "".join(FUNCTION.format(number=n) for n in range(FUNCTIONS)), names)  # noqa: S102 -- our own text
    functions = [names[f"function_{number}"] for number in range(FUNCTIONS)]
    tool(functions[0])  # what defining tools loads is loaded
    samples: list[float] = []
    for _ in range(10):
        start = time.process_time()
        for function in functions:
            arguments = tool(function).arguments
            arguments.bind(arguments.decode('{"city":"Lyon"}'))
        samples.append((time.process_time() - start) * 1000)
    print(f"{f'first use of {FUNCTIONS} tools':<28}{min(samples):8.1f} ms  (≤ 50)")


def parallel() -> None:
    config = ToolConfig(max_parallel_tools=8)
    with ToolExecutor([nap, anap], config) as executor:
        for name in ("nap", "anap"):
            calls = [ToolCall(str(i), name) for i in range(8)]
            executor.execute_all(calls)  # the threads are there
            start = time.perf_counter()
            executor.execute_all(calls)
            print(f"{f'8 × 100 ms, {name}, plain':<28}{(time.perf_counter() - start) * 1000:8.1f} ms  (≤ 130)")

            async def once(calls: list[ToolCall] = calls) -> float:
                start = time.perf_counter()
                await executor.aexecute_all(calls)
                return time.perf_counter() - start

            print(f"{f'8 × 100 ms, {name}, async':<28}{asyncio.run(once()) * 1000:8.1f} ms  (≤ 130)")


if __name__ == "__main__":
    dispatch()
    first_use()
    parallel()
