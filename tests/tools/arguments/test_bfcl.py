"""The functions of the Berkeley Function-Calling Leaderboard: thousands of schemas that people really wrote.

Its package is a development data dependency. Only its data files are read; it is never imported.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.tools import Tool


def functions() -> list[dict[str, Any]]:
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the data of bfcl-eval is not installed; `dev.py` installs it from requirements/data.lock")
    paths = (Path(spec.submodule_search_locations[0]) / "data").glob("*.json")
    lines = {line for path in paths for line in path.read_text(encoding="utf-8").splitlines() if '"function"' in line}
    given = [json.loads(line)["function"] for line in lines]
    found = [function for each in given for function in ([each] if isinstance(each, dict) else each)]
    return list({json.dumps(function, sort_keys=True): function for function in found}.values())


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


def test_all_of_them_become_tools_and_nothing_is_lost() -> None:
    for given in functions():
        made = Tool.from_schema(print, given["parameters"], name=given["name"], description=given["description"])
        assert (made.name, made.description) == (given["name"], given["description"])
        schema: Any = made.spec.schema
        assert Counter(property_paths(schema)) == Counter(property_paths(given["parameters"]))
        for keyword in ("description", "default", "enum", "format", "minItems", "maxItems"):
            assert Counter(texts(schema, keyword)) == Counter(texts(given["parameters"], keyword))
        for name in schema.get("required", [])[:1]:
            with pytest.raises(ValueError, match=f"{name}.*: expected .*, but it is missing"):
                made.arguments.decode("")
