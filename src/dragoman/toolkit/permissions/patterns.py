"""Path patterns and host patterns, and matching them against the paths and URLs of a call.

A path is resolved against the workspace, `..` and symbolic links included. A pattern without `*`, `?` or `[` means a
file or everything below a directory; `**` stands for any number of directories. To allow, the real target of a path
must match. To deny, it is enough that the path as written, its target, or a directory above either matches.

To allow, a URL must have the plainest form, so that no two parsers can disagree about it. To deny, every host that some
parser could find in it counts. The tool that follows redirects must check where they lead.
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
_HOME: Final = re.compile(r"~[^/*?\[]*(?![^/])").match
_LONGEST: Final = 4_096
_ELSEWHERE: Final = re.compile(r"[A-Za-z][\w+.-]*:[/\\]|\\\\")
"""A URL, a drive or a share: not a path of this machine."""


class Root(Struct, frozen=True):
    """The directory that relative paths start from."""

    workspace: str
    """As given, made absolute."""
    real: str
    """With links resolved, once: a link that changes later does not move the workspace."""

    @staticmethod
    def of(workspace: str | os.PathLike[str]) -> Root:
        given: str = os.path.abspath(workspace)  # noqa: PTH100 -- resolve() would lose this spelling
        return Root(given, os.path.realpath(given))


class ResolvedPath(Struct, frozen=True):
    """A resolved path."""

    real: tuple[Parts, ...]
    """Its real targets, by every way to read it."""
    touched: frozenset[Parts]
    """These and the path as written, in one spelling for names that some file system takes for the same."""
    is_directory: bool = False


class PathResolver:
    """The paths of one call. Each is resolved once, for all rules."""

    def __init__(self, root: Root) -> None:
        self.root: Root = root
        self._known: dict[str, ResolvedPath | None] = {}
        self._bases: dict[Parts, frozenset[Parts]] = {}

    def resolve(self, path: str) -> ResolvedPath | None:
        if path not in self._known:
            is_path = path and len(path) <= _LONGEST and "\0" not in path and not _ELSEWHERE.match(path)
            try:
                self._known[path] = self._resolve(path) if is_path else None
            except (OSError, ValueError):  # an endless chain of links, a lone surrogate
                self._known[path] = None
        return self._known[path]

    def _resolve(self, path: str) -> ResolvedPath:
        root, written, real = self.root, set[str](), set[str]()
        spellings = [path]
        if path.startswith("~"):  # some programs take this for the home directory, others for a name
            spellings.append(os.path.expanduser(path))  # noqa: PTH111
        for spelling in spellings:
            joined = os.path.join(root.real, spelling)  # noqa: PTH118 -- Path would drop a trailing part silently
            plain = os.path.normpath(joined)
            written |= {plain, os.path.normpath(os.path.join(root.workspace, spelling))}  # noqa: PTH118
            # `link/../x` is beside the link's target, unless a program normalizes the text first.
            real |= {_real(joined), _real(plain)}
        is_directory = any(os.path.isdir(each) for each in real)  # noqa: PTH112
        ends = tuple(map(parts_of, sorted(real)))
        return ResolvedPath(ends, frozenset(map(_folded, (*ends, *map(parts_of, written)))), is_directory)

    def is_inside(self, place: ResolvedPath | None) -> bool:
        """Whether the path certainly leads into the workspace."""
        root = parts_of(self.root.real)
        return place is not None and all(parts[: len(root)] == root for parts in place.real)

    def spellings(self, base: Parts) -> frozenset[Parts]:
        """The fixed part of a pattern as written, and with links resolved as they are now."""
        if base not in self._bases:
            resolved = parts_of(os.path.realpath("/" + "/".join(base)))
            self._bases[base] = frozenset({_folded(base), _folded(resolved)})
        return self._bases[base]


def _real(path: str) -> str:
    """Resolve the links of a path; its last parts need not exist."""
    try:
        return os.path.realpath(path, strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.realpath(path)
    # Any other error means that the target is unclear; without `strict`, Python would hide it.


class PathPattern(Struct, frozen=True):
    """A compiled pattern: a fixed base, and the rest with `*`, `?`, `[…]` and `**`."""

    base: Parts
    """As written, made absolute."""
    allowed_base: Parts
    """Resolved when the rule was made, for rules that allow."""
    rest: Parts
    """Empty for the base and everything below it."""

    def covers(self, place: ResolvedPath | None) -> bool:
        """Whether the target of the path certainly matches: for rules that allow."""
        return place is not None and bool(place.real) and all(map(self._is_at, place.real))

    def _is_at(self, parts: Parts) -> bool:
        depth = len(self.allowed_base)
        if parts[:depth] != self.allowed_base:
            return False
        return not self.rest or len(self.rest) in match_parts(self.rest, parts[depth:])[-1]

    def touches(self, place: ResolvedPath | None, resolver: PathResolver) -> Match:
        """Whether the path may lead to, or through, something that matches: for rules that deny or ask."""
        if place is None:
            return Match.MAYBE
        found = Match.NO
        for base in resolver.spellings(self.base):
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


def compile_path(pattern: str, root: Root) -> PathPattern:
    if not pattern.strip() or "\0" in pattern:
        message = f"The path pattern {pattern!r} means nothing."
        raise ConfigurationError(
            message, hint="Give a path such as 'src' or '~/notes', or a pattern such as '**/*.md'."
        )
    # Apart from the rest, which may begin with `..`, and joined only at the end: the workspace, or the home directory,
    # may have brackets in its name.
    home = os.path.expanduser(found[0]) if (found := _HOME(pattern)) else ""  # noqa: PTH111
    fixed, rest = _split(os.path.normpath(pattern[found.end() :].lstrip("/") if found else pattern))
    base = parts_of(os.path.normpath(os.path.join(root.workspace, home, fixed)))  # noqa: PTH118
    inside = parts_of(root.workspace)
    if base[: len(inside)] == inside:
        # Links inside the workspace are not followed here: a model that creates one must not choose what is allowed.
        allowed = (*parts_of(root.real), *base[len(inside) :])
    else:
        allowed = parts_of(os.path.realpath("/" + "/".join(base)))
    return PathPattern(base, allowed, rest)


def _split(pattern: str) -> tuple[str, Parts]:
    """The fixed part of a pattern, and the parts from the first one with a `*`, `?` or `[`."""
    parts = pattern.split("/")
    count = next((index for index, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    fixed = "/".join(parts[:count])
    return fixed or ("/" if pattern.startswith("/") else ""), tuple(part for part in parts[count:] if part)


def parts_of(path: str) -> Parts:
    return tuple(part for part in path.replace(os.sep, "/").split("/") if part not in ("", "."))


def _folded(parts: Parts) -> Parts:
    # Some file systems take .ENV for .env, and one encoding of é for the other.
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
    """A compiled pattern: a host, `*.host` for its subdomains, or `*`; optionally with a scheme or port."""

    host: str
    scheme: str = ""
    port: str = ""

    def covers(self, url: str) -> bool:
        """Whether the URL certainly has such a host: for rules that allow."""
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
        """Whether some parser could find such a host in the URL: for rules that deny or ask."""
        hosts = hosts_in(url)
        if any(self._is(host) or host == _canonical(self.host) for host in hosts):
            return Match.YES
        return Match.NO if _PLAIN.fullmatch(url) else Match.MAYBE

    def _is(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) >= len(self.host)
        return self.host in ("*", host)


def compile_host(pattern: str) -> HostPattern:
    """Compile a pattern. Raises ConfigurationError."""
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        message = f"The host pattern {pattern!r} is not a host."
        hint = "Give a host such as 'docs.python.org', '*.example.org' for those below it, or 'localhost:8080'."
        raise ConfigurationError(message, hint=hint)
    return HostPattern(found["host"].lower(), (found["scheme"] or "").lower(), found["port"] or "")


def hosts_in(text: str) -> set[str]:
    """Every host that some parser could find in a text."""
    found: set[str] = set()
    for spelling in {text, unquote(text), unicodedata.normalize("NFKC", unquote(text))}:
        for authority in _AUTHORITY.findall(spelling):
            for piece in {authority, *authority.split("@")}:
                host = re.sub(r":[^:\]]*$", "", piece) if not piece.startswith("[") else piece.partition("]")[0] + "]"
                found |= {_canonical(host), host.lower()}
    return found - {""}


def _canonical(host: str) -> str:
    """One spelling of a host: without a trailing dot, in ASCII, IP addresses in their usual form."""
    name = host.lower().rstrip(".")
    try:
        if name.startswith("["):
            address = ipaddress.IPv6Address(name.strip("[]").partition("%")[0])
            return str(address.ipv4_mapped or f"[{address.compressed}]")
        name = name.encode("idna").decode() if not name.isascii() else name
        # 127.1, 0x7f000001 and 2130706433 are all 127.0.0.1 to the system's resolver.
        return socket.inet_ntoa(socket.inet_aton(name)) if name[:1].isdigit() else name
    except (OSError, ValueError):  # neither an address nor a DNS name
        return name
