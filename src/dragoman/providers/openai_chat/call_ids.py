"""Ids of calls that a server would refuse.

Owns: making them legal, always in the same way, so that a call and its result still agree.
Must not know: messages.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["wire_id"]


class _Rule(NamedTuple):
    legal: re.Pattern[str]
    length: int


# By quirk. Mistral: nine letters and digits. OpenAI: at most 40 characters.
_RULES: Final = {
    "call_id_of_9": _Rule(re.compile(r"[a-zA-Z0-9]{9}"), 9),
    "call_id_of_40": _Rule(re.compile(r".{1,40}", re.DOTALL), 40),
}


def wire_id(call_id: str, quirks: frozenset[str]) -> str:
    """The id as this server takes it: the same wherever it does."""
    for quirk, rule in _RULES.items():
        if quirk in quirks and rule.legal.fullmatch(call_id) is None:
            from hashlib import blake2s

            return blake2s(call_id.encode()).hexdigest()[: rule.length]
    return call_id
