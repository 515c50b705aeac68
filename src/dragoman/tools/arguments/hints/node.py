"""What a hint means: a graph of nodes, each knowing one kind of value.

Owns: the Node interface, and the bridge by which msgspec decodes what it does not know itself.
Must not know: how a hint is turned into nodes, functions, tools.

A node answers three questions. `schema`: what is the model told? `read`: what does a decoded JSON value become, and if
it does not fit, where and why not? `wire`: which type makes msgspec's decoder give the same answer faster? Where there
is none, `wire` is a marker: a class that stands for the node, so that the decoder comes back to `read`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from dragoman.tools.arguments.problems import MismatchError, Problem, expected
from dragoman.tools.arguments.schemas import Definitions, Schema

__all__ = ["Measure", "Node", "UnsupportedError", "decodable", "decode_marker", "marker", "mismatch", "reachable"]

Measure: TypeAlias = Literal["integer", "number", "decimal", "moment", "span", "string", "bytes", "array", "object"]
"""What a limit such as `ge` or `min_length` measures on a value; see limits.py."""


class UnsupportedError(Exception):
    """A hint that cannot be expressed; the text says why, `fix` what to write instead."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message: str = message
        self.fix: str = fix

    def within(self, place: str) -> UnsupportedError:
        """The same, told from the place that holds the hint."""
        return UnsupportedError(f"{place}: {self.message}", self.fix)


class Node(ABC):
    """One kind of value. The attributes are set when the node is made and do not change."""

    expected: str
    """What a message says was expected."""

    kinds: frozenset[str]
    """The JSON types that can fit."""

    verbatim: bool = True
    """Whether msgspec, given the hint as it was written, does exactly what `read` does (children apart)."""

    measure: Measure | None = None

    hashable: bool | None = True
    """Whether what `read` returns can be in a set; None: that depends on the value."""

    annotated: str = ""
    """The description that was written beside the type."""

    tag: tuple[str, object] | None = None
    """The field and value by which an object says that it is of this kind."""

    @abstractmethod
    def schema(self, definitions: Definitions) -> Schema:
        """What the model is told; a dict of the caller's own."""

    @abstractmethod
    def read(self, value: object, lenient: bool) -> object:
        """What a decoded JSON value becomes; raises MismatchError. Lenient: 5.0 is an integer."""

    def wire(self) -> object:
        """The type that msgspec decodes."""
        return marker(self)

    def children(self) -> tuple[Node, ...]:
        """The nodes this one is made of."""
        return ()


class _Marker(type):
    node: Node

    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec checks what the hook returned; the node has done so already


def marker(node: Node) -> type:
    """A class that stands for a node in the types given to msgspec."""
    return _Marker(type(node).__name__, (), {"node": node})


def decode_marker(kind: type, value: object) -> object:
    """The `dec_hook` that goes with `marker`."""
    assert isinstance(kind, _Marker), kind
    return kind.node.read(value, False)


def decodable(wire: object) -> bool:
    """Whether msgspec can decode a type; it has rules of its own, above all about unions."""
    try:
        msgspec.json.Decoder(wire)
    except (TypeError, ValueError, OverflowError, NameError):
        return False
    return True


def mismatch(what: str, value: object) -> MismatchError:
    """The value itself does not fit."""
    return MismatchError([Problem((), expected(what, value))])


def reachable(node: Node) -> Iterator[Node]:
    """The node and every node that can occur inside it, each once."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(current.children())
