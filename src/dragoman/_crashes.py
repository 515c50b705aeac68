"""How the program is told that a function of its own has failed where no error can be raised."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from ._printable import escape_controls

if TYPE_CHECKING:
    import logging


def log_crash(logger: logging.Logger, message: str, *args: object, error: BaseException) -> None:
    """Log a warning with the traceback of this error, also if logging was never set up: Python then writes to stderr.

    The error's text may come from a stranger, so its control characters are escaped, whichever handler writes it.
    """
    if not logger.isEnabledFor(30):  # WARNING, without importing logging
        return
    file, line, function, _ = logger.findCaller(stacklevel=2)
    info = (type(error), error, error.__traceback__)
    record = logger.makeRecord(logger.name, 30, file, line, message, args, info, function)
    record.exc_text = _traceback_of(error)  # a formatter writes this instead of making its own
    logger.handle(record)


def _traceback_of(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error)
    except Exception:  # noqa: BLE001 -- an exception is any code
        lines = [f"{type(error).__name__} (its traceback cannot be shown)"]
    return escape_controls("".join(lines)).rstrip("\n")


def name_error(error: BaseException) -> str:
    """The kind of an error and its text, which may be empty."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 -- as above
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
