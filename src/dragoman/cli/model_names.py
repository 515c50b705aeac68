"""Names of models that are known, for lists and for the nearest one.

Owns: reading names off the catalogue's patterns.
Must not know: what the models can do.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from dragoman.chat.config import default_model
from dragoman.providers.catalogue import PROVIDERS
from dragoman.providers.profile import ProfileRow

__all__ = ["known_models", "near_models"]


def known_models(provider: str) -> list[str]:
    """The models of a provider that the catalogue has rows for, the default one first."""
    names = [default_model(provider)] if default_model(provider) else []
    if provider in PROVIDERS:
        names += [name for name in _named_by_rows(provider) if name not in names]
    return list(dict.fromkeys(names))


def _named_by_rows(provider: str) -> Iterator[str]:
    package = import_module(f"dragoman.providers.{PROVIDERS[provider].dialect}.profiles")
    for row in cast("tuple[ProfileRow, ...]", package.ROWS):
        if row.provider != provider:
            continue
        for pattern in row.models:
            name = pattern.removesuffix("*").rstrip("-.")
            # A family as wide as `claude` or `gpt` is no model, and what has other wildcards is none either.
            if len(name) > 1 and name[-1:].isalnum() and "-" in name and not set(name) & set("*?["):
                yield name


def near_models(name: str) -> list[str]:
    """Up to three known models whose names are near to `provider:model`."""
    provider, _, model = name.partition(":")
    near = get_close_matches(model, [known for known in known_models(provider) if known != model], n=3, cutoff=0.5)
    return [f"{provider}:{each}" for each in near]
