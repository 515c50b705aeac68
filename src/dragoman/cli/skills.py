"""`dragoman skills`: list and validate skills."""

from __future__ import annotations

import argparse

from dragoman.chat import load_config
from dragoman.toolkit import SkillSummary, validate_skill

from .arguments import Parser, add_json, expand_path
from .output import print_list
from .settings import read_settings
from .terminal import Terminal


def declare(parser: Parser) -> None:
    """The commands about skills."""
    parser.default = "list"
    add_json(parser.add_command("list", _list, "List the skills that can be loaded.", "dragoman skills list"))
    example = "dragoman skills validate ~/.agents/skills/pdf"
    validate = parser.add_command("validate", _validate, "Say what is wrong with skills.", example)
    validate.add_argument("paths", nargs="+", metavar="DIRECTORY", help="a skill's directory, or its SKILL.md")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    store = read_settings(load_config()).skills
    otherwise = f"There are no skills. Looked into: {', '.join(store.directories)}"
    print_list(terminal, store.list(), _show, as_json=arguments.json, otherwise=otherwise)
    for problem in store.problems:
        terminal.say(f"dragoman: {problem}", "yellow")
    return 0


def _show(skill: SkillSummary) -> dict[str, object]:
    return {"skill": skill.name, "where": skill.location, "what for": skill.description}


def _validate(arguments: argparse.Namespace, terminal: Terminal) -> int:
    wrong = 0
    for path in arguments.paths:
        problems = validate_skill(expand_path(path))
        wrong += bool(problems)
        terminal.line("\n  ".join([f"{path}: {'not good' if problems else 'good'}", *map(str, problems)]))
    return 1 if wrong else 0
