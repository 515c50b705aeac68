"""A project's instructions for models: AGENTS.md and the like, which become part of the system prompt, and what its
dragoman.toml says to models.

They came with the project, and the model follows them. So unless the project is trusted (`trusted_projects` of the
user's own configuration), the user is asked; a file of another user, or a link out of the project, is never used.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.chat import LoadedConfig, user_file
from dragoman.errors import ConfigurationError

from .terminal import Terminal, to_line

_NAMES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""A directory's first one is used."""
_LARGEST: Final = 64 * 1024
"""Bytes of one file, which is sent with every request."""


class _Found(Struct, frozen=True):
    name: str
    """Relative to the top of the project; with the name of the setting in it."""
    path: Path
    text: str


def read_instructions(
    loaded: LoadedConfig, terminal: Terminal, directory: Path | None = None
) -> tuple[LoadedConfig, str]:
    """Returns the configuration, with what the file of an untrusted project says to models, and the instructions of the
    directory's project for the system prompt. Both are without what the user refuses."""
    found = [] if directory is None else list(_find(directory.resolve(), terminal))
    offered = list(_list_offered(loaded))
    unknown = [*offered, *[each for each in found if not loaded.trusts(each.path)]]
    if unknown and not _agree(unknown, terminal):
        offered, found = [], [each for each in found if each not in unknown]
    if offered:
        loaded = loaded.accept_offered()
    if offered or found:
        terminal.note(f"The model gets the instructions in {_list_names([*offered, *found])}.")
    texts = [f"Instructions of this project, from {each.name}:\n\n{each.text}" for each in found]
    return loaded, "\n\n".join(texts)


def _list_offered(loaded: LoadedConfig) -> Iterator[_Found]:
    for layer in loaded.layers:
        for path, setting in layer.offered.items():
            if layer.file is not None and path in loaded.offered:
                text = setting.value if isinstance(setting.value, str) else json.dumps(setting.value, indent=2)
                yield _Found(f"{'.'.join(path)} of {layer.file.path.name}", layer.file.path, text)


def _find(directory: Path, terminal: Terminal) -> Iterator[_Found]:
    """The files from the top of the project down to the directory, so that the nearest comes last."""
    inside = [directory, *directory.parents]
    tops = [place for place in inside if (place / ".git").exists()]
    top = tops[0] if tops else directory
    for place in reversed(inside[: inside.index(top) + 1]):
        if str(place) == os.path.expanduser("~"):  # noqa: PTH111 -- does not raise without a home
            continue  # the home directory is not a project
        path = next((place / name for name in _NAMES if (place / name).exists()), None)
        if path is None:
            continue
        name = str(path.relative_to(top))
        try:
            refused = _refuse(path, top)
            text = "" if refused else path.read_text("utf-8-sig", "replace").strip()
        except OSError as error:
            refused, text = f"it cannot be read ({error.strerror})", ""
        if refused:
            terminal.say(f"dragoman: {to_line(name)} is not used: {refused}.", "yellow")
        elif text:
            yield _Found(name, path, text)


def _refuse(path: Path, top: Path) -> str:
    """Why a file must not be used; empty if it may."""
    status = path.stat()
    if not path.resolve().is_relative_to(top):
        return "it is a link that leads out of the project"
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if os.name == "posix" and status.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    return f"it is longer than {_LARGEST // 1024} kB" if status.st_size > _LARGEST else ""


def _agree(found: Sequence[_Found], terminal: Terminal) -> bool:
    """Ask the user whether the model should get these."""
    if not terminal.in_is_tty:
        terminal.note(f"{_list_names(found)} not used: nobody could be asked. {_say_how_to_trust(found)}", "yellow")
        return False
    sizes = ", ".join([f"{to_line(each.name)} ({len(each.text.splitlines())} lines)" for each in found])
    terminal.say(f"This project has instructions for models: {sizes}.", "bold")
    while True:
        answer = terminal.ask("Should the model follow them? [y]es, [n]o, [s]how: ")
        match (answer or "n").strip().lower():
            case "y" | "yes":
                terminal.note(_say_how_to_trust(found))
                return True
            case "n" | "no":
                return False
            case "s" | "show":
                for each in found:
                    terminal.say(f"{each.name}:", "bold")
                    terminal.say(each.text)
            case _:
                terminal.say("Answer y, n or s.")


def _list_names(found: Sequence[_Found]) -> str:
    return to_line(" and ".join([each.name for each in found]))


def _say_how_to_trust(found: Sequence[_Found]) -> str:
    top, where = (
        min([each.path.parent for each in found], key=lambda place: len(place.parts)),
        "your own configuration file",
    )
    with suppress(ConfigurationError):  # a user without a home directory
        where = str(user_file())
    return f'To use them without being asked, write trusted_projects = ["{top}"] into {where}.'
