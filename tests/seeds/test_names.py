"""Every name on the page about the design documents exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent / "names.md"
NAMES = sorted(set(re.findall(r"`(dragoman(?:\.\w+)+)`", PAGE.read_text(encoding="utf-8"))))
LOGGERS = {"dragoman.tools"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LOGGERS])
def test_the_name_exists(name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = _member(found, part)
        return
    pytest.fail(f"{name} is nowhere")


def _member(owner: object, name: str) -> object:
    if hasattr(owner, name):
        return getattr(owner, name)
    assert name in getattr(owner, "__annotations__", {}), f"{owner!r} has no {name}"
    return None
