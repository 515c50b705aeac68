"""What is wrong with a call's arguments, in words a model can act on.

Owns: the one-line form of validation problems (JSON path, what was expected, what came) and the two exceptions that
carry them: `MismatchError` while a value is being read, `InvalidArguments` for the caller.
Must not know: hints, JSON Schema libraries, tools.

The words are JSON's (integer, string, object), not Python's: the reader is a model that wrote JSON.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from .json_values import cut, kind_of, shown

__all__ = [
    "MANY_PROBLEMS",
    "InvalidArguments",
    "MismatchError",
    "Path",
    "Problem",
    "expected",
    "limit_text",
    "listed",
    "missing",
    "no_form_fits",
    "one_line",
    "one_of",
    "unknown",
]

Path = tuple[str | int, ...]

SHOWN_PROBLEMS = 5
MANY_PROBLEMS = 20
"""Where looking for more ends: nobody reads further, and a wrong value may have a million items."""
SHOWN_NAMES = 20
SHOWN_CHOICES = 20

_LIMITS = {
    "ge": ">= {}",
    "gt": "> {}",
    "le": "<= {}",
    "lt": "< {}",
    "multiple_of": "that is a multiple of {}",
    "min_length": "of at least {} {}",
    "max_length": "of at most {} {}",
    "pattern": "that matches {}",
}
_PLURALS = {"character": "characters", "byte": "bytes", "item": "items", "property": "properties"}
_LINE_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


class Problem(NamedTuple):
    """One thing that does not fit, and where."""

    path: Path
    text: str

    def __str__(self) -> str:
        text = f"{path_text(self.path)}: {self.text}" if self.path else self.text
        return text.translate(_LINE_BREAKS)


class MismatchError(ValueError):
    """A value does not fit; raised while reading, with paths relative to the value that was read."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __str__(self) -> str:
        return one_line(self.problems)

    def under(self, key: str | int) -> list[Problem]:
        """The same problems, seen from the container that holds the value at `key`."""
        return [Problem((key, *problem.path), problem.text) for problem in self.problems]


class InvalidArguments(ValueError):  # noqa: N818 -- it names what came, and reads well after `except`
    """Arguments that do not fit. `str()` is one line that a model can act on; `problems` holds them one by one."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __str__(self) -> str:
        return one_line(self.problems)


def one_line(problems: Sequence[Problem]) -> str:
    """The first few problems joined by `; `."""
    texts = [str(problem) for problem in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        texts.append("and more")
    return "; ".join(texts)


def path_text(path: Path) -> str:
    """A path as people write it: `a[0].b`, and `a["odd key"]` where a key is not a plain name."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier():
            text += f".{cut(step)}" if text else cut(step)
        else:
            text += f"[{shown(step)}]"
    return text


def expected(what: str, value: object) -> str:
    """`expected integer, got string "x"`."""
    got = "null" if value is None else f"{kind_of(value)} {shown(value)}"
    return f"expected {what}, got {got}"


def limit_text(kind: str, value: object, unit: str = "item") -> str:
    """A limit in words that follow the name of a type: `>= 1`, `of at least 3 characters`."""
    return _LIMITS[kind].format(value, unit if value == 1 else _PLURALS[unit])


def missing(what: str) -> str:
    """What to say of a required value that did not come."""
    return f"expected {what}, but it is missing"


def one_of(values: Sequence[object]) -> str:
    """A list of allowed values, for `expected`."""
    words = [shown(value) for value in values[:SHOWN_CHOICES]]
    if len(values) > SHOWN_CHOICES:
        words.append("…")
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def no_form_fits(count: int, value: object) -> str:
    """What to say before the problems of the nearest of several forms."""
    return f"fits none of the {count} forms of {kind_of(value)} allowed here, the nearest fails as follows"


def unknown(name: str, known: Iterable[str], noun: str, taken: Container[str]) -> str:
    """What to say of a name that is not known: the nearest that is and was not given, or all of them."""
    names = list(known)
    if not names:
        return f"unknown {noun}; there are none"
    folded = {_folded(other): other for other in names if other not in taken}
    from difflib import get_close_matches

    nearest = get_close_matches(_folded(name), folded, n=1)
    if nearest:
        return f"unknown {noun}; did you mean {folded[nearest[0]]}?"
    listing = ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")
    return f"unknown {noun}; known are: {listing}"


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def listed(words: Sequence[str], conjunction: str = "or") -> str:
    """`a, b or c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"
