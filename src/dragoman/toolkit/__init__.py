"""Ready tools for a directory, the permission rules and skills that go with them, and the way to a person.

    ready.py        `toolkit`: the tools in one registry; `now`  decorator.py   how each of them is defined
    workspace.py    the directory that tools work in, and the only way to its files
    read.py, write.py                                    `Read`, `Write`, `Edit`
    search.py, walk.py, matcher.py, match_worker.py      `Glob`, `Grep`
    bash.py, process_group.py                            `Bash`
    fetch.py, addresses.py, page_text.py                 `Fetch`
    calculator.py                                        `calculator`
    responder.py    who is on the other side: console, callbacks, nobody; `react_emoji`, `send_update`
    permissions/    which calls may run
    skills/         `Skill`, `LoadSkillSupporting`

A name's module is loaded when the name is first used: permission rules and skills are used without the tools, and the
tools without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bash import BashSettings
    from .fetch import FetchSettings
    from .ready import toolkit
    from .responder import (
        CallbackResponder,
        ConsoleResponder,
        NullResponder,
        PermissionAnswer,
        PermissionRequest,
        Responder,
    )
    from .search import GrepLimits
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
    "BashSettings": "bash",
    "CallbackResponder": "responder",
    "ConsoleResponder": "responder",
    "FetchSettings": "fetch",
    "GrepLimits": "search",
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
