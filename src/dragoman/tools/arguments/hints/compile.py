"""A schema and a decoder for any type.

Owns: schema_of_type and decoder_of_type, and reading JSON text when the fast decoder has refused it.
Must not know: functions and tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from dragoman.errors import ToolDefinitionError
from dragoman.tools.arguments.json_values import cut
from dragoman.tools.arguments.problems import InvalidArguments, MismatchError, Problem
from dragoman.tools.arguments.schemas import Definitions, Schema

from .node import Node, UnsupportedError, decode_marker
from .parse import Parser

__all__ = ["TOO_DEEP", "decoder_of_type", "document", "parse_text", "read_text", "schema_of_type"]


TOO_DEEP = "not usable: the JSON is nested too deeply"


def schema_of_type(hint: object) -> dict[str, object]:
    """The JSON Schema of a type."""
    return document(_node_of(hint))


def decoder_of_type(hint: object) -> Callable[[str], object]:
    """A function from JSON text to a value of the type; it raises InvalidArguments."""
    node = _node_of(hint)
    decode = msgspec.json.Decoder(node.wire(), dec_hook=decode_marker).decode

    def decoded(text: str) -> object:
        try:
            return decode(text)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return read_text(node, parse_text(text))

    return decoded


def document(node: Node) -> Schema:
    """The whole schema of a node, with its definitions."""
    definitions = Definitions()
    return definitions.document(node.schema(definitions))


def parse_text(text: str) -> object:
    """JSON text as plain values; raises InvalidArguments."""
    try:
        return cast("object", msgspec.json.decode(text))
    except RecursionError:
        raise InvalidArguments([Problem((), TOO_DEEP)]) from None
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidArguments([Problem((), f"not valid JSON ({error}): {cut(text)}")]) from None


def read_text(node: Node, value: object) -> object:
    """A value read leniently; raises InvalidArguments with every problem there is."""
    try:
        return node.read(value, True)
    except MismatchError as error:
        raise InvalidArguments(error.problems) from None
    except RecursionError:
        raise InvalidArguments([Problem((), TOO_DEEP)]) from None


def _node_of(hint: object) -> Node:
    try:
        return Parser().node(hint)
    except UnsupportedError as error:
        raise ToolDefinitionError(f"{error.message}.", hint=error.fix) from None
