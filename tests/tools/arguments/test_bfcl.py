"""The functions of the Berkeley Function-Calling Leaderboard: thousands of schemas that people really wrote.

Its package is a development data dependency. Only its data files are read; it is never imported.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dragoman.tools import Tool
from dragoman.tools.arguments.reader import Arguments


def data_directory() -> Path | None:
    spec = importlib.util.find_spec("bfcl_eval")
    places = (spec.submodule_search_locations or []) if spec else []
    return next((Path(place) / "data" for place in places if (Path(place) / "data").is_dir()), None)


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one JSON object a line; files of another form are not about functions."""
    with path.open(encoding="utf-8") as file:
        for line in filter(str.strip, file):
            try:
                value = json.loads(line)
            except ValueError:
                return
            if isinstance(value, dict):
                yield value


def functions_of(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "function" in entry:
        given = entry["function"]
        return [given] if isinstance(given, dict) else given
    return [dict(entry)] if "parameters" in entry and "name" in entry else []


@pytest.fixture(scope="module")
def functions() -> list[dict[str, Any]]:
    directory = data_directory()
    if directory is None:
        pytest.skip("the data of bfcl-eval is not installed; `dev.py` installs it from requirements/data.lock")
    paths = [path for path in sorted(directory.rglob("*.json")) if "possible_answer" not in path.parts]
    found = {
        json.dumps(function, sort_keys=True): function
        for path in paths
        for entry in lines_of(path)
        for function in functions_of(entry)
    }
    return list(found.values())


@pytest.fixture(scope="module")
def compiled(functions: list[dict[str, Any]]) -> list[tuple[dict[str, Any], Arguments]]:
    """All of them become tools."""
    made = [
        Tool.from_schema(lambda **_: None, each["parameters"], name=each["name"], description=each["description"])
        for each in functions
    ]
    for function, tool in zip(functions, made, strict=True):
        assert (tool.name, tool.description) == (function["name"], function["description"])
        assert tool.spec.schema == tool.arguments.schema
    return [(function["parameters"], tool.arguments) for function, tool in zip(functions, made, strict=True)]


def property_paths(schema: object, path: str = "") -> Iterator[str]:
    if isinstance(schema, dict):
        for name, sub in (schema.get("properties") or {}).items():
            yield f"{path}/{name}"
            yield from property_paths(sub, f"{path}/{name}")
        for keyword in ("items", "prefixItems", "additionalProperties"):
            value = schema.get(keyword, [])
            for sub in value if isinstance(value, list) else [value]:
                yield from property_paths(sub, f"{path}[]")


def texts(value: object, keyword: str) -> Iterator[str]:
    """Every value of a keyword, wherever it is."""
    if isinstance(value, dict):
        if keyword in value and not isinstance(value[keyword], dict):
            yield json.dumps(value[keyword])
        for sub in value.values():
            yield from texts(sub, keyword)
    elif isinstance(value, list):
        for sub in value:
            yield from texts(sub, keyword)


def test_nothing_is_lost(compiled: list[tuple[dict[str, Any], Arguments]]) -> None:
    for given, arguments in compiled:
        assert Counter(property_paths(arguments.schema)) == Counter(property_paths(given))
        for keyword in ("description", "default", "enum", "format", "minItems", "maxItems"):
            assert Counter(texts(arguments.schema, keyword)) == Counter(texts(given, keyword))


def test_missing_arguments_are_named(compiled: list[tuple[dict[str, Any], Arguments]]) -> None:
    for _, arguments in compiled:
        required: Any = arguments.schema.get("required", [])
        for name in required[:1]:
            with pytest.raises(ValueError, match=f"{name}.*: expected .*, but it is missing"):
                arguments.decode("")
