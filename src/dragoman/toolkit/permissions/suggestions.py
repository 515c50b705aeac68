"""Rules to remember about a call: the one for exactly this call, and wider ones that a person may choose instead.

A wider rule is offered only where its text says all that it allows: for files, pages and commands that read, of which
the meaning of every argument is known, and for a tool as a whole. It is never what "always" means by itself.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import structs

from dragoman.errors import ConfigurationError

from .judge import compile_rule
from .places import Places, Surroundings
from .rules import Rule, words_in
from .shell import option_name, read_shell
from .subject import READY_TOOLS, Subject

_READERS: Final = words_in("cat cut diff du file grep head ls md5sum nl sha256sum stat tail tree wc")
"""Programs that only read, whatever words follow; their options are those of the call."""
_GIT_READERS: Final = words_in("blame diff log ls-files show status")


def suggest_rules(subject: Subject, around: Surroundings) -> tuple[Rule, ...]:
    """The rule for exactly this call, then wider ones. All hold only until the tool changes."""
    literally = "".join([f"[{letter}]" if letter in "*?[" else letter for letter in subject.tool])
    base = Rule(action="allow", tool=literally, version=subject.version)
    wider = _wider(base, subject, around)
    if wider is not None and not _is_covered(wider, subject, around):
        wider = None
    exact = structs.replace(base, arguments=subject.arguments)
    return (exact,) if wider is None else (exact, wider)


def _is_covered(rule: Rule, subject: Subject, around: Surroundings) -> bool:
    try:
        return compile_rule(rule, around).covers(subject, Places(around))
    except (ConfigurationError, OSError, ValueError):  # no address, or no file name: then no rule either
        return False


def _wider(base: Rule, subject: Subject, around: Surroundings) -> Rule | None:
    if subject.tool not in READY_TOOLS:
        # Of other tools nobody knows what an argument does: all of the tool, or nothing.
        return base if subject.version != "unknown" else None
    if subject.commands:
        return _for_command(base, subject.commands[0])
    if subject.urls:
        return structs.replace(base, host=tuple(sorted({_origin(url) for url in subject.urls})))
    if subject.paths:
        folders = tuple(sorted({_folder(path, around) for path in subject.paths}))
        is_pattern = any(letter in folder for folder in folders for letter in "*?[")
        return None if is_pattern else structs.replace(base, path=folders)
    return base


def _for_command(base: Rule, text: str) -> Rule | None:
    command = read_shell(text).simple
    if command is None:
        return None
    words = [word.text for word in command.words]
    is_git = words[0] == "git" and len(words) > 1 and words[1] in _GIT_READERS
    if not is_git and words[0] not in _READERS:
        return None
    count = 1 + is_git
    options = sorted({word for word in words[count:] if option_name(word)})
    if any("=" in word for word in options):  # whatever else could be its value
        return None
    return structs.replace(base, command=" ".join(words[:count]), options=tuple(options), path=".")


def _origin(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('/')[0].split('?')[0].split('#')[0]}"


def _folder(path: str, around: Surroundings) -> str:
    real = os.path.realpath(os.path.join(around.real, path))  # noqa: PTH118
    folder = real if os.path.isdir(real) else os.path.dirname(real)  # noqa: PTH112, PTH120
    if folder == around.real:  # all of the workspace would be too much for one file
        folder = real
    inside = os.path.relpath(folder, around.real)
    return inside if not inside.startswith("..") else folder
