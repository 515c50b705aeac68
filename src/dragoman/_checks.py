"""What a program says to a constructor is checked at once: names that nobody knows, values of the wrong type.

Owns: `nearest`, `refuse_unknown` for keywords, `refuse_below` for numbers, and `CheckedMeta` for Structs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.errors import ConfigurationError

__all__ = ["CheckedMeta", "nearest", "refuse_below", "refuse_unknown"]


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The one of these names that was probably meant, whatever its case, "-" and "_"; "" if none is near."""
    from difflib import get_close_matches  # needed only where something is wrong

    folded = {_fold(each): each for each in names}
    found = get_close_matches(_fold(name), folded, n=1, cutoff=cutoff)
    return folded[found[0]] if found else ""


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def refuse_unknown(unknown: Mapping[str, object], function: Callable[..., object], what: str) -> None:
    """Raise ConfigurationError if there are keywords that the function does not have by name."""
    if unknown:
        code: Any = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        raise _unknown(next(iter(unknown)), [name for name in code.co_varnames[:count] if name != "self"], what)


def _unknown(name: str, known: list[str], what: str) -> ConfigurationError:
    near = nearest(name, known)
    hint = f"Did you mean {near}?" if near else f"It has {', '.join(known)}."
    return ConfigurationError(f"{what} has no setting {name!r}.", hint=hint)


def refuse_below(least: int, settings: msgspec.Struct, *names: str) -> None:
    """Raise ConfigurationError if one of these settings is less than that; None is no number."""
    for name in names:
        value: float | None = getattr(settings, name)
        # `not >=` rather than `<`: NaN compares false with everything.
        if value is not None and not value >= least:
            raise ConfigurationError(f"{name} is {value}.", hint=f"Give {name} a value of {least} or more.")


class CheckedMeta(msgspec.StructMeta):
    """The metaclass of a Struct whose fields are checked against their types also when a program makes one.

    Without it only what comes from a file is. What means the same is taken: "abort" for the member of an Enum, a list
    for a frozenset, a dict for a Struct.
    """

    if not TYPE_CHECKING:  # type checkers know the fields

        def __call__(cls, *args: Any, **keywords: Any) -> Any:  # noqa: N805 -- of a metaclass
            types = _types_of(cls)
            if unknown := [name for name in keywords if name not in types]:
                raise _unknown(unknown[0], list(types), cls.__name__)
            checked = {name: _checked(cls.__name__, name, value, types[name]) for name, value in keywords.items()}
            return super().__call__(*args, **checked)


@cache
def _types_of(cls: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(cls)}


def _checked(owner: str, name: str, value: object, kind: Any) -> object:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        members = getattr(kind, "__members__", {})
        hint = f"It is one of {', '.join(repr(member.value) for member in members.values())}." if members else None
        given = f"{name} of {owner} cannot be {value!r:.80}"
        raise ConfigurationError(f"{given}: {str(error).replace('`', '')}.", hint=hint) from None
