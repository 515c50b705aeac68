"""The front matter of a SKILL.md: where it begins and ends, and what it says.

PyYAML reads it, with every value as a text: `yes`, `1.0` and `null` mean what is written. Nothing raises: what is odd
is reported, and as much of it is kept as can be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, TypeAlias, cast

import yaml
from msgspec import Struct

Value: TypeAlias = "str | list[str] | dict[str, str]"

_KEY: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+|$)(.*)")
_MOST_PROBLEMS: Final = 20
_MOST_CHARACTERS: Final = 64 * 1024
_QUOTES: Final = "'\""
# PyYAML's types do not say what these take and give.
_compose = cast("Callable[..., yaml.Node | None]", yaml.compose)
_parse = cast("Callable[..., Iterable[yaml.Event]]", yaml.parse)


class FrontMatter(Struct, frozen=True):
    """A text with front matter, divided."""

    values: dict[str, Value]
    body: str
    problems: tuple[str, ...] = ()


def read_front_matter(text: str) -> FrontMatter:
    """Divide a text and read its front matter."""
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
        # Somebody forgot the second line of dashes: what looks like keys, up to the first empty line.
        end = next((number for number, line in enumerate(lines[1:], start=1) if not _is_front(line)), len(lines))
        problems.append(f"line {end + 1}: the front matter is not closed with '---'")
    reader = _Reader(lines[1:end])
    values = reader.read()
    return FrontMatter(values, "\n".join(lines[end + (closing is not None) :]).strip(), (*problems, *reader.problems))


def _is_front(line: str) -> bool:
    return bool(_KEY.match(line)) or (line[:1] in (" ", "\t") and bool(line.strip()))


class _Reader(Struct):
    """Reads some lines of front matter, of which the first is line 2 of its file."""

    lines: list[str]
    problems: list[str] = []

    def read(self) -> dict[str, Value]:
        text = "\n".join(self.lines) + "\n"
        if len(text) > _MOST_CHARACTERS:
            self._report(0, f"the front matter has more than {_MOST_CHARACTERS} characters")
            return {}
        try:
            root = _compose(text, Loader=yaml.BaseLoader)
            for event in _parse(text, Loader=yaml.BaseLoader):
                if isinstance(event, yaml.NodeEvent) and (event.anchor or getattr(event, "tag", None)):
                    self._report(event.start_mark.line, "anchors, aliases and tags are not read")
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            self._report(getattr(getattr(error, "problem_mark", None), "line", 0), _reason(error))
            return self._read_key_by_key()
        if isinstance(root, yaml.MappingNode):
            return self._map(root, deep=True)
        if root is not None:
            self._report(0, "this is not 'key: value'")
        return {}

    def _read_key_by_key(self) -> dict[str, Value]:
        """Each key by itself; the value of one that is not YAML is the text behind it, as it stands."""
        starts = [number for number, line in enumerate(self.lines) if _KEY.match(line)]
        values: dict[str, Value] = {}
        for start, end in pairwise([*starts, len(self.lines)]):
            chunk = self.lines[start:end]
            if len(chunk) == len(self.lines):
                name, first = cast("re.Match[str]", _KEY.match(chunk[0])).groups()
                return {name: " ".join([line.strip() for line in (first, *chunk[1:]) if line.strip()]).strip(_QUOTES)}
            for key, value in _Reader(chunk).read().items():
                values.setdefault(key, value)
        return values

    def _map(self, node: yaml.MappingNode, *, deep: bool) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._report(key.start_mark.line, "a key must be a text")
            elif key.value in values:
                self._report(key.start_mark.line, f"the key {key.value!r} is there twice")
            else:  # the first one: it is what people see
                values[key.value] = self._value(value, deep=deep)
        return values

    def _value(self, node: yaml.Node, *, deep: bool) -> Value:
        if isinstance(node, yaml.ScalarNode):
            return node.value
        line = node.start_mark.line
        if not deep:
            self._report(line, "maps and lists inside maps and lists are not read")
            written = "\n".join(self.lines)[node.start_mark.index : node.end_mark.index]
            return " ".join(written.split())
        if cast("yaml.CollectionNode", node).flow_style:
            self._report(line, "a map or list in brackets, which checkers refuse")
        if isinstance(node, yaml.MappingNode):
            return {key: cast("str", value) for key, value in self._map(node, deep=False).items()}
        return [cast("str", self._value(item, deep=False)) for item in node.value]

    def _report(self, line: int, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(f"line {line + 2}: {what}")


def _reason(error: Exception) -> str:
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    if "mapping values are not allowed" in reason:
        return "a text with ': ' in it must be quoted"
    return f"this is not YAML: {reason}"
