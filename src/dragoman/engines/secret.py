"""A key that does not print itself.

Owns: Secret. Only the line that builds the request's header reveals it.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Secret"]


class Secret:
    """A value that must not appear in logs, errors, tapes, snapshots or the environment of a child."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value: str = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('…')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        message = "a secret is not pickled; pass it on by other means"
        raise TypeError(message)
