"""Which key may be sent to which host, and keeping keys out of error texts and child processes.

Must not know: configuration files and keychains. The chat room finds keys there and passes them on, bound to their
hosts; whether a key is sent is decided here alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from dragoman._programs import search_path
from dragoman.errors import ConfigurationError, MissingKeyError, ProviderError
from dragoman.providers import PROVIDERS, Provider
from dragoman.transport import host_of, is_loopback, keys_in, port_of

from .credential import AnyKey, Credential, Secret

LOCAL_MODEL: Final = "Or use the local model, which needs no key: local:"

_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_REGION: Final = "[a-z]{2,}(-[a-z]+)+-?[0-9]+"
"""What REGION means in a host name: nothing that a customer of a cloud can choose matches it."""
_CLOUD_HOSTS: Final = {
    "amazon": (
        "bedrock-runtime.REGION.amazonaws.com",
        "bedrock-runtime-fips.REGION.amazonaws.com",
        "bedrock-runtime.REGION.amazonaws.com.cn",
        "bedrock-mantle.REGION.api.aws",
    ),
    "azure": (
        *(f"*.openai.azure.{end}" for end in ("com", "us", "cn")),
        *(f"*.cognitiveservices.azure.{end}" for end in ("com", "us", "cn")),
        "*.services.ai.azure.com",
    ),
    "google": (
        "aiplatform.googleapis.com",
        "REGION-aiplatform.googleapis.com",
        "aiplatform.us.rep.googleapis.com",
        "aiplatform.eu.rep.googleapis.com",
    ),
}
"""Where each cloud has its models."""
_CLOUD_VARIABLES: Final = {"amazon": "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "azure": "AZURE_OPENAI_ENDPOINT"}
"""The variables in which the user names another host."""


def hosts_of(provider: Provider, environ: Mapping[str, str] | None = None) -> frozenset[str] | None:
    """The provider's own hosts; None for a provider whose address only the user knows."""
    if provider.cloud is not None:
        variable = _CLOUD_VARIABLES.get(provider.cloud, "")
        named = host_of((os.environ if environ is None else environ).get(variable, ""))
        return frozenset([*_CLOUD_HOSTS[provider.cloud], *([named] if named else [])])
    if not provider.base_url:
        return None
    host = host_of(provider.base_url)
    return _THIS_MACHINE if is_loopback(host) else frozenset({host})


def may_go(key: Secret | Credential, url: str) -> bool:
    """Whether the key may be sent to this address."""
    if key.hosts is None:
        return True
    host, port = host_of(url), port_of(url)
    if not url.startswith("https:") and not is_loopback(host):
        return False  # without TLS, a key is sent only if it is bound to no host
    if not host:
        return False
    if any("REGION" in name and re.fullmatch(re.escape(name).replace("REGION", _REGION), host) for name in key.hosts):
        return True
    allowed = {_normalized(name) for name in key.hosts}
    is_subdomain = any(name.startswith("*.") and host.endswith(name[1:]) for name in allowed)
    return is_subdomain or not allowed.isdisjoint((host, f"{host}:{port}", f"[{host}]:{port}"))


def _normalized(name: str) -> str:
    lower = name.strip().lower()
    return lower.strip("[]") if lower.endswith("]") else lower


def key_of(
    provider: Provider,
    given: AnyKey | Mapping[str, AnyKey] | None,
    base_url: str,
    *,
    environ: Mapping[str, str] | None = None,
) -> Secret | Credential | None:
    """The key for a provider at an address: the given one, or the one in its variable; None if none is needed."""
    if key := given_key(given):
        if not may_go(key, base_url):
            raise belongs_elsewhere(provider.name, key, base_url)
        return key
    found = usual_key(provider, environ)
    if found is not None and may_go(found[0], base_url):
        return found[0]
    if not provider.needs_key and (found is None or provider.cloud is None):
        return None
    if found is not None:
        raise belongs_elsewhere(provider.name, found[0], base_url, f"The one in {found[1]}")
    variables = [f"the environment variable {name}" for name in provider.key_variables]
    raise missing_key(provider, ("the argument key", *variables))


def given_key(given: AnyKey | Mapping[str, AnyKey] | None) -> Secret | Credential | None:
    """The key for an argument. A plain text or function is bound to no host."""
    if not given:
        return None
    if isinstance(given, Mapping):
        message = "Keys by provider work only for engines that are created by name."
        raise ConfigurationError(message, hint="Pass this engine its own key.")
    if isinstance(given, Secret | Credential):
        return given
    return Secret(given) if isinstance(given, str) else Credential(given)


def usual_key(provider: Provider, environ: Mapping[str, str] | None = None) -> tuple[Secret, str] | None:
    """The key in one of the provider's variables, bound to the provider's hosts, and the variable's name."""
    environment: Mapping[str, str] = os.environ if environ is None else environ
    for variable in provider.key_variables:
        if value := environment.get(variable):
            return Secret(value, hosts=hosts_of(provider, environ)), variable
    return None


def missing_key(provider: Provider, places: Sequence[str]) -> MissingKeyError:
    """The error for a missing key: where it was looked for, and how to set one."""
    fix = f"Set {provider.key_variables[0]}, or give the key as an argument." if provider.key_variables else ""
    looked = f"Looked at {', '.join(places[:-1])} and {places[-1]}." if len(places) > 1 else f"Looked at {places[0]}."
    return MissingKeyError(
        f"There is no key for {provider.name}.",
        hint=" ".join(part for part in (fix, looked, LOCAL_MODEL) if part),
        provider=provider.name,
        places=tuple(places),
    )


def belongs_elsewhere(
    provider: str, key: Secret | Credential, base_url: str, which: str = "The one that was found"
) -> ConfigurationError:
    """The error for a key that was found, but may not be sent to this address."""
    host = host_of(base_url)
    own = " or ".join(sorted(key.hosts or ()))
    return MissingKeyError(
        f"There is no key for {provider} at {host}. {which} belongs to {own} and is not sent anywhere else.",
        hint=(
            f"Pass the key together with the base URL as arguments, or allow the host in your own configuration file: "
            f'[keys.{provider}] hosts = ["{host}"].'
        ),
        provider=provider,
    )


# --- keeping keys secret ----------------------------------------------------------------------------------------------

_SHOWN: Final = "[key]"


def without_keys(error: ProviderError, headers: Mapping[str, str]) -> None:
    """Remove the keys in a request's headers from an error's texts: some servers repeat the key that they refuse."""
    for key in keys_in(headers):
        if len(key) < 4:  # not a real key, and too common in texts
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
    # A long text was cut before, perhaps in the middle of the key.
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
"""Prefixes of the variables that Python and its extension modules read."""


def child_environment(environ: Mapping[str, str], *, own: tuple[str, ...]) -> dict[str, str]:
    """The variables for a child process: those that every program needs, and those with a prefix in `own`; no keys."""
    keys = {variable for provider in PROVIDERS.values() for variable in provider.key_variables}
    passed = {
        name: value for name, value in environ.items() if name in _COMMON or (name.startswith(own) and name not in keys)
    }
    return passed | ({"PATH": search_path(environ)} if "PATH" in passed else {})
