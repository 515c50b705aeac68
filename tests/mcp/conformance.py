"""The official conformance runner against a server built on ours: `python -m tests.mcp.conformance`.

It runs what the runner's own requirements list for two revisions of the specification, and fails if a scenario fails
that is not in OUT_OF_SCOPE, or if one that is there passes: the list must not say less than the truth, nor more.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.mcp.node import ROOT, NotInstalledError, program

REVISIONS = ("2025-11-25", "2026-07-28")

_MULTI_ROUND = (
    "A tool that stops to ask and is called again with the answers is a feature of MCP alone. Our tools ask through "
    "their program's Responder, or are left pending until approved, on every door alike."
)
_TASKS = "An optional extension: calls that outlive their request. Our calls end with exactly one result."
_PROMPTS = "Prompts with arguments or media. Ours are texts with a name, such as skills; `extend` can add more."
OUT_OF_SCOPE: Mapping[str, str] = {
    "completion-complete": "Completion of arguments of prompts and templates, of which we have none; see `extend`.",
    "resources-templates-read": "Templates of resources. Ours have fixed names; `extend` can add more.",
    "resources-subscribe": "Notices that one resource has changed; replaced in 2026-07-28. Lists that change are told.",
    "resources-unsubscribe": "The same.",
    "prompts-get-with-args": _PROMPTS,
    "prompts-get-embedded-resource": _PROMPTS,
    "prompts-get-with-image": _PROMPTS,
    "input-required-result-basic-elicitation": _MULTI_ROUND,
    "input-required-result-basic-sampling": _MULTI_ROUND,
    "input-required-result-basic-list-roots": _MULTI_ROUND,
    "input-required-result-request-state": _MULTI_ROUND,
    "input-required-result-multiple-input-requests": _MULTI_ROUND,
    "input-required-result-multi-round": _MULTI_ROUND,
    "input-required-result-non-tool-request": _MULTI_ROUND,
    "input-required-result-result-type": _MULTI_ROUND,
    "input-required-result-tampered-state": _MULTI_ROUND,
    "input-required-result-capability-check": _MULTI_ROUND,
    "tasks-lifecycle": _TASKS,
    "tasks-capability-negotiation": _TASKS,
    "tasks-wire-fields": _TASKS,
    "tasks-request-state-removal": _TASKS,
    "tasks-mrtr-input": _TASKS,
    "tasks-request-headers": _TASKS,
    "tasks-dispatch-and-envelope": _TASKS,
    "tasks-required-task-error": _TASKS,
    "tasks-mrtr-composition": _TASKS,
}
"""Scenarios that fail, and why that is meant so."""

TOOLS = re.compile(
    r"tools-|server-|json-schema|http-|dns-|caching|ping|elicitation-sep|logging|resources-list|prompts-list"
)
"""Scenarios that must never be out of scope."""

_LINE = re.compile(r"^[✓✗] (?P<name>[\w-]+): (?P<passed>\d+) passed, (?P<failed>\d+) failed", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    revision: str
    passed: dict[str, int]
    """Checks that passed, by scenario."""
    failed: dict[str, int]
    output: str

    @property
    def unexpected(self) -> list[str]:
        """Failed, and should not have."""
        return [name for name, count in self.failed.items() if count and name not in OUT_OF_SCOPE]

    @property
    def stale(self) -> list[str]:
        """Out of scope, and passes."""
        return [name for name, count in self.failed.items() if not count and name in OUT_OF_SCOPE]


@contextmanager
def serving() -> Iterator[str]:
    """The server, in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tests.mcp.everything", str(port)], cwd=ROOT)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, "the server has ended"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


def run(url: str, revision: str, environ: Mapping[str, str]) -> Report:
    """What the runner says about the server at this address."""
    with tempfile.TemporaryDirectory() as results:
        command = [*program("conformance", environ), "server", "--url", url, "--requirements", revision, "-o", results]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    found = {line["name"]: (int(line["passed"]), int(line["failed"])) for line in _LINE.finditer(done.stdout)}
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return Report(
        revision,
        {name: passed for name, (passed, _) in found.items()},
        {name: failed for name, (_, failed) in found.items()},
        done.stdout,
    )


def main() -> int:
    """Run both revisions and print what came of it."""
    say = sys.stdout.write
    bad = False
    with serving() as url:
        for revision in REVISIONS:
            report = run(url, revision, os.environ)
            say(f"\n{revision}\n")
            for name, count in report.failed.items():
                mark = "out of scope" if count and name in OUT_OF_SCOPE else "FAILED" if count else "passed"
                say(f"  {mark:<13} {name} ({report.passed[name]} checks passed, {count} failed)\n")
            good = [name for name, count in report.failed.items() if not count]
            say(f"  {sum(report.passed[name] for name in good)} checks of {len(good)} scenarios passed\n")
            if report.unexpected or report.stale:
                bad = True
                say(f"  unexpected failures: {report.unexpected}; out of scope, but passing: {report.stale}\n")
    return int(bad)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotInstalledError as error:
        sys.exit(f"The conformance runner cannot be had: {error}")
