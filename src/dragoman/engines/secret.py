"""A key that does not print itself, and that knows where it may go.

Owns: Secret. Only the line that builds the request's header reveals it.
Must not know: where keys are found (keys.py), which provider has which hosts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, Self

__all__ = ["Secret"]


class Secret:
    """A value that must not appear in logs, errors, tapes, snapshots or the environment of a child."""

    __slots__ = ("_value", "hosts")

    def __init__(self, value: str, *, hosts: Iterable[str] | None = None) -> None:
        self._value: str = value
        self.hosts: frozenset[str] | None = None if hosts is None else frozenset(hosts)
        """The hosts that it may be sent to: `name` or `name:port`. None: wherever the one who gave it says."""

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def bound_to(self, hosts: Iterable[str] | None) -> Secret:
        """The same value, for these hosts only."""
        return Secret(self._value, hosts=hosts)

    @property
    def masked(self) -> str:
        """Enough to tell two keys apart, and too little to be of use: `…` and the last four characters."""
        return f"…{self._value[-4:]}" if len(self._value) >= 20 else "…"

    def __repr__(self) -> str:
        return "Secret('…')"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        message = "a secret is not pickled; pass it on by other means"
        raise TypeError(message)

    def __getstate__(self) -> NoReturn:  # what serializers other than pickle ask for
        return self.__reduce__()
