"""Proxies and certificate authorities, from arguments and from the usual environment variables.

Owns: which variable means what, which hosts a proxy is for, and reading PEM files.
Must not know: the HTTP libraries. They are told the outcome and look at no variable themselves, so that all transports
agree.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .addresses import host_of, is_loopback, port_of

__all__ = ["Surroundings", "authorities"]

_CA_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_CA_HINT: Final = f"Check the ca_file argument and the variables {', '.join(_CA_VARIABLES)}."


class Surroundings(Struct, frozen=True, kw_only=True):
    """The proxies and authorities that a transport uses."""

    proxies: Mapping[str, str] = {}
    """The proxy for a scheme: {"http": …, "https": …}."""
    direct: tuple[str, ...] = ()
    """Hosts that are reached without a proxy, as NO_PROXY writes them."""
    direct_loopback: bool = True
    """Whether this machine is always reached without a proxy."""
    ca_files: tuple[str, ...] = ()
    """PEM files of authorities that are trusted besides those of the system."""

    @classmethod
    def of(
        cls,
        *,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> Surroundings:
        """What the arguments say, and where they say nothing, the environment.

        A `proxy` is used for every host, the empty text means none at all, and None asks the environment. Authorities
        of `ca_file` and of the environment are trusted besides those of the system.
        """
        env: Mapping[str, str] = (os.environ if environ is None else environ) if trust_env else {}
        ca_files = [os.fspath(ca_file)] if ca_file is not None else []
        ca_files += [env[name] for name in _CA_VARIABLES if env.get(name)]
        if proxy is None:
            proxies = _proxies(env)
            direct = tuple(part.strip().lower() for part in _variable(env, "no_proxy").split(",") if part.strip())
        else:
            proxies = {"http": proxy, "https": proxy} if proxy else {}
            direct = ()
        for address in proxies.values():
            _check_proxy(address)
        return cls(
            proxies=proxies,
            direct=direct,
            direct_loopback=proxy is None,
            ca_files=tuple(dict.fromkeys(ca_files)),
        )

    def proxy_for(self, url: str) -> str | None:
        """The address of the proxy for this URL, or None."""
        proxy = self.proxies.get(url.partition(":")[0].lower())
        if proxy is None:
            return None
        host = host_of(url)
        if self.direct_loopback and is_loopback(host):
            return None
        return None if any(_matches(rule, host, port_of(url)) for rule in self.direct) else proxy


def _variable(env: Mapping[str, str], name: str) -> str:
    # The lower-case form first, as curl does. HTTP_PROXY in upper case is what a web server makes of a request's header
    # "Proxy:" for the CGI programs it starts, so there it is not to be trusted.
    upper = "" if name == "http_proxy" and "REQUEST_METHOD" in env else env.get(name.upper(), "")
    return env.get(name, "") or upper


def _proxies(env: Mapping[str, str]) -> dict[str, str]:
    everything = _variable(env, "all_proxy")
    found = {scheme: _variable(env, f"{scheme}_proxy") or everything for scheme in ("http", "https")}
    # Variables often hold just "host:port".
    return {scheme: value if "://" in value else f"http://{value}" for scheme, value in found.items() if value}


def _check_proxy(address: str) -> None:
    if address.partition("://")[0].lower() not in _PROXY_SCHEMES or not host_of(address) or address != address.strip():
        message = "The address of the proxy cannot be used."
        hint = "Write http://host:port (or https, socks5, socks5h) in HTTPS_PROXY or in the proxy argument."
        raise ConfigurationError(message, hint=hint)


def _matches(rule: str, host: str, port: int | None) -> bool:
    """Whether a part of NO_PROXY is for this host.

    It is `*`, a network, or a domain (with or without a dot before it) or an address, with an optional port.
    """
    if rule == "*":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is not None and "/" in rule:
        try:
            return address in ip_network(rule, strict=False)
        except ValueError:
            return False
    name, colon, number = rule.rpartition(":")
    if colon and number.isdecimal() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        rule = name
    rule = rule.strip("[]").removeprefix("*").removeprefix(".")
    return bool(rule) and (host == rule or (address is None and host.endswith(f".{rule}")))


def authorities(surroundings: Surroundings) -> list[bytes]:
    """The content of each PEM file."""
    found: list[bytes] = []
    for name in surroundings.ca_files:
        try:
            content = Path(name).read_bytes()
        except OSError as error:
            message = f"The file of certificate authorities {name!r} cannot be read: {error.strerror}."
            raise ConfigurationError(message, hint=_CA_HINT) from error
        if _CERTIFICATE not in content:
            message = f"The file of certificate authorities {name!r} holds no certificate in PEM form."
            raise ConfigurationError(message, hint=_CA_HINT)
        found.append(content)
    return found
