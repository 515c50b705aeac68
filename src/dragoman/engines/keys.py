"""Keys and the hosts that they belong to.

Owns: Secret, a key that does not print itself; which hosts a provider's key may go to, the check before a key is used,
the key in the provider's usual variable, the error for a missing one, and keeping keys out of texts and children.
Must not know: configuration files and keychains. Whoever finds keys there (the chat room) hands them over bound to
their hosts; here alone it is decided whether a key goes along.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn, Self

from msgspec import Struct

from dragoman.errors import ConfigurationError, MissingKeyError, ProviderError
from dragoman.providers import PROVIDERS, Provider
from dragoman.transport import host_of, is_loopback, keys_in, port_of

LOCAL_MODEL: Final = "Or use the local model, which needs no key: local:"

_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Secret:
    """A value that must not appear in logs, errors, tapes, snapshots or the environment of a child."""

    __slots__ = ("_value", "hosts")

    def __init__(self, value: str, *, hosts: Iterable[str] | None = None) -> None:
        self._value: str = value
        self.hosts: frozenset[str] | None = None if hosts is None else frozenset(hosts)
        """The hosts that it may be sent to: `name` or `name:port`. None: wherever the one who gave it says."""

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    @property
    def is_sendable(self) -> bool:
        """Whether it has only characters that a key can have."""
        return self._value.isascii() and self._value.isprintable() and self._value == self._value.strip()

    def bound_to(self, hosts: Iterable[str] | None) -> Secret:
        """The same value, for these hosts only."""
        return Secret(self._value, hosts=hosts)

    @property
    def masked(self) -> str:
        """Enough to tell two keys apart, and too little to be of use: `…` and the last four characters."""
        return f"…{self._value[-4:]}" if len(self._value) >= 20 else "…"

    def __repr__(self) -> str:
        return "Secret('…')"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        message = "a secret is not pickled; pass it on by other means"
        raise TypeError(message)

    def __getstate__(self) -> NoReturn:  # what serializers other than pickle ask for
        return self.__reduce__()


class Confidential(Struct, frozen=True, kw_only=True):
    """A value whose fields are not shown: one of them is, or may hold, a key."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []  # rich would print every field


def hosts_of(provider: Provider) -> frozenset[str] | None:
    """The provider's own hosts; None for one without an address of its own, which is where the user says."""
    if not provider.base_url:
        return None
    host = host_of(provider.base_url)
    return _THIS_MACHINE if is_loopback(host) else frozenset({host})


def may_go(key: Secret, url: str) -> bool:
    """Whether the key may be sent to this address."""
    if key.hosts is None:
        return True
    host, port = host_of(url), port_of(url)
    if not url.startswith("https:") and not is_loopback(host):
        return False  # where others can listen, a key goes only if whoever gave it says so
    wanted = {_folded(name) for name in key.hosts}
    return bool(host) and (host in wanted or f"{host}:{port}" in wanted or f"[{host}]:{port}" in wanted)


def _folded(name: str) -> str:
    lower = name.strip().lower()
    return lower.strip("[]") if lower.endswith("]") else lower


def key_of(
    provider: Provider, given: str | Secret | None, base_url: str, *, environ: Mapping[str, str] | None = None
) -> Secret | None:
    """The key for a provider at an address: the given one, or that of the usual variable; None if none is needed."""
    if key := given_key(given):
        if not may_go(key, base_url):
            raise _belongs_elsewhere(provider.name, key, base_url)
        return key
    found = usual_key(provider, environ)
    if found is not None and may_go(found[0], base_url):
        return found[0]
    if not provider.needs_key:
        return None
    if found is not None:
        raise _belongs_elsewhere(provider.name, found[0], base_url, f"The one in {found[1]}")
    raise missing_key(provider, ("the argument key", *map(_variable, provider.key_variables)))


def given_key(given: str | Secret | None) -> Secret | None:
    """A key from an argument. Given as a text it goes wherever the caller says."""
    if isinstance(given, Secret):
        return given or None
    return Secret(given) if given else None


def usual_key(provider: Provider, environ: Mapping[str, str] | None = None) -> tuple[Secret, str] | None:
    """The key in one of the provider's usual variables, bound to the provider's hosts, and the variable's name."""
    environment: Mapping[str, str] = os.environ if environ is None else environ
    for variable in provider.key_variables:
        if value := environment.get(variable):
            return Secret(value, hosts=hosts_of(provider)), variable
    return None


def _variable(name: str) -> str:
    return f"the environment variable {name}"


def missing_key(provider: Provider, places: Sequence[str]) -> MissingKeyError:
    """There is no key: where it was looked for, and the shortest way to give one."""
    fix = f"Set {provider.key_variables[0]}, or give the key as an argument." if provider.key_variables else ""
    looked = f"Looked at {', '.join(places[:-1])} and {places[-1]}." if len(places) > 1 else f"Looked at {places[0]}."
    return MissingKeyError(
        f"There is no key for {provider.name}.",
        hint=" ".join(part for part in (fix, looked, LOCAL_MODEL) if part),
        provider=provider.name,
        places=tuple(places),
    )


def _belongs_elsewhere(
    provider: str, key: Secret, base_url: str, which: str = "The one that was found"
) -> ConfigurationError:
    host = host_of(base_url)
    own = " or ".join(sorted(key.hosts or ()))
    return MissingKeyError(
        f"There is no key for {provider} at {host}. {which} belongs to {own} and is not sent anywhere else.",
        hint=(
            f"Give the key together with the base URL as arguments, or allow the host in your own configuration file: "
            f'[keys.{provider}] hosts = ["{host}"].'
        ),
        provider=provider,
    )


# --- keeping keys out of what others see ------------------------------------------------------------------------------

_SHOWN: Final = "[key]"


def without_keys(error: ProviderError, headers: Mapping[str, str]) -> None:
    """Take the keys of a request's headers out of an error's texts: some servers repeat the key that they refuse."""
    for key in keys_in(headers):
        if len(key) < 4:  # it would be found everywhere, and is no key
            continue
        message = _without(error.message, key)
        if message != error.message:
            error.message, error.args = message, (message,)
        error.hint = _without(error.hint, key)
        error.code = error.code and _without(error.code, key)
        error.request_id = error.request_id and _without(error.request_id, key)


def _without(text: str, key: str) -> str:
    from urllib.parse import quote

    for form in {key, quote(key, safe="")}:
        text = text.replace(form, _SHOWN)
    # Long texts of a provider are cut before they get here, perhaps in the middle of the key.
    for size in range(len(key) - 1, 7, -1):
        if (start := text.rfind(key[:size])) >= 0 and len(text) - start - size <= 1:
            return text[:start] + _SHOWN + text[start + size :]
    return text


_COMMON: Final = frozenset(
    [
        *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        *("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    ]
)
PYTHON: Final = ("DYLD_", "LD_", "PYTHON", "VIRTUAL_ENV")
"""How the names of variables begin that Python and the libraries of its modules read."""


def child_environment(environ: Mapping[str, str], *, own: tuple[str, ...]) -> dict[str, str]:
    """What a child gets of an environment: what every program needs, and what is its own, but none of the usual keys.

    `own` is how the names of those variables begin that are the child's own.
    """
    keys = {variable for provider in PROVIDERS.values() for variable in provider.key_variables}
    return {
        name: value for name, value in environ.items() if name in _COMMON or (name.startswith(own) and name not in keys)
    }
