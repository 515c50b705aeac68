"""Settings as they may be shown.

Owns: how a value looks in an explanation, and what of it stays hidden.
Must not know: where settings come from.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Final

import msgspec

from dragoman.chat.credentials.reference import KeyReference
from dragoman.engines.keys import Secret

__all__ = ["shown_url", "shown_value"]

_LONGEST: Final = 60


def shown_url(url: str) -> str:
    """The address without its query, which may hold a key."""
    before, mark, _ = url.partition("?")
    return f"{before}?…" if mark else before


def shown_value(name: str, value: object) -> str:
    """The value on one line, as a file would have it; secrets are masked."""
    if value is None or value == "":
        return "-"
    if isinstance(value, Secret):
        return value.masked
    if name == "base_url":
        return _written(shown_url(str(value)))
    if isinstance(value, KeyReference):
        return _shown_reference(value)
    if name.rpartition(".")[2] in ("headers", "extra_headers"):
        return "…"
    return _cut(_written(value))


def _shown_reference(reference: KeyReference) -> str:
    said = {"env": reference.env, "keychain": reference.keychain, "key": reference.key and reference.key.masked}
    parts = [f"{name} {value}" for name, value in said.items() if value]
    parts += [f"hosts {', '.join(reference.hosts)}"] if reference.hosts else []
    return "; ".join(parts) or "-"


def _written(value: object) -> str:
    if isinstance(value, Enum):
        return json.dumps(value.value)
    try:
        return json.dumps(msgspec.to_builtins(value, order="deterministic"), ensure_ascii=False)
    except (TypeError, ValueError):
        return value.__name__ if isinstance(value, type) else type(value).__name__


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
