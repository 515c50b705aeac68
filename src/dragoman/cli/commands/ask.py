"""`dragoman ask`, and `dragoman` without a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser
from dragoman.cli.arguments.talking import Talking, add_asking

if TYPE_CHECKING:
    import argparse

    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP"]


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.ask import ask

    assert isinstance(arguments, Talking)
    return ask(arguments, terminal)


class _Asking(Group):
    """The one command whose arguments have a type of their own, and whose help is that of the program."""

    __slots__ = ()

    def parser(self, name: str) -> Parser:
        from dragoman.cli.help_text import asking_parser

        return asking_parser()

    def run(self, arguments: Sequence[str], terminal: Terminal) -> int:
        return _run(self.parser("").read(arguments, Talking()), terminal)


_COMMANDS: Final[Mapping[str, Command]] = {"": Command("Ask a question.", _run, add_asking)}

GROUP: Final = _Asking("ask", _COMMANDS)
