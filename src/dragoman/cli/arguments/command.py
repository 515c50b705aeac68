"""What a group of commands is made of.

Owns: Command and Group, finding the command that is meant, and a group's help.
Must not know: any particular command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .parser import Parser, UsageError, nearest

if TYPE_CHECKING:
    from dragoman.cli.terminal import Terminal

__all__ = ["Command", "Group", "examples_text"]


def _takes_nothing(_parser: Parser) -> None:
    pass


class Command(NamedTuple):
    """One thing that can be done."""

    summary: str
    run: Callable[[argparse.Namespace, Terminal], int]
    arguments: Callable[[Parser], None] = _takes_nothing
    examples: tuple[str, ...] = ()


class Group(NamedTuple):
    """Commands under one word; a group of one nameless command is that command."""

    name: str
    commands: Mapping[str, Command]
    default: str = ""
    """What is meant where no command is named; empty: the help."""

    @property
    def single(self) -> Command | None:
        """The only command, where there is but one and it has no name of its own."""
        return self.commands.get("")

    def parser(self, name: str) -> Parser:
        """The parser of one command."""
        command = self.commands[name]
        prog = f"dragoman {self.name} {name}".strip()
        parser = Parser(prog, description=command.summary, epilog=examples_text(command.examples))
        parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.arguments(parser)
        return parser

    def run(self, arguments: Sequence[str], terminal: Terminal) -> int:
        """Carry out what the arguments say."""
        words = list(arguments)
        if self.single is not None:
            name = ""
        elif words and words[0] in ("-h", "--help"):
            terminal.line(self.help())
            return 0
        elif words and not words[0].startswith("-"):
            name = self._named(words.pop(0))
        elif self.default:
            name = self.default
        else:
            terminal.line(self.help())
            return 0
        command = self.commands[name]
        return command.run(self.parser(name).read(words, argparse.Namespace()), terminal)

    def _named(self, word: str) -> str:
        if word in self.commands:
            return word
        near = nearest(word, self.commands)
        hint = f"Did you mean {near}?" if near else f"There are: {', '.join(self.commands)}."
        raise UsageError(f"dragoman {self.name} has no command {word!r}.", hint=hint)

    def help(self) -> str:
        """What the group can do."""
        wide = max(len(name) for name in self.commands)
        lines = [f"usage: dragoman {self.name} COMMAND [options]", "", "commands:"]
        for name, command in self.commands.items():
            default = " (the default)" if name == self.default else ""
            lines.append(f"  {name:<{wide}}  {command.summary}{default}")
        examples = [line for command in self.commands.values() for line in command.examples]
        text = examples_text(tuple(examples))
        return "\n".join([*lines, *(["", text] if text else []), "", f"More: dragoman {self.name} COMMAND --help"])


def examples_text(examples: Sequence[str]) -> str:
    """Examples as the end of a help text."""
    return "\n".join(["examples:", *(f"  {line}" for line in examples)]) if examples else ""
