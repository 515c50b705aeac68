"""The comparison in the README and in docs/performance.md, from the figures of a run.

Owns: which figures stand there. Only those of bench/results.md do, each under the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bench import table
from bench.peers import FLOOR
from bench.wire import CHUNKS
from devtools.places import ROOT

__all__ = ["comparison", "write"]

PLACES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
BEGIN, END = "<!-- figures of bench/run.py -->\n", "<!-- end of figures -->"
ABSENT = "–"


class _Column(NamedTuple):
    title: str
    section: str
    key: str
    shown: Callable[[dict[str, Any]], str]


def _time(per: int = 1) -> Callable[[dict[str, Any]], str]:
    return lambda cell: table.micro(cell["cpu"] / per)


COLUMNS = (
    _Column("chat turn", "turn", "openai_chat plain", _time()),
    _Column("tool loop", "tool_loop", "openai_chat plain", _time()),
    _Column("streamed chunk", "stream", "openai_chat plain", _time(CHUNKS)),
    _Column("turn on 1,000 messages", "history", "openai_chat plain 1000", _time()),
    _Column("import", "import", "import", _time()),
    _Column("installed", "install", "", lambda cell: f"{cell['megabytes']:.0f} MB"),
    _Column("distributions", "install", "", lambda cell: f"{cell['distributions']:.0f}"),
)


def comparison(results: dict[str, Any]) -> str:
    """A row for each library that was measured in the dialect that most of them speak, the quickest first."""
    turns: dict[str, Any] = results["sections"]["turn"]["cells"]["openai_chat plain"]
    names = sorted(
        [name for name, cell in turns.items() if name != FLOOR and "cpu" in cell], key=lambda name: turns[name]["cpu"]
    )
    rows: list[table.Row] = [("", *[column.title for column in COLUMNS])]
    rows += [(name, *[_shown(results, column, name) for column in COLUMNS]) for name in names]
    return table.markdown(rows)


def _shown(results: dict[str, Any], column: _Column, name: str) -> str:
    cells = results["sections"].get(column.section, {}).get("cells", {})
    cell = cells.get(column.key, {}).get(name, {"error": "not measured"})
    return ABSENT if "error" in cell else column.shown(cell)


def write(results: dict[str, Any]) -> None:
    """Put the comparison where it has its place."""
    for place in PLACES:
        before, begin, rest = place.read_text(encoding="utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            message = f"{place.name} has lost the marks between which the comparison stands"
            raise ValueError(message)
        place.write_text(f"{before}{begin}{comparison(results)}\n{end}{after}", encoding="utf-8")
