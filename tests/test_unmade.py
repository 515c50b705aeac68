"""Objects whose constructor has failed: a debugger, or a log with local variables, still shows them."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from msgspec import Struct

import dragoman
from dragoman import AsyncChatClient, ChatClient, ToolExecutor, ToolRegistry
from dragoman.engines import engine
from dragoman.errors import DragomanError
from dragoman.toolkit import Workspace

SOURCES = Path(str(dragoman.__file__)).parent


def list_classes() -> Iterator[type[Any]]:
    """Every class of ours in the modules behind the doors, but those that set all fields before anything can fail."""
    for door in sorted(SOURCES.rglob("__init__.pyi")):
        name = ".".join(("dragoman", *door.parent.relative_to(SOURCES).parts))
        room = importlib.import_module(name)
        for public in dir(room):
            getattr(room, public)
    for name in sorted(each for each in sys.modules if each.partition(".")[0] == "dragoman"):
        for found in vars(sys.modules[name]).values():
            if not inspect.isclass(found) or found.__module__ != name or dataclasses.is_dataclass(found):
                continue
            if not issubclass(found, Struct | tuple | BaseException):
                yield found


def is_ours(method: object) -> bool:
    return str(getattr(method, "__module__", "")).partition(".")[0] == "dragoman"


def test_every_class_can_be_shown_and_freed_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: failed.append(f"{found.object}: {found.exc_value!r}"))
    shown = freed = 0
    for each in set(list_classes()):
        if is_ours(each.__repr__):
            assert isinstance(repr(each.__new__(each)), str)
            shown += 1
        if is_ours(getattr(each, "__del__", None)):
            each.__new__(each)
            freed += 1
    gc.collect()
    assert failed == []
    assert shown >= 25
    assert freed >= 1


def list_locals(trace: TracebackType | None) -> Iterator[object]:
    """What a debugger shows of the objects at work when an error was raised."""
    while trace is not None:
        yield trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChatClient("openai:gpt-5", key="k", temprature=1),
        lambda: ChatClient(engine("openai:gpt-5", key="k"), stateless=True, store=dragoman.MemoryStore()),
        lambda: AsyncChatClient("openai:gpt-5", key="k", context=3),
        lambda: ToolExecutor([], config=3),
        lambda: ToolRegistry([3]),
        lambda: Workspace("/dev/null/x"),
    ],
)
def test_one_whose_constructor_failed_can_be_shown(make: Any) -> None:
    with pytest.raises((DragomanError, TypeError)) as failed:
        make()
    assert all(repr(each) for each in list_locals(failed.value.__traceback__))
