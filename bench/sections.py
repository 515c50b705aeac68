"""What is measured: one function for each part of the page, all with the same arguments and a dictionary as result.

Owns: which operations, dialects, colours and sizes. Contenders are measured in every dialect that they speak for a turn
and a stream, and in the dialect they are at home in for the rest; the floor and ours in all of those.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import environments, stores
from bench.certificate import certificate
from bench.contenders.common import MODELS
from bench.measure import QUICK, Cells, Effort, crew, interleaved, surroundings
from bench.peers import CONTENDERS, FLOOR, OURS, REFERENCES
from bench.server import serving

__all__ = ["SECTIONS", "Given"]

COLOURS = ("plain", "on_loop")
HOMES = tuple(dict.fromkeys(row.home for row in CONTENDERS.values()))
SIZES = (10, 100, 1_000, 10_000)
AT_ONCE = (200, 1_000)
TOOLS = 200

Result = dict[str, Any]


class Given(NamedTuple):
    """What a section works with."""

    names: Sequence[str]
    effort: Effort

    @property
    def quick(self) -> bool:
        return self.effort == QUICK

    def at_home(self, dialect: str) -> list[str]:
        """The floor, ours, and the peers whose home the dialect is."""
        return [name for name in self.names if name in (FLOOR, OURS) or CONTENDERS[name].home == dialect]

    @property
    def homes(self) -> list[str]:
        """The dialects in which there is somebody to compare with; the first always."""
        wanted = {CONTENDERS[name].home for name in self.names}
        return [dialect for dialect in HOMES if dialect in wanted]


def _key(*parts: object) -> str:
    return " ".join(str(part) for part in parts)


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


@contextmanager
def _workplace(given: Given, *, tls: bool = False) -> Iterator[tuple[Any, str]]:
    if not tls:
        with serving() as port, crew(given.names) as workers:
            yield workers, f"http://127.0.0.1:{port}"
        return
    with tempfile.TemporaryDirectory() as directory:
        authority, own = certificate(Path(directory))
        file = str(authority)
        with (
            serving(own) as port,
            crew(given.names, SSL_CERT_FILE=file, REQUESTS_CA_BUNDLE=file) as workers,
        ):
            yield workers, f"https://127.0.0.1:{port}"


def _each(
    given: Given,
    operation: str,
    dialects: Sequence[str],
    *,
    prefix: str = "",
    sizes: Sequence[int | None] = (None,),
    colours: Sequence[str] = COLOURS,
    all_contenders: bool = False,
    tls: bool = False,
) -> Result:
    found: dict[str, Cells] = {}
    with _workplace(given, tls=tls) as (workers, root):
        for dialect in dialects:
            names = given.names if all_contenders else given.at_home(dialect)
            for size in sizes:
                for colour in colours:
                    key = _key(dialect, colour, *([size] if size else []))
                    _say(f"{operation} {key}")
                    command = {
                        "do": "measure",
                        "operation": operation,
                        "dialect": dialect,
                        "colour": colour,
                        "root": root + prefix,
                        "size": size,
                    }
                    found[key] = interleaved(workers, command, given.effort, names=names)
    return found


def turn(given: Given) -> Result:
    """One question, one answer."""
    return _each(given, "turn", list(MODELS), all_contenders=True)


def tool_loop(given: Given) -> Result:
    """The model calls a tool, gets its result, and answers."""
    return _each(given, "tool_loop", given.homes, prefix="/tools")


def stream(given: Given) -> Result:
    """One streamed answer of 2,000 chunks."""
    return _each(given, "stream", list(MODELS), all_contenders=True)


def history(given: Given) -> Result:
    """A turn behind so many earlier messages."""
    return _each(given, "history", given.homes, sizes=(10, 1_000) if given.quick else SIZES)


def loaded(given: Given) -> Result:
    """The same on a history that is read from JSON for each turn: nothing of it was written before."""
    ours = given._replace(names=[name for name in given.names if name in (FLOOR, OURS)])
    return _each(ours, "loaded", ["openai_chat"], sizes=(1_000,), colours=("plain",))


def dispatch(given: Given) -> Result:
    """Validate the arguments of a call, and call a function with them."""
    with _workplace(given) as (workers, root):
        command = {"do": "measure", "operation": "dispatch", "dialect": "", "colour": "plain", "root": root}
        # Without a network: any dialect will do that the contender knows.
        cells: Cells = {}
        for dialect in given.homes:
            cells |= interleaved(workers, command | {"dialect": dialect}, given.effort, names=given.at_home(dialect))
    return {"plain": cells}


def tools(given: Given) -> Result:
    """Two hundred functions as tools: made and offered for the first time, and offered again."""
    found: dict[str, Cells] = {}
    effort = given.effort._replace(budget=0.0)
    with _workplace(given) as (workers, root):
        for dialect in given.homes:
            _say(f"tools {dialect}")
            command = {"do": "tools", "dialect": dialect, "colour": "plain", "root": root, "count": TOOLS}
            found[dialect] = interleaved(workers, command, effort, names=given.at_home(dialect))
    return found


def streams(given: Given) -> Result:
    """Many streams at once on one event loop, each in small pieces; in a new process every time, for its memory."""
    found: dict[str, Cells] = {}
    # What a peer does here takes a minute or so.
    effort = Effort(rounds=1 if given.quick else 5, every=0, budget=0)
    for count in AT_ONCE:
        with _workplace(given) as (workers, root):
            for dialect in given.homes:
                _say(f"{count} streams {dialect}")
                command = {
                    "do": "streams",
                    "dialect": dialect,
                    "colour": "on_loop",
                    "root": f"{root}/paced",
                    "count": count,
                }
                names = given.at_home(dialect)
                found[_key(dialect, count)] = interleaved(workers, command, effort, names=names, fresh=True)
    return found


def tls(given: Given) -> Result:
    """The turn, the tool loop and the stream over TLS, in the dialects at home."""
    return {
        operation: _each(given, operation, given.homes, prefix=prefix, tls=True)
        for operation, prefix in (("turn", ""), ("tool_loop", "/tools"), ("stream", ""))
    }


# --- import and install ----------------------------------------------------------------------------------------------


def imports(given: Given) -> Result:
    """CPU time of importing, over that of a Python that does nothing; and with a client made."""
    codes = {row.name: (row.environment, row.imports) for row in _measured(given) if row.name != FLOOR}
    ready = {row.name: (row.environment, row.ready) for row in _measured(given) if row.ready}
    for name, code in REFERENCES.items():
        environments.make("httpx")
        codes[name] = ("httpx" if name == "httpx" else OURS, code)
    found = {"import": _children(codes, given), "ready": _children(ready, given)}
    for name, (environment, code) in codes.items():
        found["import"][name]["modules"] = _modules(environment, code)
    return found


_QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LLM_USER_PATH": str(environments.directory("llm") / "user")}
"""Else the one fetches a list of prices when it is imported, and the other looks into the user's own directory."""


def _measured(given: Given) -> list[Any]:
    return [CONTENDERS[name] for name in given.names]


def _children(codes: Mapping[str, tuple[str, str]], given: Given) -> Cells:
    samples: dict[str, list[float]] = {name: [] for name in codes}
    for number in range(3 if given.quick else 9):
        for name, (environment, code) in codes.items():
            if name in CONTENDERS and name != OURS and number > (2 if given.quick else 3):
                continue
            cost = _child(environment, code) - _child(environment, "pass")
            if number:  # the first one may have to compile
                samples[name].append(cost)
    return {name: {"cpu": statistics.median(found)} for name, found in samples.items()}


def _child(environment: str, code: str) -> float:
    process = subprocess.Popen(
        [str(environments.python(environment)), "-I", "-c", code],
        env=surroundings(**_QUIET),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"this fails in .dev/bench/{environment}: {code}")
    return usage.ru_utime + usage.ru_stime


def _modules(environment: str, code: str) -> int:
    program = f"import sys; before = len(sys.modules)\n{code}\nprint(len(sys.modules) - before)"
    done = subprocess.run(
        [str(environments.python(environment)), "-I", "-c", program],
        env=surroundings(**_QUIET),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def install(given: Given) -> Result:
    """Megabytes and distributions, with all that the contender was installed with."""
    return {"": {row.name: environments.installed(row.environment) for row in _measured(given) if row.name != FLOOR}}


# --- stores ----------------------------------------------------------------------------------------------------------


def snapshots(given: Given) -> Result:
    """Saving, loading and listing on a small and on a large store, which bench/stores.py measures."""
    many = 3_000 if given.quick else 20_000
    found: Result = {"few": stores.FEW, "many": many}
    for backend in ("sqlite", "file"):
        _say(f"snapshots in {backend}")
        with tempfile.TemporaryDirectory() as directory:
            found[backend] = stores.scale(stores.BACKENDS[backend], Path(directory), many)
    return found


SECTIONS: dict[str, Callable[[Given], Result]] = {
    "import": imports,
    "install": install,
    "turn": turn,
    "tool_loop": tool_loop,
    "stream": stream,
    "history": history,
    "loaded": loaded,
    "streams": streams,
    "dispatch": dispatch,
    "tools": tools,
    "snapshots": snapshots,
    "tls": tls,
}
