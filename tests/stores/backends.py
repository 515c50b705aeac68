"""The stores that the tests with several processes run on: each that has a tests/stores/<name>/backend.py.

Such a module has one name, BACKEND. It is loaded in child processes, too, so it finds a store by its directory alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from dragoman.stores.protocol import ConversationStore

__all__ = ["BACKENDS", "Backend", "backend_of"]


class Backend(NamedTuple):
    open: Callable[[Path], ConversationStore]
    """Open the store that belongs to this directory, as another process would."""
    litter: Callable[[Path], list[str]]
    """Names of files (or rows) that should not be there, of a store that nobody has open."""
    around: Callable[[Path], AbstractContextManager[object]] = nullcontext
    """What must be there as long as the store is used: a server, for example."""


BACKENDS = sorted([path.parent.name for path in Path(__file__).parent.glob("*/backend.py")])


def backend_of(name: str) -> Backend:
    return cast("Backend", import_module(f"tests.stores.{name}.backend").BACKEND)
