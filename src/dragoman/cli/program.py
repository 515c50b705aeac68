"""From the process's arguments to an exit code: choosing the command, signals, warnings and errors.

The first word decides: if it is the name of a command, that command runs; otherwise the whole line is a question. To
ask a question that is also a command name: `dragoman ask models` or `dragoman -- models`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final, NoReturn, cast

import dragoman.chat
import dragoman.simulator
from dragoman._programs import ignore_relative_path
from dragoman._version import __version__

from .arguments import Parser, UsageError, add_asking, find_nearest
from .terminal import Terminal, to_line

COMMANDS: Final = {
    "ask": "ask a question; the same as no command at all",
    "chat": "talk with a model, interactively",
    "web": "talk with a model in the browser",
    "batch": "submit many questions at once; answers within a day, at half the price",
    "models": "list models and what they can do",
    "tools": "list tools, show a schema, check them against a model",
    "keys": "store, list and remove API keys",
    "history": "list, show, search, export and delete conversations",
    "usage": "show the tokens and cost of your conversations",
    "worker": "run conversation turns for a fleet",
    "fleet": "submit turns to a fleet, wait for them, approve, cancel, watch; status",
    "mcp": "serve tools over MCP; list and call tools of MCP servers",
    "skills": "list and validate skills",
    "config": "show the configuration and where it comes from",
    "local": "the model on this machine: list, pull, remove",
    "simulate": "start a local server that speaks all dialects, for tests",
    "doctor": "check keys, network, versions, store and model",
    "completion": "print a completion script for your shell",
}
_MODULES: Final = {
    **dict.fromkeys(("keys", "config", "doctor", "completion"), "setup"),
    "local": "models",
    "worker": "fleet",
    "skills": "tools",
    "usage": "history",
}
"""The modules of commands that have no module of their own name."""
EXAMPLES: Final = (
    'dragoman "What is the capital of France?"',
    'cat notes.txt | dragoman "Sum this up in three lines"',
    'dragoman -T calculator "What is 12.5 % of 3,440?"',
    'dragoman --schema "name, age int, tags list" "Invent a person"',
    'dragoman -c "And in one sentence?"',
    "dragoman chat -T toolkit",
)
_NOTES: Final = """\
The first word decides; to ask a question that is also a command name: dragoman ask models
Exit codes: 0 done, 1 failed, 2 usage, 3 no key, 4 approval needed, 5 limit, 6 unreachable, 7 no answer,
130 interrupted. More: dragoman COMMAND --help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (the process's own arguments by default) and return its exit code."""
    ignore_relative_path()
    arguments = sys.argv[1:] if argv is None else list(argv)
    terminal = Terminal()
    try:
        with _unwind_on_sigterm():
            code = _run(arguments, terminal)
        terminal.stdout.flush()
    except SystemExit as ended:  # argparse has shown a help text
        code = ended.code if isinstance(ended.code, int) else 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 -- any error becomes one line here
        from .failures import code_of, report  # loads the catalogue of models, for the hints

        code = code_of(error)
        if isinstance(error, KeyboardInterrupt):
            terminal.end_line()
        elif not isinstance(error, BrokenPipeError):  # whose reader knows
            words = arguments[: arguments.index("--")] if "--" in arguments else arguments
            report(error, terminal, debug="--debug" in words)
        if isinstance(error, OSError):  # standard output may be closed, or on a full disk
            _discard_output(terminal)
    return code


def _run(arguments: list[str], terminal: Terminal) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    first = arguments[0] if arguments else ""
    if first in ("-V", "--version"):
        terminal.line(f"dragoman {__version__}")
        return 0
    if first in ("-h", "--help") or arguments[:2] == ["ask", "--help"] or (not arguments and terminal.in_is_tty):
        terminal.line(make_root_parser().format_help().rstrip())
        return 0
    if first == "simulate":  # it has its own arguments
        try:
            return dragoman.simulator.main([word for word in arguments[1:] if word != "--debug"])
        except SystemExit as ended:
            if ended.code:
                raise UsageError("dragoman simulate was given wrong arguments.", hint="See above.") from None
            raise
    if first in COMMANDS and first != "ask":
        parser, words = load_command(first).find_command(arguments[1:])
    else:
        _refuse_slips(arguments)
        parser, words = make_root_parser(), arguments[first == "ask" :]
    namespace = parser.read(words)
    with _warnings_as_lines(terminal, debug=getattr(namespace, "debug", False)):
        return (parser.run and parser.run(namespace, terminal)) or 0


def make_root_parser() -> Parser:
    """The parser of questions, whose help is that of the program."""
    usage = 'dragoman [options] "question"\n       dragoman COMMAND [options]'
    parser = load_command("ask", Parser("dragoman", usage=usage))
    parser.description = "One conversation, any model, tools that behave the same everywhere."
    commands = "\n".join([f"  {name:<{max(map(len, COMMANDS))}}  {about}" for name, about in COMMANDS.items()])
    parser.epilog = f"commands:\n{commands}\n\n{parser.epilog}\n\n{_NOTES}"
    parser.add_argument("-V", "--version", action="version", version=f"dragoman {__version__}", help="show the version")
    return parser


def load_command(name: str, parser: Parser | None = None) -> Parser:
    """The parser of a command or a group of commands; loads its module."""
    about = f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}."
    parser = parser or Parser(f"dragoman {name}", description=about)
    if name == "ask":
        parser.describe(_ask, about, *EXAMPLES)
        add_asking(parser)
    elif name != "simulate":
        module = import_module(f"dragoman.cli.{_MODULES.get(name, name)}")
        getattr(module, f"declare_{name}")(parser)
    return parser


def _ask(given: Any, terminal: Terminal) -> int:
    return import_module("dragoman.cli.ask").ask(given, terminal)  # `--help` does not need it


def _refuse_slips(arguments: list[str]) -> None:
    """Do not send a misspelt command to a model, which takes time and may cost something."""
    word = arguments[0] if arguments else ""
    near = find_nearest(word, COMMANDS, cutoff=0.75) if word.isalpha() and word.isascii() else ""
    if near and (len(arguments) == 1 or arguments[1] in load_command(near).commands):
        hint = f"Did you mean dragoman {near}? To ask a model: dragoman ask {word}"
        raise UsageError(f"There is no command {word!r}.", hint=hint)


def _discard_output(terminal: Terminal) -> None:
    """Discard the buffer of standard output, which would raise at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, terminal.stdout.fileno())
        os.close(nowhere)


class Terminated(KeyboardInterrupt):
    """SIGTERM: child processes are ended and the conversation is saved on the way out.

    A KeyboardInterrupt, because everything below lets that pass; SystemExit is caught where tools run.
    """


def _end(_number: int, _frame: object) -> NoReturn:
    raise Terminated


@contextmanager
def _unwind_on_sigterm() -> Generator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _end) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _warnings_as_lines(terminal: Terminal, *, debug: bool) -> Generator[None]:
    """Print log records and the library's own warnings, each once, as lines; hide other warnings.

    Of an error there is a line, too, and its traceback with `debug`.
    """
    import logging  # not for `--help`
    import traceback

    from dragoman._crashes import name_error

    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_where: object, **_further: object) -> None:
        text = to_line(str(message))
        if issubclass(category, dragoman.chat.UntrustedWarning):
            return  # whatever uses it asks
        if issubclass(category, dragoman.chat.ConfigWarning) and text not in shown:
            shown.add(text)
            terminal.say(f"dragoman: {text}", "yellow")

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            style = "yellow" if record.levelno >= logging.WARNING else "dim"
            error = None if record.exc_info is None else record.exc_info[1]
            what = "" if error is None else f": {name_error(error)}{'' if debug else ' (--debug shows where)'}"
            terminal.note(f"dragoman: {record.getMessage()}{what}", style)
            if error is not None and debug:
                terminal.say(record.exc_text or "".join(traceback.format_exception(error)), style)

    before, logging.lastResort = logging.lastResort, cast("Any", Lines())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", dragoman.chat.ConfigWarning)
            warnings.showwarning = show
            yield
    finally:
        logging.lastResort = before
