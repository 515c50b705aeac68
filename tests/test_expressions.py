"""No regular expression needs what Python before 3.11.5 matches wrongly: possessive quantifiers and atomic groups."""

from __future__ import annotations

import ast
import re
import re._parser as parser  # pyright: ignore[reportMissingImports] -- there is no public parser
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parent.parent / "src"
FORBIDDEN = {"POSSESSIVE_REPEAT", "ATOMIC_GROUP"}
NAMES = {"libstdc++", "libstdc++6", "libstdc++.so.6"}
"""Texts that are no expressions, though they could be."""


def operations(parsed: Any) -> Iterator[str]:
    """The names of all operations of a parsed expression."""
    waiting: list[Any] = [parsed]
    while waiting:
        each = waiting.pop()
        if isinstance(each, parser.SubPattern | tuple | list):
            waiting += list(each)
        else:
            yield str(each)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every literal, with its line; what is put into an f-string counts as one letter."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join([each.value if isinstance(each, ast.Constant) else "x" for each in node.values])


def found(source: str) -> list[tuple[int, str]]:
    """Literals that would be such an expression, whether or not they are used as one."""
    wrong: list[tuple[int, str]] = []
    for line, text in texts(source):
        for flags in (0, re.VERBOSE):  # a comment in one need not be an expression
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    parsed = parser.parse(text, flags)
            except (re.error, OverflowError, RecursionError):
                continue
            if text not in NAMES and FORBIDDEN.intersection(operations(parsed)):
                wrong.append((line, text))
                break
    return wrong


@pytest.mark.parametrize("expression", ["a*+", "(?:a|b)++", "a?+", "a{1,2}+", "(?>a)", "x(y(?:z)*+)", "[a](?:(?>b)|c)"])
def test_they_are_found(expression: str) -> None:
    assert found(f"X = re.compile(r'{expression}')")
    doubled = expression.replace("{", "{{").replace("}", "}}")
    assert found(f"X = re.compile(rf'{{a}}{doubled}')")
    assert found(f"X = re.compile(rb'{expression}')")


def test_they_are_found_beside_comments() -> None:
    assert found("X = re.compile('a*+ # one (or more\\n b', re.VERBOSE)")


def test_there_are_none() -> None:
    paths = sorted(SOURCES.rglob("*.py"))
    assert len(paths) > 100
    assert {str(path): wrong for path in paths if (wrong := found(path.read_text("utf-8")))} == {}
