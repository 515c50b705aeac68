"""The official conformance runner against our server and our client: `python -m tests.mcp.conformance`.

It runs all that two revisions of the specification require, frozen at their release. What the runner itself does not
score, such as optional extensions, is run and shown, and decides nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.mcp.client.colours import free_port, is_open, until
from tests.mcp.node import ROOT, NotInstalledError, program

REVISIONS = ("2025-11-25", "2026-07-28")
_LINE = re.compile(r"^[✓✗] (?P<name>[\w/-]+): (?P<passed>\d+) passed, (?P<failed>\d+) failed", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    ok: bool
    """Whether everything passed that is scored."""
    scenarios: dict[str, bool]
    """Whether each passed, the scored and the others."""
    output: str


@contextmanager
def serving() -> Iterator[str]:
    """The server, in a process of its own."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.mcp.everything", str(port)], cwd=ROOT)
    try:
        until(lambda: is_open(port) or process.poll() is not None, "the server listens", 60)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


def _run(environ: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    command = [*program("conformance", environ), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


def run_server(url: str, environ: Mapping[str, str], revision: str) -> Report:
    """What the runner says about the server at this address."""
    with tempfile.TemporaryDirectory() as results:
        code, output = _run(environ, "server", "--url", url, "--requirements", revision, "-o", results)
    found = {line["name"]: line["failed"] == "0" for line in _LINE.finditer(output)}
    return Report(code == 0 and bool(found), found, output)


def client_scenarios(environ: Mapping[str, str], revision: str) -> list[str]:
    """What a revision requires of clients."""
    _, output = _run(environ, "list", "--requirements", revision)
    return re.findall(r"^  - (\S+)", output.partition("Client scenarios")[2].partition("\n\n")[0], re.MULTILINE)


def run_client(environ: Mapping[str, str], revision: str, scenarios: Sequence[str]) -> Report:
    """What the runner says about our client, one scenario after the other: it would start all of them at once."""
    command = shlex.join([sys.executable, "-m", "tests.mcp.conformance_client"])
    found: dict[str, bool] = {}
    outputs: list[str] = []
    for name in scenarios:
        with tempfile.TemporaryDirectory() as results:
            chosen = ("--scenario", name, "--spec-version", revision, "--timeout", "120000", "-o", results)
            code, output = _run(environ, "client", "--command", command, *chosen)
        found[name] = code == 0
        outputs += [] if code == 0 else [output]
    return Report(bool(found) and all(found.values()), found, "".join(outputs))


def main() -> int:
    """Run both roles and revisions and print what came of it."""
    good = True
    with serving() as url:
        for revision in REVISIONS:
            reports = {
                "server": run_server(url, os.environ, revision),
                "client": run_client(os.environ, revision, client_scenarios(os.environ, revision)),
            }
            for role, report in reports.items():
                good = good and report.ok
                lines = [f"  {'passed' if passed else 'failed'} {name}" for name, passed in report.scenarios.items()]
                verdict = "all that is required passed" if report.ok else f"FAILED\n{report.output}"
                sys.stdout.write("\n".join([f"\n{revision}, {role}:", *lines, f"{revision}, {role}: {verdict}\n"]))
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotInstalledError as error:
        sys.exit(f"The conformance runner cannot be installed: {error}")
