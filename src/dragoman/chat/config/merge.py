"""Layers laid over each other, and the rules that hold between them.

Owns: which source wins, what goes together (provider, model and address; a key and its hosts), and the Config that
comes out.
Must not know: files and variables as such; a layer says where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dragoman.chat.credentials.reference import KeyReference, reference_for
from dragoman.engines.keys import Secret, given_key, hosts_of
from dragoman.errors import ConfigurationError, InvalidBaseURLError
from dragoman.providers.catalogue import PROVIDERS
from dragoman.transport.addresses import validate_base_url

from .address import address_of, canonical, same_house
from .config import Config
from .fields import TABLES, Path
from .layers import Layer, SourceKind, not_for_projects

__all__ = ["Known", "config_of", "laid_over"]


class Known(Struct, frozen=True, kw_only=True):
    """A setting that holds, and those that do not because of it."""

    value: object
    origin: str
    kind: SourceKind
    trusted: bool = True
    tied: bool = False
    """Whether its source also said for which provider it is meant."""
    overridden: tuple[str, ...] = ()
    """Where it was said otherwise, the nearest first."""


_PROVIDER: Final[Path] = ("provider",)
_MODEL: Final[Path] = ("model",)
_BASE_URL: Final[Path] = ("base_url",)
_TOKEN: Final[Path] = ("token",)
_KEYS: Final[Path] = ("keys",)


def laid_over(layers: Sequence[Layer]) -> dict[Path, Known]:
    """The settings of all layers, of which the first wins."""
    merging = _Merging()
    for layer in reversed(layers):
        merging.lay_address(layer)
        for path, setting in layer.settings.items():
            if path not in (_PROVIDER, _MODEL, _BASE_URL):
                merging.set(path, setting.value, setting.origin, layer)
    return merging.known


class _Merging:
    def __init__(self) -> None:
        self.known: dict[Path, Known] = {}
        self._said: dict[Path, tuple[str, ...]] = {}
        """Who has said something so far, the nearest first."""

    def set(self, path: Path, value: object, origin: str, layer: Layer, *, tied: bool = False) -> None:
        overridden = self._said.get(path, ())
        self.known[path] = Known(
            value=value, origin=origin, kind=layer.kind, trusted=layer.trusted, tied=tied, overridden=overridden
        )
        self._said[path] = (origin, *overridden)

    def lay_address(self, layer: Layer) -> None:
        """A model means something at its own provider only, and so does an address: a new provider drops them."""
        said = layer.settings
        before = str(self.known[_PROVIDER].value) if _PROVIDER in self.known else ""
        provider, model = address_of(_text(layer, _PROVIDER), _text(layer, _MODEL), before)
        if provider:
            at = _PROVIDER if _PROVIDER in said else _MODEL
            _check_provider(provider, layer, at)
            if before and not same_house(provider, before):
                self.known.pop(_MODEL, None)
                if _BASE_URL in self.known and self.known[_BASE_URL].tied:
                    del self.known[_BASE_URL]
            self.set(_PROVIDER, provider, said[at].origin, layer)
        if _MODEL in said:
            self.set(_MODEL, model, said[_MODEL].origin, layer)
        if _BASE_URL in said:
            self.set(_BASE_URL, said[_BASE_URL].value, said[_BASE_URL].origin, layer, tied=bool(provider))


def _text(layer: Layer, path: Path) -> str:
    return str(layer.settings[path].value) if path in layer.settings else ""


def _check_provider(provider: str, layer: Layer, at: Path) -> None:
    """What is not in the catalogue may be anything, also a program that is started."""
    if not layer.trusted and provider not in PROVIDERS and layer.file is not None:
        raise not_for_projects(layer.file, at, f"a provider like {provider!r}")


# --- the value --------------------------------------------------------------------------------------------------------


def config_of(known: Mapping[Path, Known], layers: Sequence[Layer]) -> Config:
    """The Config that the settings make."""
    values: dict[str, Any] = {}
    for path, one in known.items():
        if len(path) == 1:
            values[path[0]] = one.value
        else:
            values.setdefault(path[0], {})[path[1]] = one.value
    for table, struct in TABLES.items():
        if table in values:
            values[table] = struct(**values[table])
    values["keys"] = _keys(known, layers)
    _check_base_url(known, allow_insecure=bool(values.get("allow_insecure_base_url")))
    if (token := _token(known, values["keys"])) is not None:
        values["token"] = token
    return Config(**values)


def _keys(known: Mapping[Path, Known], layers: Sequence[Layer]) -> dict[str, KeyReference]:
    keys: dict[str, KeyReference] = {}
    for layer in reversed(layers):
        keys.update(layer.keys)
    given: Any = known[_KEYS].value if _KEYS in known else {}
    return {**keys, **{canonical(name): reference for name, reference in given.items()}}


def _check_base_url(known: Mapping[Path, Known], *, allow_insecure: bool) -> None:
    one = known.get(_BASE_URL)
    if one is None:
        return
    try:
        validate_base_url(str(one.value), allow_insecure=allow_insecure)
    except InvalidBaseURLError as error:
        message = f"{error.message.removesuffix('.')} (base_url, from {one.origin})."
        raise InvalidBaseURLError(message, reason=error.reason, hint=error.hint) from None


def _token(known: Mapping[Path, Known], keys: Mapping[str, KeyReference]) -> Secret | None:
    """The key of the argument, bound to its provider's hosts unless the address was given along with it."""
    token = given_key(known[_TOKEN].value if _TOKEN in known else None)  # pyright: ignore[reportArgumentType]
    provider = known.get(_PROVIDER)
    if token is None or token.hosts is not None or provider is None:
        return token
    if not provider.trusted:
        message = (
            f"The token does not say for which provider it is, and {provider.value} was chosen by {provider.origin}."
        )
        raise ConfigurationError(message, hint="Give provider='…' together with token='…'.")
    if _BASE_URL not in known or known[_BASE_URL].kind == "argument":
        return token
    row = PROVIDERS.get(str(provider.value))
    hosts = None if row is None else hosts_of(row)
    reference = reference_for(str(provider.value), keys)
    return token.bound_to(None if hosts is None else hosts | set(reference[1].hosts if reference else ()))
