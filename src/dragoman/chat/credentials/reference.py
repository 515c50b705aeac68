"""Where a provider's key is to be found, as a configuration says it.

Owns: KeyReference, and the names under which a provider's key may stand.
Must not know: how keys are looked up.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dragoman.engines.keys import Secret
from dragoman.providers.catalogue import ALIASES, PROVIDERS

__all__ = ["KeyReference", "names_of", "reference_for"]


class KeyReference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the key of one provider is. Several may be said; they are tried in this order."""

    env: str | None = None
    """The name of the environment variable that holds the key."""
    keychain: str | None = None
    """The entry of the system's keychain: `service/user`, or `user` alone for the service `dragoman`."""
    key: Secret | None = None
    """The key itself."""
    hosts: tuple[str, ...] = ()
    """Hosts that the key may be sent to beside the provider's own: `name` or `name:port`."""
    origin: str = ""
    """Who says so, for messages: `config.toml, line 3`."""


def names_of(provider: str) -> tuple[str, ...]:
    """The names under which a provider's key may stand: its own, its aliases, and services that share its key."""
    row = PROVIDERS.get(provider)
    aliases = tuple(alias for alias, name in ALIASES.items() if name == provider)
    if row is None:
        return (provider, *aliases)
    sharing = tuple(
        other.name
        for other in PROVIDERS.values()
        if other.name != provider and (other.key_variables, other.base_url) == (row.key_variables, row.base_url)
    )
    return (provider, *aliases, *sharing)


def reference_for(provider: str, keys: Mapping[str, KeyReference]) -> tuple[str, KeyReference] | None:
    """The reference for a provider, and the name that it stands under."""
    return next(((name, keys[name]) for name in names_of(provider) if name in keys), None)
