"""What vectors cost: `python bench/embeddings.py [--texts 10000]` in the development environment.

The same texts are embedded by dragoman and by the openai SDK, in requests of the same size, against one simulator in a
process of its own; in turns, each round in a fresh process, and compared as a ratio of processor time. Wanted: at most
a fifth, and a peak of memory that is the result and a few replies.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

TEXTS = 10_000
BATCH = 256
MODEL = "text-embedding-3-small"


def by_dragoman(url: str, texts: list[str]) -> tuple[int, float]:
    from dragoman.embeddings import embed

    began = time.process_time()
    found = embed(texts, model=f"openai:{MODEL}", key="any", base_url=url, batch_size=BATCH)
    return len(found), time.process_time() - began


def by_openai(url: str, texts: list[str]) -> tuple[int, float]:
    import openai

    vectors: list[list[float]] = []
    with openai.OpenAI(base_url=url, api_key="any") as client:
        began = time.process_time()
        for start in range(0, len(texts), BATCH):
            reply = client.embeddings.create(input=texts[start : start + BATCH], model=MODEL)
            vectors += [each.embedding for each in reply.data]
        return len(vectors), time.process_time() - began


CONTENDERS = {"dragoman": by_dragoman, "openai": by_openai}


def measure(name: str, url: str, count: int) -> None:
    """In a process of its own: seconds of the processor, and how much memory was taken on top of the imports."""
    texts = [f"Text {number}: the quick brown fox jumps over the lazy dog." for number in range(count)]
    CONTENDERS[name](url, texts[:1])  # connections, imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, seconds = CONTENDERS[name](url, texts)
    assert found == count
    print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("WHO", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(*given.measure, given.texts)
        return
    from dragoman.simulator import Simulator

    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    megabytes: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with Simulator() as simulator:
        url = simulator.base_url("openai")
        for _ in range(given.rounds):
            for name in CONTENDERS:
                command = [sys.executable, __file__, "--texts", str(given.texts), "--measure", name, url]
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
                took, grown = map(float, done.stdout.split())
                seconds[name].append(took)
                megabytes[name].append(grown)
    result = given.texts * 1536 * 4 / 2**20
    print(f"{given.texts:,} texts of 1,536 dimensions: {result:.0f} MiB of numbers")
    for name in CONTENDERS:
        took, grown = statistics.median(seconds[name]), statistics.median(megabytes[name])
        print(f"{name:<10} {took:7.3f} s of the processor   {grown:6.0f} MiB more memory at its peak")
    ratio = statistics.median(seconds["dragoman"]) / statistics.median(seconds["openai"])
    print(f"dragoman / openai: {ratio:.3f} (wanted: at most 0.2)")


if __name__ == "__main__":
    main()
