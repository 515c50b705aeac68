"""The parts of an address that may be shown or decided on.

Owns: taking the host name and the origin out of a URL; which hosts are this machine.
Must not know: what a URL is used for.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["host_of", "is_loopback", "origin_of", "port_of"]

# A backslash ends the authority too: browsers and the HTTP libraries read it as a slash.
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\\]*)").match
_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]*").match
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]*))?").fullmatch


def _parts(url: str) -> tuple[str, str]:
    """The host and the port, as written; empty where there is none. User names and passwords are left out."""
    found = _AUTHORITY(url)
    if found is None:
        return "", ""
    host = _HOST(found[1].rpartition("@")[2])
    return ("", "") if host is None else (host[1].strip("[]").lower(), host[2] or "")


def host_of(url: str) -> str:
    """The host name, in lower case and without brackets; empty if there is none."""
    return _parts(url)[0]


def port_of(url: str) -> int | None:
    """The port: the one given, or the usual one of the scheme."""
    port = _parts(url)[1]
    if port:
        return int(port)
    return {"http": 80, "https": 443}.get(url.partition(":")[0].lower())


def origin_of(url: str) -> str:
    """Scheme and authority as they are written, for use as a key only: it may hold a password."""
    found = _ORIGIN(url)
    return url if found is None else found[0]


def is_loopback(host: str) -> bool:
    """Whether the host is this machine: `localhost`, 127.0.0.0/8 or ::1.

    Other names below `.localhost` are not: not every resolver keeps them on this machine.
    """
    name = host.strip("[]").lower().removesuffix(".")
    if name == "localhost":
        return True
    from ipaddress import ip_address

    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
