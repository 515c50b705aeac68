"""What holds for every test: no connection leaves this machine, no thread outlives its test, Ctrl-C is heard."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from tests.processes import hear_ctrl_c
from tests.rounds import PROFILE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

hear_ctrl_c()

# --- hypothesis ------------------------------------------------------------------------------------------------------

set_hypothesis_home_dir(ROOT / ".dev" / "cache" / "hypothesis")
# No deadlines anywhere: on a busy machine a slow example says nothing about the code.
hypothesis.settings.register_profile("development", deadline=None)
# The same examples every time, so that a change that did not touch the code under test cannot turn the check red.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile(PROFILE)

# --- no connection leaves this machine -------------------------------------------------------------------------------


class OffThisMachineError(RuntimeError):
    """A test tried to reach another machine."""


refused: list[str] = []
"""What was refused since the running test began, also where the code under test has swallowed the refusal."""


def _refuse(what: str) -> None:
    refused.append(what)
    message = (
        f"A test tried to {what}. Tests speak to this machine only: use a server on 127.0.0.1, a scripted engine or a "
        f"recorded exchange."
    )
    raise OffThisMachineError(message)


def _is_here(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in (None, "", "localhost"):
        return True
    try:
        return ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False  # a name, whose lookup alone would leave the machine


def _guard(event: str, arguments: tuple[object, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        sock, address = arguments[0], arguments[1]
        family = sock.family if isinstance(sock, socket.socket) else None
        if family == getattr(socket, "AF_UNIX", None) or address is None:  # None: a message on a connected socket
            return
        if not (isinstance(address, tuple) and _is_here(address[0])):
            _refuse(f"connect to {address!r}")
    elif event in {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"} and not _is_here(arguments[0]):
        _refuse(f"look up the address of {arguments[0]!r}")


sys.addaudithook(_guard)

# Audit hooks see Python's own sockets only. Clients in other languages and child processes get this
# second line: a proxy for everything but loopback, at a port where nobody listens.
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_OUTSIDE = "DRAGOMAN_TESTS_OUTSIDE"
"""What these variables were, for the processes that share the tests: they begin where they are changed already."""
_changed = [_name for _lower in PROXY_VARIABLES for _name in (_lower, _lower.upper())]
_before = os.environ.copy()
if _OUTSIDE in _before:
    _outside: dict[str, str] = json.loads(_before.pop(_OUTSIDE))
    _before = {_name: _value for _name, _value in _before.items() if _name not in _changed} | _outside
else:
    os.environ[_OUTSIDE] = json.dumps({_name: _before[_name] for _name in _changed if _name in _before})
for _name in PROXY_VARIABLES:
    _value = "localhost,127.0.0.1,::1" if _name == "no_proxy" else "http://127.0.0.1:9"
    os.environ[_name] = os.environ[_name.upper()] = _value


@pytest.fixture(scope="session")
def outside_environ() -> dict[str, str]:
    """The variables as they were outside the tests, for the few commands that do install packages."""
    return _before.copy()


@pytest.fixture
def refused_connections() -> Iterator[list[str]]:
    """The refusals of this test, which then do not fail it."""
    yield refused
    refused.clear()


@pytest.fixture(autouse=True)
def _stays_on_this_machine() -> Iterator[None]:
    refused.clear()
    yield
    if refused:
        attempts = "; ".join(refused)
        refused.clear()
        pytest.fail(f"the test, or code that swallowed the refusal, tried to: {attempts}", pytrace=False)


# --- quick collections -----------------------------------------------------------------------------------------------


def pytest_collection_finish() -> None:
    """Leave the tests themselves, a million objects, out of every later look for garbage."""
    gc.collect()
    gc.freeze()


# --- no thread outlives its test -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _leaves_no_threads() -> Iterator[None]:
    """Fail a test that leaves non-daemon threads: they would keep a user's process from ending."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in left:
        thread.join(timeout=30)  # one that is about to end may do so, also on a machine under load
    alive = [thread.name for thread in left if thread.is_alive()]
    if alive:
        pytest.fail(f"the test left threads running: {', '.join(alive)}. Close what started them.", pytrace=False)
