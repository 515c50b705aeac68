"""`dragoman worker`: carries out the turns of a fleet, until it is told to stop."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import dragoman.fleet
from dragoman.errors import DragomanError
from dragoman.fleet import Agent

from .arguments import Parser, UsageError, suggest
from .fleet import add_database, find_database
from .terminal import Terminal, to_line

if TYPE_CHECKING:
    from dragoman.fleet import Worker  # which needs an extra; the help does not

_EXAMPLE: Final = (
    "Write `agents = {'support': Agent('openai:gpt-5')}` into a module, and name it: dragoman worker shop:agents"
)


def declare_worker(parser: Parser) -> None:
    """The options of a worker."""
    about = "Carry out turns of conversations for a fleet; stop with Ctrl-C or SIGTERM, twice to stop at once."
    examples = ("dragoman worker shop:agents", "dragoman worker shop:worker")
    parser.describe(_run, about, *examples)
    parser.add_argument("place", metavar="MODULE:ATTRIBUTE", help="a Worker, or agents by name")
    parser.add_argument("--concurrency", type=int, metavar="N", help="turns at once, where agents are named (20)")
    add_database(parser)


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    found = _load(arguments.place)
    if isinstance(found, dragoman.fleet.Worker):
        if arguments.postgres or arguments.schema or arguments.concurrency is not None:
            message = f"{arguments.place} is a Worker, which has its own database and concurrency."
            raise UsageError(message, hint="Say them there, or name a mapping of agents.")
        worker = found
    else:
        url, options = find_database(arguments)
        worker = dragoman.fleet.Worker(
            url, found, concurrency=20 if arguments.concurrency is None else arguments.concurrency, **options
        )

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            style = "dim" if record.levelno < logging.WARNING else "yellow"
            terminal.note(f"dragoman: {to_line(record.getMessage())}", style)
            if record.exc_info is not None:
                terminal.note("".join(traceback.format_exception(record.exc_info[1])), style)

    log, handler = logging.getLogger("dragoman.fleet"), Lines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        worker.serve()
    finally:
        log.removeHandler(handler)
    return 0


def _load(place: str) -> Worker | Mapping[str, Agent]:
    """What the user's module has under this name; also a module that lies in the working directory."""
    name, colon, attribute = place.partition(":")
    if not colon or not name or not attribute:
        raise UsageError(f"{place!r} is not MODULE:ATTRIBUTE.", hint=_EXAMPLE)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except DragomanError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"There is no module {error.name!r}.", hint="Check the name before the colon.") from None
        message = f"{name} cannot be loaded: {type(error).__name__}: {error}."
        raise UsageError(message, hint="Run it with Python first; --debug shows where it fails.") from error
    found: object = getattr(module, attribute, None)
    if found is None:
        raise UsageError(f"{name} has no {attribute!r}.", hint=suggest(attribute, vars(module), _EXAMPLE))
    if isinstance(found, dragoman.fleet.Worker):
        return found
    if isinstance(found, Mapping) and found:
        agents = cast("Mapping[str, object]", found)
        if all(isinstance(each, Agent) for each in agents.values()):
            return cast("Mapping[str, Agent]", agents)
    raise UsageError(f"{place} is neither a Worker nor a mapping of names to Agents.", hint=_EXAMPLE)
