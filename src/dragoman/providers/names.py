"""Legal names for tools whose own names a provider would refuse.

Owns: the mapping between own names and names on the wire, in both directions.
Must not know: any provider's rule; the pattern and the length are in the profile.

A legal name stays as it is. The name that an illegal one gets depends on the set of tools, not on their order, and in
most cases on nothing but the name itself: a prompt cache and a recorded history survive that tools come and go.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dragoman.errors import ConfigurationError

from .profile import ToolLimits

__all__ = ["ToolNames"]

# Tried in this order before a name whose first character may not be the first.
_LEADS = ("", "_", "t_", "tool_")
# Of the mark: more only if fewer are not enough to tell two names apart.
_DIGITS = (8, 16, 32)


class ToolNames:
    """The names of the tools of one request. Decoders map `to_own` back."""

    __slots__ = ("_legal", "_limits", "to_own", "to_wire")

    def __init__(self, names: Iterable[str], limits: ToolLimits) -> None:
        self._limits: ToolLimits = limits
        self._legal: re.Pattern[str] = re.compile(limits.name_pattern)
        wire = {name: name for name in names}
        illegal = [name for name in wire if not self.is_legal(name)]
        if illegal:
            wire.update(self._made_up(illegal, taken=frozenset(wire.keys() - illegal)))
        self.to_wire: Mapping[str, str] = MappingProxyType(wire)
        """Name on the wire of every tool, by its own name."""
        self.to_own: Mapping[str, str] = MappingProxyType({wire[name]: name for name in illegal})
        """Own names by the names on the wire, of those that were changed."""

    def is_legal(self, name: str) -> bool:
        """Whether the provider takes the name as it is."""
        return len(name) <= self._limits.max_name_length and self._legal.fullmatch(name) is not None

    def wire(self, name: str) -> str:
        """The name on the wire, also of a tool that is no longer there but was called earlier in the conversation."""
        found = self.to_wire.get(name)
        if found is not None:
            return found
        plain = name if self.is_legal(name) else self._plain(name)
        # A tool of today may have the name that this one had.
        return plain if plain is not None and plain not in self.to_wire.values() else self._marked(name)

    def _made_up(self, names: list[str], taken: frozenset[str]) -> dict[str, str]:
        plain = {name: self._plain(name) for name in names}
        times = Counter([*plain.values(), *taken])
        # Two that would become the same both carry a mark, so that neither depends on which one comes first.
        free = {name: short for name, short in plain.items() if short is not None and times[short] == 1}
        for digits in _DIGITS:
            marked = {name: self._marked(name, digits) for name in names if name not in free}
            made = {name: free.get(name) or marked[name] for name in names}
            if len(taken.union(made.values())) == len(taken) + len(names):
                return made
        message = f"No legal names that differ from each other for the tools {', '.join(names)}."
        raise ConfigurationError(message, hint="Rename the tools.")

    def _plain(self, name: str) -> str | None:
        """The name with what is not allowed replaced; None if that is not enough."""
        short = self._letters(name)
        return next((lead + short for lead in _LEADS if short.strip("_-") and self.is_legal(lead + short)), None)

    def _marked(self, name: str, digits: int = _DIGITS[0]) -> str:
        """The name, cut, with a mark that no other name has."""
        mark = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:digits]
        short = self._letters(name)
        for lead in _LEADS:
            begin = (lead + short)[: max(0, self._limits.max_name_length - len(mark) - 1)]
            for marked in (f"{begin}_{mark}", f"{begin}{mark}", f"t{mark}"):
                if self.is_legal(marked):
                    return marked
        message = f"No legal name for the tool {name!r} fits the pattern {self._limits.name_pattern!r}."
        raise ConfigurationError(message, hint="Rename the tool, or correct the pattern in the profile.")

    def _letters(self, name: str) -> str:
        """The name in characters that the pattern knows: without accents, and `_` for what has no likeness."""
        plain = unicodedata.normalize("NFKD", name)
        kept = [letter for letter in plain if not unicodedata.combining(letter)]
        return "".join([letter if self._legal.fullmatch(f"a{letter}") else "_" for letter in kept])
