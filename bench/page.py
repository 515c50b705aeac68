"""bench/results.md and its plots, from the figures of a run.

Owns: which tables and plots the page has. The words are in bench/results.template.md; `{{…}}` in it stands for what
is made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bench import readme, svg, table
from bench.measure import Cells
from bench.peers import CONTENDERS, FLOOR, OURS
from bench.wire import CHUNKS
from devtools.places import ROOT

__all__ = ["write"]

TEMPLATE = ROOT / "bench" / "results.template.md"
PAGE = ROOT / "bench" / "results.md"
IMAGES = ROOT / "bench" / "images"
COLOURS = {"plain": "plain", "on_loop": "async"}
MARK = re.compile(r"\{\{([a-z_ 0-9.,-]+)\}\}")
KINDS = {FLOOR: "floor", OURS: "ours"}

Results = dict[str, Any]


def write(results: Results) -> None:
    """Write the page and its plots. A part that was not measured says so."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PLOTS.items():
        (IMAGES / f"performance-{name}.svg").write_text(draw(results), encoding="utf-8")
    text = TEMPLATE.read_text(encoding="utf-8")
    PAGE.write_text(MARK.sub(lambda found: _filled(found[1], results), text), encoding="utf-8")
    readme.write(results)
    places = (
        PAGE.relative_to(ROOT),
        "the comparison in the README",
        f"{len(PLOTS)} plots in {IMAGES.relative_to(ROOT)}",
    )
    print("written:", *places, sep="\n  ")


def _cells(results: Results, section: str) -> dict[str, Any]:
    return results["sections"].get(section, {}).get("cells", {})


def _filled(mark: str, results: Results) -> str:
    name, *words = mark.split(" ", 1)
    rest = words[0] if words else ""
    if name in WORDS:
        return WORDS[name](results)
    tables = table.rows(name, _cells(results, name)) if name in results["sections"] else {}
    if rest:
        return table.markdown(tables[rest]) if rest in tables else "*not measured*"
    titled = [
        f"**{_title(key)}**\n\n{table.markdown(found)}" if key else table.markdown(found)
        for key, found in tables.items()
    ]
    return "\n\n".join(titled) or "*not measured*"


def _title(key: str) -> str:
    words = [COLOURS.get(word, f"{int(word):,}" if word.isdigit() else word) for word in key.split()]
    return ", ".join(words)


# --- words -----------------------------------------------------------------------------------------------------------


def _about(results: Results) -> str:
    about = results["about"]
    return f"Python {about['python']}, {about['system']}, {about['processor']}"


def _loads(results: Results) -> str:
    sections: dict[str, Any] = results["sections"]
    times = sorted([section["at"].replace("T", " ")[:16] for section in sections.values() if "at" in section])
    loads = [each[0] for section in sections.values() for each in section.get("load", ())]
    quick = [name.replace("_", " ") for name, section in sections.items() if section.get("quick")]
    said = f"measured between {times[0]} and {times[-1]} UTC"
    if loads:
        said += f" while the machine's load average was between {min(loads):.1f} and {max(loads):.1f}"
    stolen = [section["stolen"] for section in sections.values() if section.get("stolen") is not None]
    if stolen:
        said += f" and its host gave {min(stolen):.0%} to {max(stolen):.0%} of its processors' time to others"
    if quick:
        said += f". In few rounds only: {', '.join(quick)}"
    return said


def _contenders(results: Results) -> str:
    rows: list[table.Row] = [("", "version", "how it is used")]
    for name, row in CONTENDERS.items():
        version = results["about"]["versions"].get(name, "")
        missing = results["about"]["missing"].get(name)
        rows.append((name, version, row.how if missing is None else "left out: it could not be installed here"))
    return table.markdown(rows).replace("---: |", "--- |")


def _tls(results: Results) -> str:
    """How the ratios change."""
    rows: list[table.Row] = [
        ("", "to the floor, plain HTTP", "over TLS", "best peer to dragoman, plain HTTP", "over TLS")
    ]
    for operation, keys in _cells(results, "tls").items():
        for key, over in keys.items():
            plain = _cells(results, operation).get(key)
            if plain is None or OURS not in plain or OURS not in over or "error" in over[OURS]:
                continue
            dialect = key.split()[0]
            peers = [name for name in plain if name not in KINDS and CONTENDERS[name].home == dialect]
            rows.append(
                (
                    f"{operation.replace('_', ' ')}, {_title(key)}",
                    *(f"{cells[OURS]['cpu_to_floor']:.1f} ×" for cells in (plain, over)),
                    *(_best(cells, peers) for cells in (plain, over)),
                )
            )
    return table.markdown(rows) if len(rows) > 1 else "*not measured*"


def _best(cells: Cells, peers: list[str]) -> str:
    found = [cells[name]["cpu"] for name in peers if "cpu" in cells.get(name, {})]
    return f"{min(found) / cells[OURS]['cpu']:.1f} ×" if found else ""


def _reached(results: Results) -> str:
    rows = table.verdict_rows(results)[1:]
    return f"{sum(row[-1] == 'reached' for row in rows)} of {len(rows)}"


WORDS: dict[str, Callable[[Results], str]] = {
    "about": _about,
    "loads": _loads,
    "contenders": _contenders,
    "targets": lambda results: table.markdown(table.verdict_rows(results)),
    "reached": _reached,
    "tls_ratios": _tls,
}

# --- plots -----------------------------------------------------------------------------------------------------------


def _bars(cells: Cells, field: str, per: float = 1) -> list[svg.Bar]:
    found = sorted((cell[field] / per, name) for name, cell in cells.items() if cell.get(field, 0) > 0)
    return [svg.Bar(name, value, table.micro(value), KINDS.get(name, "peer")) for value, name in found]


def _operation(section: str, title: str, keys: list[str], per: float = 1) -> Callable[[Results], str]:
    def draw(results: Results) -> str:
        cells = _cells(results, section)
        panels = [svg.Panel(_title(key), _bars(cells[key], "cpu", per)) for key in keys if key in cells]
        return svg.bars(title, panels)

    return draw


def _history(results: Results) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for key, cells in _cells(results, "history").items():
        dialect, colour, size = key.split()
        for name, cell in cells.items():
            ours = name in KINDS and dialect != "openai_chat"
            if colour == "plain" and "cpu" in cell and not ours:
                series.setdefault(name, []).append((float(size), cell["cpu"] * 1e3))
    return svg.lines("Client CPU of a turn behind so many messages (plain)", series, KINDS, "ms")


def _streams(results: Results) -> str:
    panels: list[svg.Panel] = []
    for key, cells in _cells(results, "streams").items():
        dialect, count = key.split()
        if dialect == "openai_chat":
            panels.append(svg.Panel(f"{int(count):,} streams, CPU", _bars(cells, "cpu")))
    return svg.bars("Many streams at once, openai_chat", panels)


def _memory(results: Results) -> str:
    panels: list[svg.Panel] = []
    for key, cells in _cells(results, "streams").items():
        dialect, count = key.split()
        found = sorted((cell["peak"] / 1e6, name) for name, cell in cells.items() if "peak" in cell)
        if dialect == "openai_chat":
            shown = [svg.Bar(name, value, f"{value:.0f} MB", KINDS.get(name, "peer")) for value, name in found]
            panels.append(svg.Panel(f"{int(count):,} streams, peak memory of the process", shown))
    return svg.bars("Memory for many streams at once, openai_chat", panels)


def _imports(results: Results) -> str:
    loaded = _cells(results, "import").get("import", {})
    return svg.bars("Import: CPU over bare Python", [svg.Panel("", _bars(loaded, "cpu"))])


_BOTH = ["openai_chat plain", "openai_chat on_loop"]
_DIALECTS = ["openai_chat", "openai_responses", "anthropic", "gemini"]

PLOTS: dict[str, Callable[[Results], str]] = {
    "import": _imports,
    "turn": _operation("turn", "Client CPU of one chat turn", _BOTH),
    "tool-loop": _operation("tool_loop", "Client CPU of a tool loop", _BOTH),
    "stream": _operation("stream", "Client CPU of a streamed chunk", [f"{each} plain" for each in _DIALECTS], CHUNKS),
    "history": _history,
    "streams": _streams,
    "memory": _memory,
}
