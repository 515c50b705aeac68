"""A rule to offer with a question: "always allow this and the like".

Owns: which rule is the narrowest useful one.
Must not know: who is asked.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import structs

from dragoman.errors import ConfigurationError

from .commands import compile_command, option_name, program_of
from .conditions import compile_rule
from .match import words_in
from .paths import Surroundings
from .rules import Rule
from .shell import read_shell
from .subject import Subject

__all__ = ["suggested_rule"]

_HAVE_SUBCOMMANDS: Final = words_in(
    "apt brew cargo conda docker gh git go helm hg just kubectl make npm pip pip3 pnpm poetry systemctl terraform"
    " uv yarn"
)


def suggested_rule(subject: Subject, around: Surroundings) -> Rule | None:
    """A rule that allows this call and others like it; None where nothing narrower than the tool can be said."""
    try:
        rule = _candidate(subject, around)
        return rule if rule is not None and compile_rule(rule, around).covers(subject) else None
    except (ConfigurationError, OSError, ValueError):  # no address, or no file name: then no rule either
        return None


def _candidate(subject: Subject, around: Surroundings) -> Rule | None:
    base = Rule(action="allow", tool=_literally(subject.tool))
    if subject.unclear:
        return None
    if subject.commands:
        return _of_command(base, subject.commands) if len(subject.commands) == 1 and not subject.urls else None
    if subject.urls:
        return _of_url(base, subject.urls)
    if subject.paths:
        folders = tuple(sorted({_folder(path, around) for path in subject.paths}))
        return None if any(_is_pattern(folder) for folder in folders) else structs.replace(base, path=folders)
    return base


def _of_command(base: Rule, commands: tuple[str, ...]) -> Rule | None:
    command = read_shell(commands[0]).simple
    if command is None:
        return None
    words = [word.text for word in command.words]
    whole = structs.replace(base, command=commands[0].strip(), exact=True)
    count = 2 if program_of(words[0]) in _HAVE_SUBCOMMANDS else 1
    beginning, rest = words[:count], words[count:]
    if any(option_name(word) for word in beginning) or any(word.quoted for word in command.words[:count]):
        return whole
    options = tuple(sorted({name for word in rest if (name := option_name(word))}))
    open_ended = structs.replace(base, command=" ".join(beginning), options=options)
    # Of programs that run others only the whole command can be meant.
    return whole if _runs_others(beginning) else open_ended


def _runs_others(words: list[str]) -> bool:
    return not compile_command(" ".join(words)).covers(read_shell(" ".join([*words, "x"])))


def _of_url(base: Rule, urls: tuple[str, ...]) -> Rule | None:
    hosts: set[str] = set()
    for url in urls:
        scheme, _, rest = url.partition("://")
        hosts.add(f"{scheme}://{rest.split('/')[0].split('?')[0].split('#')[0]}")
    return (
        None if any("*" in host or "@" in host for host in hosts) else structs.replace(base, host=tuple(sorted(hosts)))
    )


def _folder(path: str, around: Surroundings) -> str:
    real = os.path.realpath(os.path.join(around.real, path))  # noqa: PTH118
    folder = real if os.path.isdir(real) else os.path.dirname(real)  # noqa: PTH112, PTH120
    if folder == around.real:  # all of the workspace would be too much for one file
        folder = real
    inside = os.path.relpath(folder, around.real)
    return inside if not inside.startswith("..") else folder


def _is_pattern(text: str) -> bool:
    return any(letter in text for letter in "*?[")


def _literally(name: str) -> str:
    return "".join([f"[{letter}]" if letter in "*?[" else letter for letter in name])
