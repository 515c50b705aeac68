"""One conversation, any model, tools that behave the same everywhere.

Owns: the list of public names, and where each of them lives.
Must not know: how anything works. A name's module is loaded when the name is first used (PEP 562), so that
`import dragoman` costs next to nothing and loads no HTTP client, no schema library and no extra.

To publish a name, write it in three places, each in alphabetical order: the imports below, which only type checkers
read; `__all__`; and `_HOMES`. A test says so when they disagree.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dragoman._version import __version__

if TYPE_CHECKING:
    from dragoman import errors
    from dragoman.errors import DragomanError

__all__ = [
    "DragomanError",
    "__version__",
    "errors",
]

_HOMES = {
    "DragomanError": "dragoman.errors",
    "errors": "dragoman.errors",
}
"""The module of each public name. A name that is the last part of its own home stands for the module itself."""


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'dragoman' has no attribute {name!r}; its public names are listed in dragoman.__all__"
        raise AttributeError(message, name=name, obj=import_module(__name__))
    module = import_module(home)
    value: object = module if home == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
