"""The benchmark: dragoman beside its peers and a hand-written floor.

    python bench/run.py                            everything; then bench/results.md and its plots are written anew
    python bench/run.py --quick                    a first look, in a few minutes
    python bench/run.py --only turn --only stream  some parts
    python bench/run.py --peers openai,litellm     some peers
    python bench/run.py --page                     only the page, from the figures of the last full run

Run it in the development environment (.dev/env/bin/python) on a machine that is otherwise idle. Each contender gets an
environment of its own below .dev/bench, made from its pinned list in requirements/bench; a peer that cannot be
installed is named and left out. A full run writes bench/results.json, and one with --only and --write replaces those
parts of it; any other run writes .dev/bench/results.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import environments, page, table
from bench.measure import FULL, QUICK, Processors, here, load
from bench.peers import CONTENDERS, FLOOR, OURS, PEERS
from bench.sections import SECTIONS, Given
from devtools.places import DEV, ROOT

RESULTS = ROOT / "bench" / "results.json"
DISTURBED = 0.05
"""A part is measured again if the host gave more than this share of the processors' time to others."""
ATTEMPTS = 3


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="few rounds, fewer sizes")
    made.add_argument("--only", action="append", choices=SECTIONS, metavar="PART", help=f"of: {', '.join(SECTIONS)}")
    made.add_argument("--peers", help=f"separated by commas, of: {', '.join(PEERS)}; or: none")
    made.add_argument("--write", action="store_true", help="take the figures of this run over into bench/results.json")
    made.add_argument("--page", action="store_true", help="measure nothing, write the page anew")
    return made


def available(wanted: list[str]) -> tuple[list[str], dict[str, str]]:
    """Those whose environment can be made, and why the others' cannot."""
    found, missing = list[str](), dict[str, str]()
    for name in wanted:
        try:
            environments.make(CONTENDERS[name].environment)
            found.append(name)
        except environments.NotInstalledError as error:
            missing[name] = str(error)
            print(f"{name} is left out, because it cannot be installed:\n{error}", file=sys.stderr)
    return found, missing


def measure(section: str, given: Given) -> dict[str, Any]:
    print(f"· {section}: {SECTIONS[section].__doc__}", file=sys.stderr, flush=True)
    before, processors = load(), Processors()
    cells = SECTIONS[section](given)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    print(table.of(section, cells), flush=True)
    return {"cells": cells, "at": now, "commit": _commit(), "load": [before, load()], "stolen": processors.stolen}


def measure_undisturbed(section: str, given: Given) -> dict[str, Any]:
    """Measure a part, a few times if need be; the attempt that the host disturbed least counts, whatever it shows."""
    best = measure(section, given)
    for _ in range(ATTEMPTS - 1):
        if (best["stolen"] or 0.0) <= DISTURBED:
            break
        print(f"  the host was busy with others ({best['stolen']:.0%}): once more", file=sys.stderr, flush=True)
        best = min(best, measure(section, given), key=lambda attempt: attempt["stolen"])
    return best


def about(names: list[str], missing: dict[str, str]) -> dict[str, Any]:
    rows = [CONTENDERS[name] for name in names if name not in (FLOOR, OURS)]
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "versions": {row.name: environments.version(row.environment, row.distribution) for row in rows},
        "missing": missing,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    options = parser().parse_args()
    if options.page:
        page.write(json.loads(RESULTS.read_text(encoding="utf-8")))
        return 0
    asked = list(PEERS) if options.peers is None else [name for name in options.peers.split(",") if name != "none"]
    unknown = [name for name in asked if name not in PEERS]
    if unknown:
        print(f"There is no peer named {unknown[0]!r}; there are: {', '.join(PEERS)}.", file=sys.stderr)
        return 2
    names, missing = available([FLOOR, OURS, *asked])
    sections = [name for name in SECTIONS if not options.only or name in options.only]
    whole = not options.only and options.peers is None and not options.quick
    kept = RESULTS if whole or options.write else DEV / "bench" / "results.json"
    old = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() and not whole else {"sections": {}}
    results = {"about": about(names, missing), "sections": old["sections"]}
    given = Given(names, QUICK if options.quick else FULL)
    for section in sections:  # each part is kept at once, so that what interrupts the next one takes nothing away
        results["sections"][section] = measure_undisturbed(section, given) | {"quick": options.quick}
        kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten: {here(kept)}")
    if kept == RESULTS:
        page.write(results)
    print(table.verdicts(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
