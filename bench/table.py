"""Figures as tables of text, for the terminal and (as Markdown) for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.measure import Cells, to_ours
from bench.peers import FLOOR, OURS
from bench.targets import verdicts as judged
from bench.wire import CHUNKS

__all__ = ["markdown", "of", "rows", "verdicts"]

Row = Sequence[str]

PER = {"stream": CHUNKS}
"""By how much an operation is divided."""


def micro(seconds: float) -> str:
    """With three digits, in microseconds or milliseconds."""
    value, unit = (seconds * 1e6, "µs") if seconds < 1e-3 else (seconds * 1e3, "ms")
    if value >= 1000:
        value, unit = value / 1e3, "s"
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2g} ×" if value < 10 else f"{value:,.0f} ×"


def _to_ours(cells: Cells, name: str) -> str:
    return _times(to_ours(cells, name)) if name != OURS else ""


def _ordered(cells: Cells, field: str) -> list[str]:
    return sorted(cells, key=lambda name: cells[name].get(field, float("inf")))


def _operations(section: str, cells: Cells) -> list[Row]:
    rows: list[Row] = [("", "CPU", "wall", "to the floor", "to dragoman")]
    per = PER.get(section, 1)
    for name in _ordered(cells, "cpu"):
        cell = cells[name]
        if "error" in cell:
            rows.append((name, "fails: " + cell["error"].splitlines()[0][:80], "", "", ""))
            continue
        rows.append(
            (
                name,
                micro(cell["cpu"] / per),
                micro(cell["wall"] / per) if "wall" in cell else "",
                _times(cell.get("cpu_to_floor")) if name != FLOOR else "",
                _to_ours(cells, name),
            )
        )
    return rows


def _streams(cells: Cells) -> list[Row]:
    rows: list[Row] = [("", "CPU", "to the floor", "p50", "p99", "peak memory", "of it for the streams")]
    for name in _ordered(cells, "cpu"):
        cell = cells[name]
        if "error" in cell:
            rows.append((name, "fails: " + cell["error"].splitlines()[0][:80], "", "", "", "", ""))
            continue
        grown = f"{(cell['peak'] - cell['before']) / 1e6:.0f} MB"
        ratio = _times(cell.get("cpu_to_floor")) if name != FLOOR else ""
        peak = f"{cell['peak'] / 1e6:.0f} MB"
        rows.append((name, micro(cell["cpu"]), ratio, micro(cell["p50"]), micro(cell["p99"]), peak, grown))
    return rows


def _tools(cells: Cells) -> list[Row]:
    rows: list[Row] = [("", "first use", "repeated use", "repeated, to dragoman")]
    for name in _ordered(cells, "cpu"):
        cell = cells[name]
        if "error" in cell:
            rows.append((name, "fails: " + cell["error"].splitlines()[0][:80], "", ""))
        else:
            again = _to_ours(cells, name)
            rows.append((name, micro(cell["first"]), micro(cell["cpu"]), again))
    return rows


def _imports(cells: Cells) -> list[Row]:
    rows: list[Row] = [("", "CPU over bare Python", "modules", "to dragoman")]
    for name in _ordered(cells, "cpu"):
        cell = cells[name]
        modules = f"{cell['modules']}" if "modules" in cell else ""
        rows.append((name, micro(cell["cpu"]), modules, _to_ours(cells, name)))
    return rows


def _install(cells: Cells) -> list[Row]:
    rows: list[Row] = [("", "MB", "distributions")]
    return rows + [
        (name, f"{cells[name]['megabytes']:.0f}", f"{cells[name]['distributions']:.0f}")
        for name in _ordered(cells, "megabytes")
    ]


def _snapshots(cells: dict[str, Any], backend: str) -> list[Row]:
    rows: list[Row] = [("", f"of {cells['few']:,}", f"of {cells['many']:,}", "grows by")]
    for name, (few, many) in cells[backend].items():
        rows.append((name, micro(few / 1e6), micro(many / 1e6), _times(many / few)))
    return rows


def rows(section: str, cells: dict[str, Any]) -> dict[str, list[Row]]:
    """The tables of a section, each under its key."""
    if section == "snapshots":
        return {backend: _snapshots(cells, backend) for backend in cells if backend not in ("few", "many")}
    if section == "tls":
        return {
            f"{operation} {key}": _operations(operation, found)
            for operation, keys in cells.items()
            for key, found in keys.items()
        }
    makers = {"streams": _streams, "tools": _tools, "import": _imports, "install": _install}
    maker = makers.get(section, lambda found: _operations(section, found))
    return {key: maker(found) for key, found in cells.items()}


def _text(table: Sequence[Row]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines: list[str] = []
    for row in table:
        cells = [
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(table: Sequence[Row]) -> str:
    head, *body = table
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for row in body:
        strong = row[0] == OURS
        lines.append("| " + " | ".join(f"**{cell}**" if strong and cell else cell for cell in row) + " |")
    return "\n".join(lines)


def of(section: str, cells: dict[str, Any]) -> str:
    return "\n".join(f"\n{section} {key}\n{_text(table)}" for key, table in rows(section, cells).items())


def verdict_rows(results: dict[str, Any]) -> list[Row]:
    table: list[Row] = [("target", "limit", "measured", "")]
    for verdict in judged(results):
        state = "reached" if verdict.reached else "not reached"
        table.append(
            (verdict.what, f"{verdict.limit:.3g} {verdict.unit}", f"{verdict.value:.3g} {verdict.unit}", state)
        )
    return table


def verdicts(results: dict[str, Any]) -> str:
    return "\n" + _text(verdict_rows(results))
