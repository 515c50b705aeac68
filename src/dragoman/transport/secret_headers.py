"""Keys among the headers of a request.

Owns: which headers may carry a key, and taking it out of their values.
Must not know: what is done to keep it hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["keys_in"]

_CARRIERS: Final = ("auth", "cookie", "key", "secret", "token")
_SCHEMES: Final = ("basic", "bearer")


def keys_in(headers: Mapping[str, str]) -> Iterator[str]:
    """The values of all headers that may carry a key, without the word before it (`Bearer`)."""
    for name, value in headers.items():
        if any(word in name.lower() for word in _CARRIERS):
            scheme, blank, rest = value.partition(" ")
            yield rest if blank and scheme.lower() in _SCHEMES else value
