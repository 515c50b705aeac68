"""What the figures should reach, and whether they do.

Owns: the targets as a table of data, and the words for those that are not reached. A target that cannot be judged,
because its part was not measured, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.measure import Cells, ratio
from bench.peers import OURS

__all__ = ["Verdict", "verdicts"]


class Verdict(NamedTuple):
    part: str
    what: str
    value: float
    limit: float
    unit: str = "×"

    @property
    def reached(self) -> bool:
        return self.value <= self.limit


COLOURS = {"plain": "plain", "on_loop": "async"}
TO_FLOOR = {
    "turn": {"plain": 3.5, "on_loop": 2.5},
    "tool_loop": {"plain": 4.0, "on_loop": 3.5},
    "stream": {"plain": 3.0, "on_loop": 3.0},
}
TO_BEST = {"turn": 1 / 10, "tool_loop": 1 / 10, "stream": 1 / 8}
NAMES = {"turn": "chat turn", "tool_loop": "tool loop", "stream": "streamed chunk"}
HISTORY = "openai_chat {} 1000"


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    found: list[Verdict] = []
    sections = {name: section["cells"] for name, section in results["sections"].items()}
    for name, judge in _JUDGES.items():
        if name in sections:
            found += judge(name, sections[name])
    return found


def _imports(part: str, cells: dict[str, Cells]) -> Iterator[Verdict]:
    loaded = cells["import"]
    ours = loaded[OURS]["cpu"]
    if "httpx" in loaded:
        yield Verdict(part, "import, to `import httpx`", ours / loaded["httpx"]["cpu"], 0.7)
    peers = {name: cell for name, cell in loaded.items() if name not in ("httpx", "asyncio", "msgspec")}
    best = ratio(peers)
    if best is not None:
        yield Verdict(part, "import, to the fastest peer", best, 1 / 5)
    best = ratio(cells["ready"])
    if best is not None:
        yield Verdict(part, "import and a client made, to the fastest peer", best, 1 / 5)


def _install(part: str, cells: dict[str, Cells]) -> Iterator[Verdict]:
    yield Verdict(part, "install, megabytes", cells[""][OURS]["megabytes"], 25, "MB")
    yield Verdict(part, "install, distributions", cells[""][OURS]["distributions"], 5, "")


def _operation(part: str, cells: dict[str, Cells]) -> Iterator[Verdict]:
    for key, found in cells.items():
        dialect, colour = key.split()
        if OURS not in found or "error" in found[OURS]:
            continue
        what = f"{NAMES[part]}, {dialect}, {COLOURS[colour]}"
        if dialect == "openai_chat":
            yield Verdict(part, f"{what}, to the floor", found[OURS]["cpu_to_floor"], TO_FLOOR[part][colour])
        best = ratio(found)
        if best is not None:
            yield Verdict(part, f"{what}, to the best peer", best, TO_BEST[part])


def _tools(part: str, cells: dict[str, Cells]) -> Iterator[Verdict]:
    found = cells.get("openai_chat", {}).get(OURS, {"error": ""})
    if "error" not in found:
        yield Verdict(part, "200 functions as tools, first use, milliseconds", found["first"] * 1e3, 50, "ms")


def _history(part: str, cells: dict[str, Cells]) -> Iterator[Verdict]:
    for colour, word in COLOURS.items():
        found = cells.get(HISTORY.format(colour))
        if found is None or "error" in found.get(OURS, {"error": ""}):
            continue
        what = f"turn on 1,000 messages, {word}"
        yield Verdict(part, f"{what}, to the floor", found[OURS]["cpu_to_floor"], 3)
        best = ratio(found)
        if best is not None:
            yield Verdict(part, f"{what}, to the openai SDK and what is built on it", best, 1 / 100)


def _streams(part: str, cells: dict[str, Cells]) -> Iterator[Verdict]:
    for key, found in cells.items():
        dialect, count = key.split()
        if dialect != "openai_chat" or "error" in found.get(OURS, {"error": ""}):
            continue
        what = f"{int(count):,} streams at once"
        yield Verdict(part, f"{what}, CPU, to the floor", found[OURS]["cpu_to_floor"], 3)
        yield Verdict(part, f"{what}, p99, to the floor", found[OURS]["p99_to_floor"], 2)
        best = ratio(found, "peak")
        if best is not None:
            yield Verdict(part, f"{what}, memory, to the best peer", best, 1 / 3)


_JUDGES = {
    "import": _imports,
    "install": _install,
    "turn": _operation,
    "stream": _operation,
    "tool_loop": _operation,
    "history": _history,
    "tools": _tools,
    "streams": _streams,
}
