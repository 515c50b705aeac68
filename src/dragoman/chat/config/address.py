"""Which provider and model are meant, where they are said together or apart.

Owns: reading `provider` and `model` as one place says them, and how they change what other places have said.
Must not know: the places.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

from dragoman.engines.factory import is_registered
from dragoman.providers.catalogue import ALIASES, PROVIDERS, WELL_KNOWN_MODELS

__all__ = ["address_of", "canonical", "same_house"]

_MAKERS: Final = frozenset({"anthropic", "gemini", "openai", "openai-responses"})
"""Providers that have their own models only: the name of somebody else's cannot mean one of theirs."""

_TAG: Final = re.compile(r"latest|[a-z]?[0-9.]+[bm](?:-.*)?").fullmatch
"""What Ollama writes behind the colon, as in `mistral:7b`."""


def canonical(provider: str) -> str:
    """The provider's own name; what is not known is left as it is, for the error to show it."""
    lower = provider.strip().lower()
    name = ALIASES.get(lower, lower)
    return name if name in PROVIDERS else provider.strip()


def same_house(one: str, other: str) -> bool:
    """Whether two names stand for one service, so that models and addresses of one are those of the other."""
    if one == other:
        return True
    known = PROVIDERS.get(one), PROVIDERS.get(other)
    return all(known) and known[0].base_url == known[1].base_url != ""  # pyright: ignore[reportOptionalMemberAccess]


def address_of(provider: str, model: str, below: str = "") -> tuple[str, str]:
    """The provider and the bare model that one place means; `below` is the provider that lower places have said.

    The provider is empty where this place says nothing about it.
    """
    if provider:
        name = canonical(provider)
        before, colon, after = model.partition(":")
        return name, after if colon and canonical(before) == name else model
    return _in_model(model, below)


def _in_model(model: str, below: str) -> tuple[str, str]:
    before, colon, after = model.partition(":")
    if colon and after and _is_provider(before) and not (below == "ollama" and _TAG(after)):
        return canonical(before), after
    serves_others = bool(below) and below not in _MAKERS
    before, slash, after = model.partition("/")
    if slash and after and not serves_others and _is_provider(before):
        return canonical(before), after
    if not serves_others:
        for pattern, maker in WELL_KNOWN_MODELS:
            if fnmatchcase(model, pattern) and not (below and same_house(below, maker)):
                return maker, model
    return "", model


def _is_provider(word: str) -> bool:
    return bool(word) and (canonical(word) in PROVIDERS or is_registered(word))
