"""Problems with a call's arguments, in one line that a model can act on: the path, what was expected, what it got.

The words are JSON's (integer, string, object), not Python's: the reader is a model that wrote JSON.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple, TypeGuard

import msgspec

from dragoman._checks import nearest

Path = tuple[str | int, ...]

MANY_PROBLEMS = 20
"""The search ends here: nobody reads further, and a wrong value may have a million items."""
_SHOWN_PROBLEMS = 5
_SHOWN_NAMES = 20
_SHOWN_LENGTH = 60

_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Problem(NamedTuple):
    """One thing that does not fit, and where."""

    path: Path
    text: str

    def __str__(self) -> str:
        text = f"{_path_text(self.path)}: {self.text}" if self.path else self.text
        return " ".join(text.splitlines())


class InvalidArguments(ValueError):  # noqa: N818 -- it names what came, and reads well after `except`
    """Arguments that do not fit. `str()` is one line that a model can act on; `problems` holds them one by one."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __str__(self) -> str:
        texts = [str(problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        return "; ".join([*texts, "and more"] if len(self.problems) > _SHOWN_PROBLEMS else texts)


def _path_text(path: Path) -> str:
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


# --- phrases ---------------------------------------------------------------------------------------------------------


def expected(what: str, value: object) -> str:
    """`expected integer, got string "x"`."""
    got = "null" if value is None else f"{kind_of(value)} {shown(value)}"
    return f"expected {what}, got {got}"


def one_of(values: Sequence[object]) -> str:
    """A list of allowed values, for `expected`."""
    words = [shown(value) for value in values[:_SHOWN_NAMES]]
    if len(values) > _SHOWN_NAMES:
        words.append("…")
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def unknown(name: str, known: Iterable[str], taken: Container[str]) -> str:
    """A name that is not known, with the nearest one that was not given, or all known ones."""
    names = list(known)
    if not names:
        return "unknown field; there are none"
    if near := nearest(name, [other for other in names if other not in taken]):
        return f"unknown field; did you mean {near}?"
    listing = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
    return f"unknown field; known are: {listing}"


def join_words(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


# --- JSON values -----------------------------------------------------------------------------------------------------


def is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def kind_of(value: object) -> str:
    """JSON's name for the type of a decoded value."""
    return _KINDS.get(type(value)) or type(value).__name__


def shown(value: object) -> str:
    """The value as JSON, cut to a length that fits a message."""
    data = msgspec.json.encode(value, enc_hook=str)
    return cut(data[: 5 * _SHOWN_LENGTH].decode(errors="ignore"))


def cut(text: str) -> str:
    """A text cut to a length that fits a message."""
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"
