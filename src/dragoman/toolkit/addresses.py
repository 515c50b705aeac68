"""Which URLs may be fetched, and from which addresses (protection against server-side request forgery).

A model can be talked into requesting anything. So a host is judged by the address that the connection then goes to,
never by its name; and what is not plainly public is refused: this machine, its network, the metadata services of
clouds, and every IPv6 form of such an IPv4 address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from dragoman.errors import ConfigurationError, ToolDeniedError, ToolValidationError
from dragoman.transport import is_public, reached_address

Network: TypeAlias = IPv4Network | IPv6Network

MAX_URL: Final = 4096
_SCHEMES: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?").fullmatch
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*").fullmatch
_DOTTED: Final = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})").fullmatch


def normalize_url(url: str, base: str = "") -> str:
    """The URL in its one spelling, with a lower-case host and without a fragment; relative to `base` for a redirect.

    Raises ToolValidationError and ToolDeniedError. What parsers of URLs disagree about is refused.
    """
    if len(url) > MAX_URL:
        raise _unusable(f"it is longer than {MAX_URL} characters")
    # Before parsing: the standard library drops tabs and line breaks, and parsers disagree about backslashes.
    if re.search(r"[\0-\x20\x7f\\]", url):
        raise _unusable("it has a space, a control character or a backslash")
    try:
        parts = urlsplit(urljoin(base, quote(url, safe="!#$%&'()*+,/:;=?@[]~-._")))
        port = parts.port
    except (ValueError, UnicodeError):
        raise _unusable("it cannot be read as a URL") from None
    if parts.scheme not in _SCHEMES:
        raise _denied(f"the scheme {parts.scheme[:20]!r} is not http or https")
    if "@" in parts.netloc:
        raise _unusable("it has a user name or password")
    if port == 0:
        raise _unusable("it has the port 0")
    host = _host(parts.hostname or "", bracketed="[" in parts.netloc)
    authority = host if port in (None, _SCHEMES[parts.scheme]) else f"{host}:{port}"
    return urlunsplit((parts.scheme, authority, parts.path or "/", parts.query, ""))


def _host(text: str, *, bracketed: bool) -> str:
    if bracketed:
        try:
            if "%" not in text:  # an address with a zone, as in fe80::1%eth0, is never public
                return f"[{IPv6Address(text)}]"
        except ValueError:
            pass
        raise _unusable("its host is not an address")
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name:
        raise _unusable("it has no host")
    # 2130706433, 0x7f.1 and 0177.0.0.1 are all 127.0.0.1 to some parsers, and not to others.
    if _NUMBER(labels[-1]):
        if not _DOTTED(name):
            raise _denied("its host is a number in an unusual spelling")
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise _unusable("its host is not an address") from None
    if len(name) > 253 or not all(_NAME(label) for label in labels):
        raise _unusable("its host is not a name; write names of other alphabets in their xn-- form")
    return name


def networks(allowed: Iterable[str]) -> tuple[Network, ...]:
    """Parse the networks, or single addresses, that are allowed. Raises ConfigurationError."""
    found: list[Network] = []
    for text in allowed:
        try:
            found.append(ip_network(text))
        except ValueError:
            hint = "Write 127.0.0.1, 10.0.0.0/8 or fd00::/8."
            raise ConfigurationError(f"{text!r} is not a network.", hint=hint) from None
    return tuple(found)


def check_address(address: str, allowed: Iterable[Network], host: str) -> None:
    """Raise ToolDeniedError unless the address is on the public internet, or in a network that is allowed."""
    try:
        found = ip_address(address)
    except ValueError:
        found = None
    if found is None or (isinstance(found, IPv6Address) and found.scope_id is not None):  # no public one has a zone
        raise ToolDeniedError(f"{host!r} leads to an address that is not on the public internet.")
    plain = reached_address(found)
    if not any(each in network for network in allowed for each in (found, plain)) and not is_public(found):
        message = f"{host!r} leads to {found}, which is not on the public internet and may not be fetched from."
        raise ToolDeniedError(message, hint="Only addresses of the public internet can be used.")


def _unusable(why: str) -> ToolValidationError:
    return ToolValidationError(f"the argument url cannot be used: {why}.", hint="Give a URL such as https://host/path.")


def _denied(why: str) -> ToolDeniedError:
    return ToolDeniedError(f"the URL may not be fetched: {why}.", hint="Give a URL such as https://host/path.")
