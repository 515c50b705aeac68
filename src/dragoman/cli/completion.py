"""`dragoman completion`: a completion script for a shell, made by shtab from the parsers themselves."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Final

from .arguments import Parser, UsageError, add_asking
from .program import COMMANDS, load_command
from .terminal import Terminal

SHELLS: Final = ("bash", "zsh", "fish")


def declare(parser: Parser) -> None:
    """The argument of the command."""
    examples = ('eval "$(dragoman completion bash)"', "dragoman completion fish | source")
    parser.describe(_run, "Print a completion script.", *examples)
    parser.add_argument("shell", choices=SHELLS, help="whose script is printed")


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if find_spec("shtab") is None:
        raise UsageError("Completion needs shtab, which is not installed.", hint="pip install 'dragoman[cli]'")
    import shtab

    root = Parser("dragoman")  # with every command in it
    for name, about in COMMANDS.items():
        load_command(name, root.add_group(name, about))
    add_asking(root)  # last, since the first word completes to a command
    terminal.answer(shtab.complete(root, arguments.shell) + "\n")
    return 0
