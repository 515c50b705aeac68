"""`dragoman chat`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group
from dragoman.cli.arguments.talking import Talking, add_talking

if TYPE_CHECKING:
    import argparse

    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP"]


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.chat.loop import chat

    assert isinstance(arguments, Talking)
    return chat(arguments, terminal)


class _Chatting(Group):
    """A command whose arguments have a type of their own."""

    __slots__ = ()

    def run(self, arguments: Sequence[str], terminal: Terminal) -> int:
        return _run(self.parser("").read(arguments, Talking()), terminal)


_COMMANDS: Final[Mapping[str, Command]] = {
    "": Command(
        "Talk with a model: /help says what can be typed, Ctrl-C stops an answer, Ctrl-D leaves.",
        _run,
        add_talking,
        ("dragoman chat", "dragoman chat -m anthropic:claude-sonnet-4-5 -T Read -T Bash", "dragoman chat -c"),
    )
}

GROUP: Final = _Chatting("chat", _COMMANDS)
