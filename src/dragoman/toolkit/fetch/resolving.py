"""From a host name to its addresses, within a time limit.

Owns: the lookup.
Must not know: which addresses are allowed.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from dragoman.errors import ToolExecutionError, ToolTimeoutError

__all__ = ["Resolve", "addresses_of", "system_addresses"]

Resolve = Callable[[str, int], list[str]]
"""Gives the addresses of a host name (and port), the best first. OSError if there are none."""

_POLL_SECONDS: Final = 0.1


def system_addresses(host: str, port: int) -> list[str]:
    """What the system's own resolver says."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def addresses_of(resolve: Resolve, host: str, port: int, *, deadline: float, check: Callable[[], None]) -> list[str]:
    """The addresses of a name. The system's lookup cannot be ended, so it is left behind when the time is over."""
    found: list[list[str]] = []
    wrong: list[BaseException] = []

    def look_up() -> None:
        try:
            found.append(resolve(host, port))
        except BaseException as error:  # noqa: BLE001 -- told to whoever waits
            wrong.append(error)

    thread = threading.Thread(target=look_up, name="dragoman-lookup", daemon=True)
    thread.start()
    while thread.is_alive():
        check()
        left = deadline - time.monotonic()
        if left <= 0:
            raise ToolTimeoutError(f"the host name {host!r} could not be looked up in time.", hint="")
        thread.join(min(left, _POLL_SECONDS))
    if wrong and not isinstance(wrong[0], OSError | UnicodeError):
        raise wrong[0]
    if not found or not found[0]:
        raise ToolExecutionError(f"the host name {host!r} could not be found.", hint="Check its spelling.")
    return found[0]
