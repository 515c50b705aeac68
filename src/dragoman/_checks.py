"""What a program says to a constructor is checked at once: names that nobody knows, values of the wrong type.

Owns: `check_names` and `refuse_unknown` for keywords; for settings that are Structs `CheckedMeta`, and `overlay`: the
nearer setting wins field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from dragoman.errors import ConfigurationError

S = TypeVar("S", bound=msgspec.Struct)
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The one of these names that was probably meant, whatever its case, "-" and "_"; "" if none is near."""
    from difflib import get_close_matches  # needed only where something is wrong

    folded = {_fold(each): each for each in names}
    found = get_close_matches(_fold(name), folded, n=1, cutoff=cutoff)
    return folded[found[0]] if found else ""


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def suggest(name: str, known: Collection[str]) -> str:
    """`Did you mean model?`, or the whole list."""
    near = nearest(name, known)
    return f"Did you mean {near}?" if near else f"There are: {', '.join(known)}."


def check_names(
    given: Iterable[str], known: Collection[str], what: str, elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigurationError for a keyword that nobody knows: the one that is probably meant, or its place."""
    for name in given:
        if name not in known:
            place = (elsewhere or {}).get(name)
            hint = suggest(name, known) if place is None else f"Say {place}."
            raise ConfigurationError(f"{what} has no setting {name!r}.", hint=hint)


def refuse_unknown(unknown: Mapping[str, object], function: Callable[..., object], what: str) -> None:
    """Raise ConfigurationError if there are keywords that the function does not have by name."""
    if unknown:
        code: Any = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        check_names(unknown, [name for name in code.co_varnames[:count] if name != "self"], what)


def check_takes_run(function: Callable[..., object], what: str, hint: str = "") -> None:
    """Raise ConfigurationError for a function of the moment that cannot be called with a RunContext alone."""
    import inspect  # slow to load, and few programs have such functions

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions do not tell their parameters
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        message = f"The function {name!r} cannot give {what}: it is called with the RunContext and nothing else."
        raise ConfigurationError(message, hint=hint or "Let it have one parameter: the RunContext.") from None


def list_changes(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """The fields that differ from the defaults: what somebody has said."""
    plain = type(value)()
    for name in value.__struct_fields__:
        if (found := getattr(value, name)) != getattr(plain, name):
            yield name, found


def overlay(nearer: S | None, outer: S) -> S:
    """Settings of which the nearer ones win, field by field; one that is left at its default does not say anything."""
    if nearer is None or nearer is outer:
        return outer
    if not isinstance(nearer, type(outer)):
        wanted, given = type(outer).__name__, type(nearer).__name__
        raise ConfigurationError(f"A {given} was given where a {wanted} is wanted.", hint=f"Say {wanted}(…).")
    return msgspec.structs.replace(outer, **dict(list_changes(nearer)))


class CheckedMeta(msgspec.StructMeta):
    """The metaclass of a Struct whose fields are checked against their types also when a program makes one.

    Without it only what comes from a file is. What means the same is taken: "abort" for the member of an Enum, a list
    for a frozenset, a dict for a Struct.
    """

    if not TYPE_CHECKING:  # type checkers know the fields

        def __call__(cls, *args: Any, **keywords: Any) -> Any:  # noqa: N805 -- of a metaclass
            if not keywords:  # nothing was said, and to look at all fields takes a while
                return super().__call__(*args)
            holders = _holders_of(cls)
            check_names(keywords, holders, cls.__name__)
            checked = {name: _checked(cls.__name__, name, value, holders[name]) for name, value in keywords.items()}
            return super().__call__(*args, **checked)


@cache
def _holders_of(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """For each field a Struct of it alone: msgspec looks at the type of a Struct once, and at any other each time.

    That matters, for in looking it calls Python, and drops the exception if Ctrl-C comes just then.
    """
    return {
        field.name: msgspec.defstruct("Holder", [("it", field.type)], gc=False) for field in msgspec.structs.fields(cls)
    }


def _checked(owner: str, name: str, value: object, holder: Any) -> object:
    try:
        return msgspec.convert({"it": value}, holder).it
    except msgspec.ValidationError as error:  # which does not repeat the value: it may be a key
        members = getattr(holder.__annotations__["it"], "__members__", {})
        hint = f"It is one of {', '.join(repr(member.value) for member in members.values())}." if members else None
        reason = reason_of(error).removesuffix(" - at $.it").replace(" - at $.it", " - at $")
        raise ConfigurationError(f"{name} of {owner} does not fit: {reason}.", hint=hint) from None
    except TypeError:  # a type that only type checkers can judge, such as that of a function
        return value


def reason_of(error: msgspec.ValidationError) -> str:
    """What msgspec has found, as a part of a sentence."""
    reason = str(error).replace("`", "")
    return f"{reason[:1].lower()}{reason[1:]}"
