"""Validation of constructor arguments: unknown names, values of the wrong type; and merging of settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from dragoman._annotations import signature_of
from dragoman._decoding import convert_to
from dragoman.errors import ConfigurationError

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The most similar of these names, ignoring case, "-" and "_"; "" if none is similar."""
    from difflib import get_close_matches  # only needed for errors

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
    """Raise ConfigurationError for an unknown keyword, with the most similar one; `elsewhere` says where others go."""
    for name in given:
        if name not in known:
            place = (elsewhere or {}).get(name)
            hint = suggest(name, known) if place is None else f"Say {place}."
            raise ConfigurationError(f"{what} has no setting {name!r}.", hint=hint)


def refuse_unknown(unknown: Mapping[str, object], function: Callable[..., object], what: str) -> None:
    """Raise ConfigurationError for keywords that are not parameters of the function."""
    if unknown:
        code: Any = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        check_names(unknown, [name for name in code.co_varnames[:count] if name != "self"], what)


def check_takes_run(function: Callable[..., object], what: str, hint: str = "") -> None:
    """Raise ConfigurationError unless the function can be called with a RunContext alone."""
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        message = f"The function {name!r} cannot give {what}: it is called with the RunContext and nothing else."
        raise ConfigurationError(message, hint=hint or "Give it one parameter: the RunContext.") from None


def list_changes(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """The fields that differ from their defaults."""
    default = type(value)()
    for name in value.__struct_fields__:
        if (set_to := getattr(value, name)) != getattr(default, name):
            yield name, set_to


def overlay(nearer: S | None, outer: S) -> S:
    """Merge settings, field by field: the nearer ones win unless they are left at their default."""
    if nearer is None or nearer is outer:
        return outer
    if not isinstance(nearer, type(outer)):
        wanted, given = type(outer).__name__, type(nearer).__name__
        raise ConfigurationError(f"Expected a {wanted}, not a {given}.", hint=f"Pass {wanted}(…).")
    return msgspec.structs.replace(outer, **dict(list_changes(nearer)))


def of_unmade(show: Callable[[T], str]) -> Callable[[T], str]:
    """Decorate a `__repr__`: an object whose constructor failed, which a log with locals shows, lacks fields."""

    @wraps(show)
    def shown(self: T) -> str:
        try:
            return show(self)
        except AttributeError:
            return f"<{type(self).__name__}, which was not made>"

    return shown


class CheckedMeta(msgspec.StructMeta):
    """The metaclass of Structs that validate the types of their fields in the constructor, not only when decoded.

    Equivalent values are converted: "abort" to the member of an Enum, a list to a frozenset, a dict to a Struct.
    """

    if not TYPE_CHECKING:  # type checkers know the fields

        def __call__(cls, *args: Any, **keywords: Any) -> Any:  # noqa: N805 -- a metaclass
            if not keywords:  # checking all fields would be slow
                return super().__call__(*args)
            holders = _holders_of(cls)
            check_names(keywords, holders, cls.__name__)
            checked = {name: _checked(cls.__name__, name, value, holders[name]) for name, value in keywords.items()}
            return super().__call__(*args, **checked)


@cache
def _holders_of(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """A Struct with only that field, for each field: msgspec inspects a Struct once, and any other type each time.

    While it inspects a type, it runs Python code and swallows a Ctrl-C that arrives then.
    """
    return {
        field.name: msgspec.defstruct("Holder", [("it", field.type)], gc=False) for field in msgspec.structs.fields(cls)
    }


def _checked(owner: str, name: str, value: object, holder: Any) -> object:
    try:
        return convert_to({"it": value}, holder).it
    except msgspec.ValidationError as error:  # does not contain the value, which may be a key
        members = getattr(holder.__annotations__["it"], "__members__", {})
        hint = f"It is one of {', '.join(repr(member.value) for member in members.values())}." if members else None
        reason = reason_of(error).removesuffix(" - at $.it").replace(" - at $.it", " - at $")
        raise ConfigurationError(f"{name} of {owner} does not fit: {reason}.", hint=hint) from None
    except TypeError:  # a type that msgspec does not know, such as that of a function
        return value


def reason_of(error: msgspec.ValidationError) -> str:
    """The message of a msgspec error, as a part of a sentence."""
    reason = str(error).replace("`", "")
    return f"{reason[:1].lower()}{reason[1:]}"
