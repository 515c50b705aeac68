"""Crashes: what of the program's own code failed during a call, so that the program is told and not only the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dragoman._crashes import log_crash

if TYPE_CHECKING:
    import logging

    from .definition import AnyTool
    from .run import ToolRun


class Crash(NamedTuple):
    """An error that the function of a tool, a check or a middleware did not mean for the model."""

    message: str
    error: BaseException


def tell(crash: Crash, run: ToolRun, logger: logging.Logger) -> None:
    """Log a crash with its traceback, once in a run for each kind of error."""
    kind = (crash.message, type(crash.error))
    if kind not in run.crashes:
        run.crashes.add(kind)
        log_crash(logger, "%s", crash.message, error=crash.error)


def crash_of(tool: AnyTool, run: ToolRun, error: BaseException) -> Crash:
    """The crash of a tool's function."""
    message = f"tool {tool.name} crashed"
    if tool.takes_context and run.deps is None:
        from .arguments.functions import deps_of  # programs without tools need not load it

        if wanted := deps_of(tool.function):
            message += f": it wants context.deps of type {wanted}, and deps= was not given"
    return Crash(message, error)


def word(text: str) -> str:
    """A name as the model wrote it; quoted if it contains blanks or unprintable characters."""
    return text if text.isprintable() and " " not in text else repr(text)
