"""Places: path patterns against the paths of a call, and host patterns against its addresses.

A path is resolved against the workspace, `..` and symbolic links included. A pattern without `*`, `?` or `[` means a
file or everything below a directory; `**` stands for any number of directories. To allow, the place where a path really
ends must match. To deny, it is enough that the path as it is written, or the place where it ends, or a directory above
either, matches.

To allow, an address must be of the plainest form, so that no two programs can read it differently. To deny, every host
that somebody could read in it counts. Where redirects lead is for the tool that follows them to check.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import unicodedata
from typing import Final, TypeAlias
from urllib.parse import unquote

from msgspec import Struct

from dragoman.errors import ConfigurationError
from dragoman.toolkit.walk import match_parts

from .rules import Match

Parts: TypeAlias = tuple[str, ...]

_GLOB: Final = re.compile(r"[*?\[]")
_LONGEST: Final = 4_096
_ELSEWHERE: Final = re.compile(r"[A-Za-z][\w+.-]*:[/\\]|\\\\")
"""An address, a drive or a share: not a path as it is meant here."""


class Surroundings(Struct, frozen=True):
    """Where relative paths begin."""

    workspace: str
    """As it was given, made absolute."""
    real: str
    """The same with links resolved, once: nobody can move the workspace by changing a link later."""
    home: str

    @staticmethod
    def of(workspace: str | os.PathLike[str], home: str | os.PathLike[str] | None = None) -> Surroundings:
        given: str = os.path.abspath(workspace)  # noqa: PTH100 -- resolve() would lose this spelling
        return Surroundings(given, os.path.realpath(given), os.fspath(home or os.path.expanduser("~")))  # noqa: PTH111 -- the text is kept as text


class Place(Struct, frozen=True):
    """What a path means."""

    real: tuple[Parts, ...]
    """Where it ends, by every way of reading it."""
    touched: frozenset[Parts]
    """The same and the path as it is written, in one spelling for all that some file system takes for the same."""
    is_directory: bool = False


class Places:
    """What the paths of one call mean. Each is looked up once, however many rules ask."""

    def __init__(self, around: Surroundings) -> None:
        self.around: Surroundings = around
        self._known: dict[str, Place | None] = {}
        self._bases: dict[Parts, frozenset[Parts]] = {}

    def of(self, path: str) -> Place | None:
        if path not in self._known:
            is_path = path and len(path) <= _LONGEST and "\0" not in path and not _ELSEWHERE.match(path)
            try:
                self._known[path] = self._look_up(path) if is_path else None
            except (OSError, ValueError):  # a chain of links without end, half a surrogate pair
                self._known[path] = None
        return self._known[path]

    def _look_up(self, path: str) -> Place:
        around, written, real = self.around, set[str](), set[str]()
        spellings = [path]
        if path.startswith("~"):  # some programs take this for the home directory, others for a name
            spellings.append(around.home + path[1:] if path[:2] in ("~", "~/") else os.path.expanduser(path))  # noqa: PTH111
        for spelling in spellings:
            joined = os.path.join(around.real, spelling)  # noqa: PTH118 -- Path would drop a trailing part silently
            plain = os.path.normpath(joined)
            written |= {plain, os.path.normpath(os.path.join(around.workspace, spelling))}  # noqa: PTH118
            # `link/../x` ends beside the link's target, unless a program tidies the text up first.
            real |= {_real(joined), _real(plain)}
        is_directory = any(os.path.isdir(each) for each in real)  # noqa: PTH112
        ends = tuple(map(parts_of, sorted(real)))
        return Place(ends, frozenset(map(_folded, (*ends, *map(parts_of, written)))), is_directory)

    def is_inside(self, place: Place | None) -> bool:
        """Whether the path certainly ends in the workspace."""
        root = parts_of(self.around.real)
        return place is not None and all(parts[: len(root)] == root for parts in place.real)

    def spellings(self, base: Parts) -> frozenset[Parts]:
        """The fixed part of a pattern as it is written, and with links resolved as they are now."""
        if base not in self._bases:
            resolved = parts_of(os.path.realpath("/" + "/".join(base)))
            self._bases[base] = frozenset({_folded(base), _folded(resolved)})
        return self._bases[base]


def _real(path: str) -> str:
    """Where a path ends, links resolved; its last parts need not exist."""
    try:
        return os.path.realpath(path, strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.realpath(path)
    # Any other error means that it cannot be told: without `strict`, Python would stop looking there and not say so.


class PathPattern(Struct, frozen=True):
    """A pattern, compiled: a fixed part, and what follows it with `*`, `?`, `[…]` and `**`."""

    base: Parts
    """As it is written, made absolute."""
    allowed_base: Parts
    """The same, resolved when the rules were made, for rules that allow."""
    rest: Parts
    """Empty: the base itself and everything below it."""

    def covers(self, place: Place | None) -> bool:
        """Whether the path certainly ends at a place that this means: for rules that allow."""
        return place is not None and bool(place.real) and all(map(self._is_at, place.real))

    def _is_at(self, parts: Parts) -> bool:
        depth = len(self.allowed_base)
        if parts[:depth] != self.allowed_base:
            return False
        return not self.rest or len(self.rest) in match_parts(self.rest, parts[depth:])[-1]

    def touches(self, place: Place | None, places: Places) -> Match:
        """Whether the path may lead to, or through, what this means: for rules that deny or ask."""
        if place is None:
            return Match.MAYBE
        found = Match.NO
        for base in places.spellings(self.base):
            for parts in place.touched:
                found = max(found, self._touched(base, parts, is_directory=place.is_directory))
        return found

    def _touched(self, base: Parts, parts: Parts, *, is_directory: bool) -> Match:
        above = parts == base[: len(parts)] and len(parts) < len(base)
        if above or parts[: len(base)] != base:
            return Match.MAYBE if above and is_directory else Match.NO
        rest = _folded(self.rest)
        reached = match_parts(rest, parts[len(base) :])
        if any(len(rest) in each for each in reached):  # the path, or a directory above it
            return Match.YES
        return Match.MAYBE if is_directory and reached[-1] else Match.NO


def compile_path(pattern: str, around: Surroundings) -> PathPattern:
    if not pattern.strip() or "\0" in pattern:
        message = f"The path pattern {pattern!r} means nothing."
        raise ConfigurationError(
            message, hint="Give a path such as 'src' or '~/notes', or a pattern such as '**/*.md'."
        )
    start, text = around.workspace, pattern
    if pattern == "~" or pattern.startswith("~/"):
        start, text = around.home, pattern[2:]
    fixed, rest = _divided(os.path.normpath(text) if text else "")
    # Joined only now: a directory may have brackets in its name and is no pattern for that.
    base = parts_of(os.path.normpath(os.path.join(start, fixed)))  # noqa: PTH118
    inside = parts_of(around.workspace)
    if base[: len(inside)] == inside:
        # A link inside the workspace is not followed here: whoever can make one must not choose what is allowed.
        allowed = (*parts_of(around.real), *base[len(inside) :])
    else:
        allowed = parts_of(os.path.realpath("/" + "/".join(base)))
    return PathPattern(base, allowed, rest)


def _divided(pattern: str) -> tuple[str, Parts]:
    """The fixed part of a pattern, and the parts from the first one with a `*`, `?` or `[`."""
    parts = pattern.split("/")
    count = next((index for index, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    fixed = "/".join(parts[:count])
    return fixed or ("/" if pattern.startswith("/") else ""), tuple(part for part in parts[count:] if part)


def parts_of(path: str) -> Parts:
    return tuple(part for part in path.replace(os.sep, "/").split("/") if part not in ("", "."))


def _folded(parts: Parts) -> Parts:
    # Some file systems take .ENV for .env, and one way of writing é for the other.
    return tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)


# --- hosts -----------------------------------------------------------------------------------------------------------

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
    try:
        if name.startswith("["):
            address = ipaddress.IPv6Address(name.strip("[]").partition("%")[0])
            return str(address.ipv4_mapped or f"[{address.compressed}]")
        name = name.encode("idna").decode() if not name.isascii() else name
        # 127.1, 0x7f000001 and 2130706433 are all 127.0.0.1 to the system's resolver.
        return socket.inet_ntoa(socket.inet_aton(name)) if name[:1].isdigit() else name
    except (OSError, ValueError):  # no address, or no name of the DNS
        return name
