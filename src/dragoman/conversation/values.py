"""The common ground of all values: frozen, compared by value, and keeping what they do not know.

Two things carry foreign data: `extra` (fields of our own JSON form that a newer writer added) and `Native` (fields of
a provider's wire form that have no place in ours).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NoReturn

from msgspec import Raw, Struct, field

memory_of: Final[Callable[[Struct], dict[str, Any]]] = attrgetter("__dict__")
"""What is kept beside a value (of a type with `dict=True`) to save work later. It is no part of the value: not
compared, not written, not copied. Under a key stands only what the value (it never changes) and the key decide."""


class FrozenDict(dict[str, object]):
    """A dict that refuses to change, for the free-form parts of frozen values (msgspec encodes it as a dict)."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        message = "this mapping belongs to a frozen value; build a changed copy instead: {**mapping, key: value}"
        raise TypeError(message)

    # A refusal fits no overload of the methods it replaces, and need not.
    __setitem__ = __delitem__ = _refuse
    clear = pop = popitem = setdefault = update = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenDict, (dict(self),))


# gc=False: frozen values are built from finished ones, so they cannot form cycles, and a long history is thousands of
# objects that the collector need not visit.
class Value(Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of every value. Unknown fields of the JSON form are kept in `extra`, byte for byte, and written back."""

    # Spread among the members when written, so it has no member of its own, and a type that msgspec never reads: a
    # document with a member of this name must not get to say what the others are.
    extra: FrozenDict | None = field(name="*", default=None)


class Native(Value, frozen=True):
    """A provider's own fields of a block or message, as raw JSON members; sent back to that provider only."""

    provider: str
    fields: dict[str, Raw]
