"""The front matter of a SKILL.md: where it begins and ends, and its values.

PyYAML parses it, with every scalar as a string: `yes`, `1.0` and `null` stay what is written. Nothing raises: if it is
not YAML, each key is parsed by itself, and the value of one that is not YAML is the text after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeAlias, cast

import yaml
from msgspec import Struct

Value: TypeAlias = "str | list[str] | dict[str, str]"

_KEY: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+|$)(.*)")
_MAX_CHARACTERS: Final = 64 * 1024
_MAX_BRACKETS: Final = 200
"""PyYAML takes a second for a thousand that are not closed."""
_MAX_KEYS: Final = 200
"""That are parsed by themselves."""
# The stubs of PyYAML do not declare the parameters and the result.
_load = cast("Callable[..., object]", yaml.load)
_ERRORS: Final = (yaml.YAMLError, RecursionError, ValueError, OverflowError)


class FrontMatter(Struct, frozen=True):
    """The values of the front matter, and the text below it."""

    values: dict[str, Value]
    body: str
    problems: tuple[str, ...] = ()


def read_front_matter(text: str) -> FrontMatter:
    """Split a text into front matter and body, and parse the front matter."""
    problems: list[str] = []
    if text.startswith("\ufeff"):
        text = text[1:]
        problems.append("line 1: there is a byte order mark")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != "---":
        problems.append("line 1: the first line is not '---'")
        return FrontMatter({}, text.strip(), tuple(problems))
    closing = next((number for number, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
    end = closing
    if end is None:
        # The closing dashes are missing: take what looks like keys, up to the first empty line.
        end = next((number for number, line in enumerate(lines[1:], start=1) if not _is_front(line)), len(lines))
        problems.append(f"line {end + 1}: the front matter is not closed with '---'")
    values = _read_values(lines[1:end], problems)
    return FrontMatter(values, "\n".join(lines[end + (closing is not None) :]).strip(), tuple(problems))


def _is_front(line: str) -> bool:
    return bool(_KEY.match(line)) or (line[:1] in (" ", "\t") and bool(line.strip()))


def _read_values(lines: Sequence[str], problems: list[str]) -> dict[str, Value]:
    if sum(map(len, lines)) > _MAX_CHARACTERS:
        problems.append(f"line 2: the front matter has more than {_MAX_CHARACTERS} characters")
        return {}
    values: dict[str, Value] = {}
    keys = [(number, found) for number, line in enumerate(lines) if (found := _KEY.match(line))]
    if len({found[1] for _, found in keys}) == len(keys):  # YAML would use the last value of a key that is there twice
        with suppress(*_ERRORS):
            return _parse_values("\n".join(lines))
    if any(line.strip() and not line.startswith("#") for line in lines[: keys[0][0] if keys else len(lines)]):
        problems.append("line 2: this is not 'key: value'")
    ends = [number for number, _ in keys[1:]] + [len(lines)]
    for (start, found), end in islice(zip(keys, ends, strict=False), _MAX_KEYS):
        name, rest = found.groups()
        if name in values:
            problems.append(f"line {start + 2}: the key {name!r} is there twice")
            continue
        try:
            values |= _parse_values("\n".join(lines[start:end]))
        except _ERRORS as error:
            line = start + 2 + getattr(getattr(error, "problem_mark", None), "line", 0)
            problems.append(f"line {line}: {_describe(error)}")
            values[name] = " ".join(" ".join([rest, *lines[start + 1 : end]]).split()).strip("'\"")
    return values


class _Loader(yaml.BaseLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # A few aliases of aliases can stand for more text than fits into memory.
        if cast("Callable[..., bool]", self.check_event)(yaml.AliasEvent):
            raise ValueError("aliases are not read")
        return super().compose_node(parent, index)


def _parse_values(text: str) -> dict[str, Value]:
    if text.count("[") + text.count("{") > _MAX_BRACKETS:
        raise ValueError("it has too many brackets")
    loaded: object = _load(text, Loader=_Loader)
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ValueError("it is not 'key: value'")
    return {key: _as_value(value) for key, value in cast("dict[str, object]", loaded).items()}


def _as_value(value: object) -> Value:
    if isinstance(value, dict):
        return {key: _as_text(item) for key, item in cast("dict[str, object]", value).items()}
    return [_as_text(item) for item in cast("list[object]", value)] if isinstance(value, list) else str(value)


def _as_text(item: object) -> str:
    return item if isinstance(item, str) else json.dumps(item)


def _describe(error: Exception) -> str:
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if "mapping values are not allowed" in reason:
        return "a text with ': ' in it must be quoted"
    return f"this is not YAML: {reason}"
