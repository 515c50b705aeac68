"""Ready tools for a directory, the permission rules and skills that go with them, and the way to a person.

    ready.py        `toolkit`: all of them in one registry
    responder.py    who is on the other side: console, callbacks, nobody
    workspace.py    the directory that tools work in, and the only way to its files
    defining.py     how the tools here are defined
    read.py, write.py, edit.py, text.py    `Read`, `Write`, `Edit`
    search/         `Glob`, `Grep`
    bash/           `Bash`
    fetch/          `Fetch`
    calculator/, now.py, updates.py        `calculator`, `now`, `react_emoji`, `send_update`
    permissions/    which calls may run
    skills/         `Skill`, `LoadSkillSupporting`

A name's module is loaded when the name is first used: permission rules and skills are used without the tools, and the
tools without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bash.tool import BashSettings
    from .fetch.tool import FetchSettings
    from .ready import toolkit
    from .responder import (
        CallbackResponder,
        ConsoleResponder,
        NullResponder,
        PermissionAnswer,
        PermissionRequest,
        Responder,
    )
    from .search.grep import GrepLimits
    from .workspace import Workspace

__all__ = [
    "BashSettings",
    "CallbackResponder",
    "ConsoleResponder",
    "FetchSettings",
    "GrepLimits",
    "NullResponder",
    "PermissionAnswer",
    "PermissionRequest",
    "Responder",
    "Workspace",
    "toolkit",
]

_HOMES = {
    "BashSettings": "bash.tool",
    "CallbackResponder": "responder",
    "ConsoleResponder": "responder",
    "FetchSettings": "fetch.tool",
    "GrepLimits": "search.grep",
    "NullResponder": "responder",
    "PermissionAnswer": "responder",
    "PermissionRequest": "responder",
    "Responder": "responder",
    "Workspace": "workspace",
    "toolkit": "ready",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=import_module(__name__))
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
