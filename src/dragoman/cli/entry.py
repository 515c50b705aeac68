"""From the process's arguments to an exit code.

Owns: which command is meant, signals, and what becomes of an error.
Must not know: what the commands do.

The first word decides: if it is the name of a command, that command runs; otherwise all of it is a question. A question
that happens to be such a name is asked with `dragoman ask models` or `dragoman -- models`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from dragoman._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .terminal import Terminal

__all__ = ["main"]

_NEAR: Final = 0.8
"""How near a single word must be to the name of a command to be taken for a slip rather than for a question."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (the process's own arguments by default) and return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] in (["--version"], ["-V"]):
        if sys.stdout is not None:  # a program may be started without
            sys.stdout.write(f"dragoman {__version__}\n")
        return 0
    from .terminal import Terminal

    terminal = Terminal()
    try:
        code = _guarded(arguments, terminal)
        terminal.stdout.flush()
    except BrokenPipeError as error:
        code = _code_of(error)
        _write_nowhere(terminal)
    except OSError as error:  # a full disk behind standard output, say
        from .failures import report

        code = report(error, terminal)
        _write_nowhere(terminal)
    return code


def _guarded(arguments: list[str], terminal: Terminal) -> int:
    """Carry it out; whatever goes wrong becomes one line and an exit code."""
    from .signals import ending_on_sigterm

    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    try:
        with ending_on_sigterm():
            return _run(arguments, terminal)
    except SystemExit as ended:  # argparse has shown a help text
        return ended.code if isinstance(ended.code, int) else 0
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        terminal.end_line()
        return _code_of(error)
    except Exception as error:  # noqa: BLE001 -- the last place where an error can become one line
        from .failures import report

        return report(error, terminal, debug="--debug" in options)


def _run(arguments: list[str], terminal: Terminal) -> int:
    from .groups import GROUPS, group

    first = arguments[0] if arguments else ""
    if first == "help":
        arguments = [*arguments[1:2], "--help"]
        first = arguments[0]
    if first in GROUPS:
        return group(first).run(arguments[1:], terminal)
    if first in ("-h", "--help") or (not arguments and terminal.in_is_tty):
        from .help_text import help_text

        terminal.line(help_text())
        return 0
    _refuse_slips(arguments)
    return group("ask").run(arguments, terminal)


def _refuse_slips(arguments: list[str]) -> None:
    """A misspelt command is not sent to a model, which may cost something and takes a while."""
    from .arguments import UsageError, nearest
    from .groups import GROUPS, group

    word = arguments[0] if arguments else ""
    if not word.isalpha() or not word.isascii():
        return
    near = nearest(word, GROUPS, cutoff=_NEAR)
    if not near:
        return
    alone = len(arguments) == 1
    if alone or (len(arguments) > 1 and arguments[1] in group(near).commands):
        message = f"There is no command {word!r}."
        raise UsageError(message, hint=f"Did you mean dragoman {near}? To ask a model: dragoman ask {word}")


def _code_of(error: BaseException) -> int:
    from .exit_codes import code_of

    return code_of(error)


def _write_nowhere(terminal: Terminal) -> None:
    """Nobody reads standard output any more; what is still in its buffer must not raise at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, terminal.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
