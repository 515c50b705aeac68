"""Finding the key for a provider.

Owns: the order of the places: argument, variable named by the configuration, keychain, key in a file, usual variables.
Must not know: files and tables of the configuration; it is given references. Whether a key may go to an address is
decided where it is used (dragoman.engines.keys); here it is bound to its hosts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct

from dragoman.chat.toml.file import shown_path
from dragoman.engines.keys import Secret, given_key, hosts_of, missing_key, usual_key
from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import ALIASES, PROVIDERS, Provider

from . import keychain
from .reference import KeyReference, reference_for
from .stored import keys_file, stored_references

__all__ = ["Found", "find_key"]


class Found(Struct, frozen=True):
    """A key, and where it was found."""

    secret: Secret
    origin: str


def find_key(
    provider: str,
    *,
    token: str | Secret | None = None,
    keys: Mapping[str, KeyReference] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Found | None:
    """The key for a provider, bound to the hosts that it may be sent to; None where none is needed.

    A `token` goes wherever the caller says. Raises MissingKeyError, which names every place that was looked at.
    """
    name = ALIASES.get(provider.lower(), provider.lower())
    if (secret := given_key(token)) is not None:
        return Found(secret, "the argument token")
    row = PROVIDERS.get(name) or Provider(name=name, dialect="openai_chat", base_url="", needs_key=False)
    environment: Mapping[str, str] = os.environ if environ is None else environ
    search = _Search(row, environment)
    for found in search.run(keys or {}):
        return found
    if not row.needs_key:
        return None
    raise missing_key(row, tuple(search.places))


class _Search:
    """One search, and the places that it has looked at."""

    def __init__(self, provider: Provider, environ: Mapping[str, str]) -> None:
        self._provider: Provider = provider
        self._environ: Mapping[str, str] = environ
        self._hosts: frozenset[str] | None = hosts_of(provider)
        self.places: list[str] = ["the argument token"]

    def run(self, keys: Mapping[str, KeyReference]) -> Iterator[Found]:
        """The keys that there are, in order; nothing is looked up before the ones before it were not there."""
        name, said = reference_for(self._provider.name, keys) or (self._provider.name, None)
        if said is None:
            self.places.append(f"[keys.{name}] of the configuration")
            said = KeyReference()
        if said.hosts:
            self._hosts = (self._hosts or frozenset()) | set(said.hosts)
        if said.env:
            yield from self._bound(self._environ.get(said.env), f"the environment variable {said.env}", said.origin)
        yield from self._in_keychain(said)
        stored = self._stored()
        yield from self._in_keychain(stored)
        for reference in (said, stored):
            if reference.key:
                yield from self._bound(reference.key.reveal(), reference.origin or "the argument keys")
        if (usual := usual_key(self._provider, self._environ)) is not None:
            yield Found(usual[0].bound_to(self._hosts), f"the environment variable {usual[1]}")
        self.places.extend(f"the environment variable {variable}" for variable in self._provider.key_variables)

    def _stored(self) -> KeyReference:
        found = reference_for(self._provider.name, stored_references(self._environ))
        if found is None:
            self.places.append(self._stored_keys())
            return KeyReference()
        return found[1]

    def _stored_keys(self) -> str:
        try:
            return f"the stored keys ({shown_path(keys_file(self._environ))})"
        except ConfigurationError:
            return "the stored keys (none without a home directory)"

    def _in_keychain(self, reference: KeyReference) -> Iterator[Found]:
        if reference.keychain:
            place = f"the keychain entry {reference.keychain!r}"
            yield from self._bound(keychain.read(reference.keychain), place, reference.origin)

    def _bound(self, value: str | None, place: str, origin: str = "") -> Iterator[Found]:
        shown = f"{place} (named by {origin})" if origin else place
        if value:
            yield Found(Secret(value, hosts=self._hosts), shown)
        self.places.append(shown)
