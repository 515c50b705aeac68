"""The guards of conftest.py do guard."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

# Addresses that are reserved for documentation, and a name that cannot exist: should a guard fail, nobody is disturbed.
ELSEWHERE = "192.0.2.1"
NOWHERE = "example.invalid"


@pytest.mark.parametrize("host", [ELSEWHERE, "2001:db8::1"])
def test_nothing_can_be_sent_elsewhere(host: str, refused_connections: list[str]) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock, pytest.raises(RuntimeError, match="this machine only"):
        sock.connect((host, 80))
    assert refused_connections == [f"connect to {(host, 80)!r}"]
    with socket.socket(family, socket.SOCK_DGRAM) as sock, pytest.raises(RuntimeError, match="only"):
        sock.sendto(b"", (host, 80))
    with pytest.raises(RuntimeError, match="this machine only"):
        asyncio.run(asyncio.open_connection(host, 80))
    assert len(refused_connections) == 3


def test_a_name_cannot_be_looked_up(refused_connections: list[str]) -> None:
    with pytest.raises(RuntimeError, match=r"look up the address of 'example\.invalid'"):
        socket.create_connection((NOWHERE, 80))
    with pytest.raises(RuntimeError, match="look up"):
        socket.gethostbyname(NOWHERE)
    assert len(refused_connections) == 2


def test_a_child_process_cannot_connect_elsewhere() -> None:
    code = f"import urllib.request; urllib.request.urlopen('http://{NOWHERE}/')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    # Refused by the closed port that stands in for a proxy: the name itself was never looked up.
    assert "Connection refused" in done.stderr


def test_loopback_and_unix_sockets_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("localhost", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(b"x")
    monkeypatch.chdir(tmp_path)  # the path of a unix socket must be short
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("s")
        server.listen()
        client.connect("s")


def test_a_swallowed_refusal_and_a_leaked_thread_fail_their_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(CONFTEST.parent.parent))  # it imports from here
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile(
        """
        import contextlib, socket, threading

        release = threading.Event()

        def test_swallows():
            with contextlib.suppress(Exception):
                socket.create_connection(("192.0.2.1", 80))

        def test_leaks():
            threading.Thread(target=release.wait, name="forgotten").start()

        def test_daemons_may_stay():
            threading.Thread(target=release.wait, daemon=True).start()

        def test_release():
            release.set()
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines_random(["*swallowed the refusal*192.0.2.1*", "*left threads running: forgotten.*"])


def test_children_have_the_closed_proxy_and_installers_do_not(outside_environ: dict[str, str]) -> None:
    assert os.environ["HTTPS_PROXY"] == "http://127.0.0.1:9"
    assert outside_environ.get("HTTPS_PROXY") != "http://127.0.0.1:9"
