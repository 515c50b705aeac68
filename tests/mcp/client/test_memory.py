"""The memory that a client takes is bounded, whatever a server sends as the response to any request.

Measured in processes of their own; the servers are in tests/mcp/flood.py. In a thorough run every body for every
request, otherwise each body for some and each request with some.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.mcp import flood
from tests.mcp.client.measured import __file__ as measured
from tests.processes import started
from tests.rounds import stride

pytestmark = pytest.mark.slow

ROOT = Path(measured).parents[3]
ALLOWED = 4 * flood.MOST + 30_000_000
PARTS = 4


def cases(requests: Iterable[str], bodies: Iterable[str], step: int) -> list[tuple[str, str]]:
    """All, or every so many; a step that is prime to the number of bodies meets each of them."""
    listed = list(bodies)
    return [(request, body) for request in requests for body in listed][:: stride(step)]


HTTP = cases(flood.HTTP_REQUESTS, flood.BODIES, 7)
STDIO = cases(flood.STDIO_REQUESTS, flood.LINES, 3)


def growth(base: str, chosen: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """How much more memory than over a harmless run each case took."""
    command = [sys.executable, "-m", "tests.mcp.client.measured", base, json.dumps([("nothing", "-"), *chosen])]
    out = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    harmless = rows[0][2]
    return {(request, body): peak - harmless for request, body, peak in rows[1:]}


def test_a_part_of_the_cases_has_every_request_and_every_body() -> None:
    assert {request for request, _ in HTTP} == set(flood.HTTP_REQUESTS)
    assert {body for _, body in HTTP} == set(flood.BODIES)
    assert {request for request, _ in STDIO} == set(flood.STDIO_REQUESTS)
    assert {body for _, body in STDIO} == set(flood.LINES)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_response_fills_the_memory(part: int) -> None:
    chosen = HTTP[part::PARTS]
    with started([sys.executable, "-S", flood.__file__, "http"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        grown = growth(f"http://127.0.0.1:{int(server.stdout.readline())}", chosen)
        server.kill()
        reached = {tuple(line.split()) for line in server.stdout}
    assert {case: grown[case] for case in chosen if grown[case] > ALLOWED} == {}
    assert set(chosen) <= reached  # each body was sent


@pytest.mark.timeout(0)
def test_no_program_fills_the_memory() -> None:
    grown = growth("stdio", STDIO)
    assert {case: grown[case] for case in STDIO if grown[case] > ALLOWED} == {}
