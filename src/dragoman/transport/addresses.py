"""URLs: host, port and origin, and the rules for base URLs.

No message contains the URL: people paste keys into the wrong field. Where URL parsers disagree (backslashes, percent
signs and non-ASCII letters in a host), a base URL is rejected, so that the host that was checked is the one that is
called.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dragoman.errors import ConfigurationError, InvalidBaseURLError

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

# A backslash ends the authority too: browsers and HTTP libraries treat it as a slash.
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\\]*)").match
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]*))?").fullmatch


def _parts(url: str) -> tuple[str, str]:
    """The host and port as written, without user name and password; empty if missing."""
    found = _AUTHORITY(url)
    if found is None:
        return "", ""
    host = _HOST(found[1].rpartition("@")[2])
    return ("", "") if host is None else (host[1].strip("[]").lower(), host[2] or "")


def host_of(url: str) -> str:
    """The host name, in lower case and without brackets; empty if there is none."""
    return _parts(url)[0]


def port_of(url: str) -> int | None:
    """The port, or the default port of the scheme."""
    port = _parts(url)[1]
    if port:
        return int(port)
    return {"http": 80, "https": 443}.get(url.partition(":")[0].lower())


def origin_of(url: str) -> str:
    """Scheme and authority as written. Not for display: it may contain a password."""
    found = _AUTHORITY(url)
    return url if found is None else found[0]


def is_loopback(host: str) -> bool:
    """Whether the host is this machine: `localhost`, 127.0.0.0/8 or ::1.

    Names below `.localhost` do not count: not every resolver maps them to this machine. Nor do IPv4 addresses that are
    written as IPv6 (`::ffff:127.0.0.1`), which only newer Pythons recognise: nobody writes them who means this machine.
    """
    name = host.strip("[]").lower().removesuffix(".")
    if name == "localhost":
        return True
    address = _address_of(name)
    return address is not None and address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    if ":" not in host and not host[-1:].isdigit():  # a name, as nearly all are
        return None
    from ipaddress import ip_address  # slow to import

    try:
        return ip_address(host)
    except ValueError:
        return None


# --- base URLs -------------------------------------------------------------------------------------------------------

MAX_BASE_URL_BYTES: Final = 2048

Reason: TypeAlias = Literal[
    "too_long", "control_character", "unparsable", "userinfo", "scheme", "no_host", "placeholder"
]
"""Why a base URL was rejected; the rules are checked in this order."""

_PLACEHOLDERS: Final = ("example.com", "example.net", "example.org", "localhost.localdomain")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]").search
# Visible ASCII without backslashes; the groups are scheme, user, host and port.
_BASE_URL: Final = (
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):|(?![A-Za-z][A-Za-z0-9+.-]*:))"
    r"(?:(?!//)|//(?:([!-.0->@-\[\]-~]*)@)?(\[[0-9A-Fa-f:.]+\]|(?!\.|[^/?#]*\.\.)[A-Za-z0-9_.-]*)(?::([0-9]{0,5}))?(?=[/?#]|$))"
    r"[!-\[\]-~]*"
)
_PATH: Final = re.compile(r"[!-~]*").fullmatch
_DOTS: Final = r"(?i)(?:^|/)(?:\.|%2e){1,2}(?:/|$)"

_TEXTS: Final[dict[Reason, tuple[str, str | None]]] = {
    "too_long": (f"The base URL is longer than {MAX_BASE_URL_BYTES} bytes.", None),
    "control_character": (
        "The base URL contains a control character, such as a line break.",
        "Copy it again; one that was read from a file needs .strip().",
    ),
    "unparsable": ("The base URL is not a valid URL.", None),
    "userinfo": (
        "The base URL contains a user name or password.",
        "Remove the part before the @; keys are passed separately.",
    ),
    "scheme": (
        "The base URL must start with https://; http:// is only for this machine (localhost, 127.0.0.1, [::1]).",
        "Write https:// before the host name; code may pass allow_insecure_base_url=True.",
    ),
    "no_host": ("The base URL has no host name.", None),
    "placeholder": (
        "The base URL is a placeholder from a documentation page.",
        "Replace it with the real host name of your provider.",
    ),
}


def _refused(reason: Reason) -> InvalidBaseURLError:
    message, hint = _TEXTS[reason]
    return InvalidBaseURLError(message, reason=reason, hint=hint)


def validate_base_url(url: str, *, allow_insecure: bool = False) -> None:
    """Raise InvalidBaseURLError unless the URL may be used as the base URL of a provider.

    An empty text is valid: it means the provider's default. `allow_insecure` allows http to any host; it must come from
    code, not from a configuration file.
    """
    if not url:
        return
    if len(url.encode("utf-8", "surrogatepass")) > MAX_BASE_URL_BYTES:
        raise _refused("too_long")
    if _CONTROL(url):
        raise _refused("control_character")
    parts = re.fullmatch(_BASE_URL, url)
    if parts is None or (parts[4] and not 0 < int(parts[4]) < 65536):
        raise _refused("unparsable")
    if (parts[3] or "").startswith("[") and _address_of(parts[3].strip("[]")) is None:
        raise _refused("unparsable")
    if parts[2] is not None:
        raise _refused("userinfo")
    scheme, host = (parts[1] or "").lower(), (parts[3] or "").strip("[]").lower().rstrip(".")
    if not (scheme == "https" or (scheme == "http" and (allow_insecure or is_loopback(host)))):
        raise _refused("scheme")
    if not host:
        raise _refused("no_host")
    if any(host == name or host.endswith(f".{name}") for name in _PLACEHOLDERS):
        raise _refused("placeholder")


@lru_cache(maxsize=512)
def join(base: str, path: str) -> str:
    """Append a path to a base URL. The query of the base URL follows the query of the path."""
    if not _PATH(path) or "#" in path or "\\" in path or re.search(_DOTS, path.partition("?")[0]):
        message = "The path of a request contains characters that would change its destination."
        raise ConfigurationError(message, hint="Check the name of the model: it is part of the path.")
    base, _, _ = base.partition("#")
    base, _, base_query = base.partition("?")
    path, _, query = path.partition("?")
    whole = base.rstrip("/") + "/" + path.lstrip("/") if path else base.rstrip("/")
    queries = "&".join(each for each in (query, base_query) if each)
    return f"{whole}?{queries}" if queries else whole
