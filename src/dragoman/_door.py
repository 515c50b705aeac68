"""The doors of rooms: names that are loaded when somebody first uses them (PEP 562).

What a room offers to users and to other rooms is written once, in its `__init__.pyi`, as the imports that type checkers
read. At run time the same file says where a name lives, so that importing a room loads nothing but what is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module

_IMPORT = re.compile(r"^from (\S+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def open_door(room: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a room, from its name and file."""
    homes: dict[str, str] = {}

    def names() -> list[str]:
        if not homes:
            with open(f"{file.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib loads slowly
                found = _IMPORT.findall(stub.read())
            for module, several, single in found:
                homes.update((name.split()[0], module) for name in (several or single).split(",") if name.strip())
        return sorted(homes)

    def load(name: str) -> object:
        if name == "__all__":  # somebody imports *
            return names()
        if name not in homes and name not in names():
            message = f"module {room!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[room])
        home = homes[name]
        value = import_module(f".{name}", room) if home == "." else getattr(import_module(home, room), name)
        setattr(sys.modules[room], name, value)
        return value

    return load, names
