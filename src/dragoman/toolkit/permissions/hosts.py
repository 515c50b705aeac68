"""Host patterns against the addresses of a call.

Owns: which host an address means, and matching it.
Must not know: which arguments are addresses, and where redirects lead (the tool that follows them must look).

To allow, an address must be of the plainest form, so that no two programs can read it differently. To deny, every host
that somebody could read in it counts.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from typing import Final
from urllib.parse import unquote

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .match import Match

__all__ = ["HostPattern", "compile_host", "hosts_in"]

_PLAIN: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?(?:[/?#][!-\[\]-~]*)?",
    re.ASCII | re.IGNORECASE,
)
_PATTERN: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\*|(?:\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?/?",
    re.ASCII | re.IGNORECASE,
)
_AUTHORITY: Final = re.compile(r"[/\\]{2,}([^/\\?#\s]+)")
_PORTS: Final = {"http": "80", "https": "443"}


class HostPattern(Struct, frozen=True):
    """A pattern, compiled: a host, `*.host` for the hosts below it, or `*`; with a scheme or port if need be."""

    host: str
    scheme: str = ""
    port: str = ""

    def covers(self, url: str) -> bool:
        """Whether the address certainly means such a host: for rules that allow."""
        found = _PLAIN.fullmatch(url)
        if found is None:
            return False
        scheme, host = found["scheme"].lower(), found["host"].lower()
        if self.scheme and scheme != self.scheme:
            return False
        port = found["port"] or _PORTS[scheme]
        if port != (self.port or _PORTS[scheme]) and self.host != "*":
            return False
        return self._is(host)

    def touches(self, url: str) -> Match:
        """Whether somebody could read such a host in the address: for rules that deny or ask."""
        hosts = hosts_in(url)
        if any(self._is(host) or host == _canonical(self.host) for host in hosts):
            return Match.YES
        return Match.NO if _PLAIN.fullmatch(url) else Match.MAYBE

    def _is(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) >= len(self.host)
        return self.host in ("*", host)


def compile_host(pattern: str) -> HostPattern:
    """The pattern, or ConfigurationError if it is none."""
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        message = f"The host pattern {pattern!r} is not a host."
        hint = "Give a host such as 'docs.python.org', '*.example.org' for those below it, or 'localhost:8080'."
        raise ConfigurationError(message, hint=hint)
    return HostPattern(found["host"].lower(), (found["scheme"] or "").lower(), found["port"] or "")


def hosts_in(text: str) -> set[str]:
    """Every host that one program or another would read in this text."""
    found: set[str] = set()
    for spelling in {text, unquote(text), unicodedata.normalize("NFKC", unquote(text))}:
        for authority in _AUTHORITY.findall(spelling):
            for piece in {authority, *authority.split("@")}:
                host = re.sub(r":[^:\]]*$", "", piece) if not piece.startswith("[") else piece.partition("]")[0] + "]"
                found |= {_canonical(host), host.lower()}
    return found - {""}


def _canonical(host: str) -> str:
    """One spelling for all: without the last dot, in ASCII, and of an IP address the usual form."""
    name = host.lower().rstrip(".")
    if name.startswith("["):
        return _canonical_ip(name.strip("[]").partition("%")[0]) or name
    try:
        name = name.encode("idna").decode() if not name.isascii() else name
    except UnicodeError:
        return name
    try:
        # 127.1, 0x7f000001 and 2130706433 are all 127.0.0.1 to the system's resolver.
        return socket.inet_ntoa(socket.inet_aton(name)) if name[:1].isdigit() else name
    except (OSError, ValueError):
        return name


def _canonical_ip(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return ""
    return str(address.ipv4_mapped) if address.ipv4_mapped else f"[{address.compressed}]"
