"""`dragoman skills`: list and validate skills."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser
from dragoman.cli.paths import user_path

if TYPE_CHECKING:
    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP"]


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.chat.config import load_config
    from dragoman.cli.settings import skill_settings
    from dragoman.cli.tables import print_json, print_table
    from dragoman.cli.tool_choice import skill_store

    store = skill_store(skill_settings(load_config()), Path.cwd())
    skills = store.list()
    if arguments.json:
        print_json(terminal, skills)
    elif skills:
        print_table(terminal, ("skill", "where", "what for"), [(s.name, s.location, s.description) for s in skills])
    else:
        terminal.say(f"There are no skills. Looked into: {', '.join(store.directories)}")
    for problem in store.problems:
        terminal.say(f"dragoman: {problem}", "yellow")
    return 0


def _validate_arguments(parser: Parser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DIRECTORY", help="a skill's directory, or its SKILL.md")


def _validate(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.toolkit.skills import validate_skill

    wrong = 0
    for path in arguments.paths:
        problems = validate_skill(user_path(path))
        wrong += bool(problems)
        terminal.line(f"{path}: {'good' if not problems else 'not good'}")
        for problem in problems:
            terminal.line(f"  {problem}")
    return 1 if wrong else 0


GROUP: Final = Group(
    "skills",
    {
        "list": Command("List the skills that can be loaded.", _list, _list_arguments, ("dragoman skills list",)),
        "validate": Command(
            "Say what is wrong with skills.",
            _validate,
            _validate_arguments,
            ("dragoman skills validate ~/.agents/skills/pdf",),
        ),
    },
    default="list",
)
