"""What a program reads on standard error if it has never set up logging."""

from __future__ import annotations

import io
import logging
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr


@contextmanager
def never_set_up() -> Generator[io.StringIO]:
    """Standard error, while no logger has a handler. Inside a test: pytest adds its own when the test begins."""
    loggers = [logging.root, *[logging.getLogger(name) for name in ("dragoman", "dragoman.tools")]]
    before = [(each, each.handlers, each.propagate) for each in loggers]
    for each in loggers:
        each.handlers, each.propagate = [], True
    try:
        with redirect_stderr(io.StringIO()) as stderr:
            yield stderr
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate


def crashes(stderr: io.StringIO) -> list[str]:
    """The lines that name what crashed, and the errors; without those of the tracebacks."""
    return [line for line in stderr.getvalue().splitlines() if not line.startswith((" ", "Traceback"))]
