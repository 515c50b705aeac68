"""The base of all values: frozen, compared by value, and keeping unknown fields.

Foreign data is kept in `extra` (fields of our own JSON form that a newer version added) and `Native` (fields of a
provider's wire form that have no equivalent in ours).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NoReturn

from msgspec import Raw, Struct, field

memory_of: Final[Callable[[Struct], dict[str, Any]]] = attrgetter("__dict__")
"""A cache on a value (of a type with `dict=True`). It is no part of the value: not compared, not written, not copied.
What is stored under a key depends on nothing but the value, which never changes, and the key."""


class FrozenDict(dict[str, object]):
    """A read-only dict, for the free-form parts of frozen values (msgspec encodes it as a dict)."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        message = "this mapping belongs to a frozen value; build a changed copy instead: {**mapping, key: value}"
        raise TypeError(message)

    # `_refuse` has another signature than the methods that it replaces.
    __setitem__ = __delitem__ = _refuse
    clear = pop = popitem = setdefault = update = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenDict, (dict(self),))


# gc=False: frozen values cannot form cycles, and a long history is thousands of objects that the collector need not
# visit.
class Value(Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of every value. Unknown fields of the JSON form are kept in `extra`, byte for byte, and written back."""

    # Its entries are written as members of the value. Its own name and type are never read from a document, which could
    # otherwise set the unknown fields through a member of this name.
    extra: FrozenDict | None = field(name="*", default=None)


class Native(Value, frozen=True):
    """A provider's own fields of a block or message, as raw JSON members; sent back to that provider only."""

    provider: str
    fields: dict[str, Raw]
