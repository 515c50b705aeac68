"""Strings by their length, their pattern or their format.

Owns: the expression for a JSON string with such limits, and the formats that are known.
Must not know: where the limits come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from .characters import CHARACTER
from .gbnf import MOST_REPETITIONS, Grammar, Impossible, literal, repeated, sequence
from .patterns import NotRegular, matching

__all__ = ["FORMATS", "string"]

_DAY: Final = r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
_DATE: Final = rf"(19|20)[0-9]{{2}}-{_DAY}"
_TIME: Final = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_BYTE: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"

FORMATS: Final[Mapping[str, str]] = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "uuid": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    "ipv4": rf"^{_BYTE}(\.{_BYTE}){{3}}$",
    "email": rf"^[A-Za-z0-9_+-]{{1,30}}(\.[A-Za-z0-9_+-]{{1,15}}){{0,2}}@{_LABEL}(\.{_LABEL}){{1,3}}$",
}
"""Formats by name. What is written is always of the format; a rare form of it (29 February) may never be written."""

_formatted = cache(matching)


def string(grammar: Grammar, limits: Mapping[str, object], lost: Callable[[str, str], None]) -> str:
    """A JSON string within the limits. `lost` is told the word and the reason of a limit that is not enforced."""
    least, most = _number(limits, "minLength") or 0, _number(limits, "maxLength")
    if most is not None and most < least:
        raise Impossible
    inside = _by_form(limits, lost)
    if inside is not None:
        for word in ("minLength", "maxLength"):
            if word in limits:
                lost(word, "not enforced beside a pattern or a format")
        return grammar.rule("text", sequence(literal('"'), inside, literal('"')))
    if least > MOST_REPETITIONS:
        lost("minLength", f"not enforced beyond {MOST_REPETITIONS}")
        least = MOST_REPETITIONS
    if most is not None and most > MOST_REPETITIONS:
        most = None
    if most is None:  # no longer than this, so that there is an end
        most = MOST_REPETITIONS
    letter = grammar.rule("char", CHARACTER)
    return grammar.rule("string", sequence(literal('"'), repeated(letter, least, most), literal('"')))


def _by_form(limits: Mapping[str, object], lost: Callable[[str, str], None]) -> str | None:
    """The inside of a string by its pattern or its format; by the pattern, if there are both."""
    pattern, form = limits.get("pattern"), limits.get("format")
    if isinstance(pattern, str):
        try:
            inside = matching(pattern)
        except (NotRegular, RecursionError):
            lost("pattern", "not enforced: it is no plain regular expression")
        else:
            if form is not None:
                lost("format", "not enforced beside a pattern")
            return inside
    return _formatted(FORMATS[form]) if isinstance(form, str) and form in FORMATS else None


def _number(limits: Mapping[str, object], word: str) -> int | None:
    value = limits.get(word)
    return int(value) if isinstance(value, int | float) else None
