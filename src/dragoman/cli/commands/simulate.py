"""`dragoman simulate`: a local server that speaks all dialects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, UsageError

if TYPE_CHECKING:
    import argparse

    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP"]


def _run(_arguments: argparse.Namespace, terminal: Terminal) -> int:
    return GROUP.run([], terminal)


class _Simulating(Group):
    """The simulator's own command, with its own arguments."""

    __slots__ = ()

    def run(self, arguments: Sequence[str], terminal: Terminal) -> int:
        from dragoman.simulator.command import main

        words = [word for word in arguments if word != "--debug"]
        try:
            return main(words)
        except SystemExit as ended:
            if ended.code:
                raise UsageError("dragoman simulate was given wrong arguments.", hint="See above.") from None
            raise


_COMMANDS: Final[Mapping[str, Command]] = {
    "": Command("Start a local server that speaks all dialects.", _run, examples=("dragoman simulate --port 8900",))
}

GROUP: Final = _Simulating("simulate", _COMMANDS)
