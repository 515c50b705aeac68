"""Packages whose names are imported when they are first used (PEP 562).

The public names of a package are listed once, in its `__init__.pyi`, as imports for type checkers. At run time the same
file says where a name is defined, so that importing the package loads only what is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module

_IMPORT = re.compile(r"^from (\S+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def open_door(room: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package, from its name and file."""
    homes: dict[str, str] = {}

    def names() -> list[str]:
        if not homes:
            with open(f"{file.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib loads slowly
                found = _IMPORT.findall(stub.read())
            for module, several, single in found:
                homes.update((name.split()[0], module) for name in (several or single).split(",") if name.strip())
        return sorted(homes)

    def load(name: str) -> object:
        if name == "__all__":  # import *
            return names()
        if name not in homes and name not in names():
            message = f"module {room!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[room])
        home = homes[name]
        value = import_module(f".{name}", room) if home == "." else getattr(import_module(home, room), name)
        setattr(sys.modules[room], name, value)
        return value

    return load, names
