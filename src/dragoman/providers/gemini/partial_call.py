"""A function call whose arguments arrive in pieces, each with the path of its place (Vertex AI, on request).

Owns: growing the arguments from `partialArgs`, and their JSON at the end.
Must not know: events, chunks.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman.errors import ProtocolError

from .wire import raw_list, raw_members, text_of

__all__ = ["PartialCall"]

# A JSON Path (RFC 9535) to one place: `$.city`, `$.stops[0].name`, `$['a.b']`.
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)

_VALUES = ("numberValue", "boolValue", "nullValue")
_NULL = Raw(b"null")

_Step: TypeAlias = str | int
_Tree: TypeAlias = "dict[str, _Tree] | list[_Tree] | _String | Raw"


class _String:
    """A string while it grows."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []


class PartialCall:
    """A call while it grows."""

    __slots__ = ("_arguments", "id", "index", "native")

    def __init__(self, index: int, call_id: str) -> None:
        self.index: int = index
        self.id: str = call_id
        self.native: dict[str, Raw] = {}
        """Further members of its parts, e.g. the thought signature."""
        self._arguments: dict[str, _Tree] = {}

    def take(self, partial_args: Raw) -> None:
        """Take in a list of pieces."""
        for piece in raw_list(partial_args):
            members = raw_members(piece)
            path = members.get("jsonPath")
            if path is None:
                raise ProtocolError("A piece of a function call's arguments says no place.")
            steps = _steps(text_of(path))
            if "stringValue" in members:
                self._grow(steps, text_of(members["stringValue"]))
            for name in _VALUES:
                if name in members:
                    self._put(steps, _NULL if name == "nullValue" else members[name].copy())

    def arguments(self) -> str | None:
        """The arguments so far, as JSON; None if none came in pieces."""
        return msgspec.json.encode(_plain(self._arguments)).decode() if self._arguments else None

    def _grow(self, steps: list[_Step], text: str) -> None:
        known = self._get(steps)
        if not isinstance(known, _String):
            known = _String()
            self._put(steps, known)
        known.pieces.append(text)

    def _get(self, steps: list[_Step]) -> _Tree | None:
        node: _Tree | None = self._arguments
        for step in steps:
            node = _child(node, step)
        return node

    def _put(self, steps: list[_Step], value: _Tree) -> None:
        """Set a place, making the objects and arrays on the way to it."""
        node: _Tree = self._arguments
        for step, following in pairwise(steps):
            inner = _child(node, step)
            if inner is None:
                inner = _container(following)
                _set(node, step, inner)
            node = inner
        _set(node, steps[-1], value)


def _container(step: _Step) -> _Tree:
    """What can be stepped into in this way."""
    objects: dict[str, _Tree] = {}
    arrays: list[_Tree] = []
    return arrays if isinstance(step, int) else objects


def _child(node: _Tree | None, step: _Step) -> _Tree | None:
    if isinstance(node, dict) and isinstance(step, str):
        return node.get(step)
    if isinstance(node, list) and isinstance(step, int):
        return node[step] if step < len(node) else None
    return None


def _set(node: _Tree, step: _Step, value: _Tree) -> None:
    if isinstance(node, dict) and isinstance(step, str):
        node[step] = value
    elif isinstance(node, list) and isinstance(step, int) and step <= len(node):
        node[step : step + 1] = [value]
    else:
        raise ProtocolError("The pieces of a function call's arguments do not fit together.")


def _steps(path: str) -> list[_Step]:
    steps: list[_Step] = []
    at = 1
    while path.startswith("$") and at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            break
        name, index, single, double = found.groups()
        quoted = single if single is not None else double
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else _ESCAPE.sub(r"\1", cast("str", quoted)))
        at = found.end()
    if not steps or at != len(path):
        raise ProtocolError(f"A piece of a function call's arguments has no path that can be read: {path[:100]!r}.")
    return steps


def _plain(tree: _Tree) -> object:
    if isinstance(tree, dict):
        return {name: _plain(inner) for name, inner in tree.items()}
    if isinstance(tree, list):
        return [_plain(inner) for inner in tree]
    return "".join(tree.pieces) if isinstance(tree, _String) else tree
