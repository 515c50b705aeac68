"""Schemas, as `--schema` says them.

Owns: the short form `name, age int, tags list: what it is about`, and finding a JSON Schema in a file or a text.
Must not know: how an answer of a schema is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from .arguments import UsageError, nearest
from .paths import user_path

__all__ = ["read_schema", "short_schema"]

_TYPES: Final[Mapping[str, Mapping[str, object]]] = {
    "str": {"type": "string"},
    "string": {"type": "string"},
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "integer": {"type": "integer"},
    "float": {"type": "number"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "boolean": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "string"}},
}
_LIST: Final = re.compile(r"list\[(\w+)\]").fullmatch
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}").fullmatch


def read_schema(given: str) -> dict[str, object]:
    """The JSON Schema that is meant: in a file, written out, or in the short form."""
    text = given.strip()
    if text.startswith("{"):
        return _parsed(text, "the text of --schema")
    path = user_path(text)
    if path.suffix == ".json" or ("\n" not in text and _is_file(path)):
        try:
            return _parsed(path.read_text(encoding="utf-8-sig"), str(path))
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError(f"The schema {str(path)!r} cannot be read: {reason}.") from None
    return short_schema(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no name that a file could have
        return False


def _parsed(text: str, where: str) -> dict[str, object]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}.", hint="Give a JSON Schema.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where} is not a JSON Schema: it is no object.", hint="Give a JSON Schema.")
    return cast("dict[str, object]", found)


def short_schema(text: str) -> dict[str, object]:
    """An object with these members: `name`, `name type` or `name type: description`, separated by commas or lines."""
    members: dict[str, object] = {}
    parts = text.splitlines() if "\n" in text else text.split(",")
    for part in parts:
        declared, _, about = part.partition(":")
        words = declared.split()
        if not words and not about.strip():
            continue
        name = words[0] if words else ""
        if len(words) > 2 or not _NAME(name):
            message = f"{part.strip()!r} is not a member of a schema."
            raise UsageError(message, hint='Write "name, age int, tags list", or name a JSON file.')
        if name in members:
            raise UsageError(f"The schema names {name!r} twice.")
        schema = _type_of(words[1] if len(words) == 2 else "str")
        members[name] = {**schema, "description": about.strip()} if about.strip() else schema
    if not members:
        raise UsageError("The schema is empty.", hint='Write, for example, "name, age int, tags list".')
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _type_of(word: str) -> dict[str, object]:
    if found := _LIST(word):
        return {"type": "array", "items": _type_of(found[1])}
    if word not in _TYPES:
        near = nearest(word, _TYPES)
        hint = f"Did you mean {near}?" if near else "There are str, int, float, bool, list and list[type]."
        raise UsageError(f"The schema has no type {word!r}.", hint=hint)
    return dict(_TYPES[word])
