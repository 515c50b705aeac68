"""Errors in one line.

Owns: what is said about an error at the command line, where the next step is a command rather than code.
Must not know: where the error came from.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Final, cast

from dragoman import errors

from .exit_codes import code_of
from .terminal import Terminal, one_line

__all__ = ["described", "report"]


def report(error: BaseException, terminal: Terminal, *, debug: bool = False) -> int:
    """Say what happened and what to do next, and give the exit code."""
    if debug:
        terminal.write_error("".join(traceback.format_exception(error)))
    message, hint = described(error)
    terminal.say(one_line(f"dragoman: {message} {hint}"), "red")
    return code_of(error)


def described(error: BaseException) -> tuple[str, str]:
    """What happened, and what to do next."""
    if isinstance(error, errors.DragomanError):
        for kind, hint in _HINTS:
            if isinstance(error, kind):
                return error.message, hint(error)
        return error.message, error.hint
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or type(error).__name__}.", "Check the file, its directory and its permissions."
    message = f"This should not have happened: {type(error).__name__}: {error}."
    return message, "Run it again with --debug, and report what it shows."


# --- what to do next --------------------------------------------------------------------------------------------------


def _missing_key(error: errors.DragomanError) -> str:
    from dragoman.providers.catalogue import PROVIDERS

    from .local_model import DEFAULT_MODEL, INSTALL, is_there

    name = cast("errors.MissingKeyError", error).provider
    if "hosts =" in error.hint:  # there is a key, for another host
        return error.hint
    known = PROVIDERS.get(name)
    variable = f", set {known.key_variables[0]}," if known is not None and known.key_variables else ""
    local = f"use the local model: -m {DEFAULT_MODEL}" if is_there() else f"install the local model: {INSTALL}"
    return f"Store one with `dragoman keys set {name}`{variable} or {local}"


def _refused_key(error: errors.DragomanError) -> str:
    name = cast("errors.AuthenticationError", error).provider
    return f"Store another key with: dragoman keys set {name or 'PROVIDER'}"


def _unknown_model(error: errors.DragomanError) -> str:
    from .model_names import near_models

    found = cast("errors.ModelNotFoundError", error)
    near = near_models(f"{found.provider}:{found.model}") if found.provider and found.model else []
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}See: dragoman models list"


def _try_later(error: errors.DragomanError) -> str:
    wait = cast("errors.ProviderError", error).retry_after
    return f"Try again in {wait:.0f} seconds." if wait else "Try again in a while."


_HINTS: Final[tuple[tuple[type[errors.DragomanError], Callable[[errors.DragomanError], str]], ...]] = (
    (errors.MissingKeyError, _missing_key),
    (errors.AuthenticationError, _refused_key),
    (errors.ModelNotFoundError, _unknown_model),
    (errors.RateLimitError, _try_later),
    (errors.OverloadedError, _try_later),
    (errors.ConnectionFailedError, lambda _: "Check the network and the address; `dragoman doctor` looks closer."),
    (errors.RequestTimeoutError, lambda _: "Try again, or raise [timeouts] in the configuration."),
    (errors.LimitReachedError, lambda _: "Continue with: dragoman -c"),
    (errors.ContextTooLongError, lambda _: "Begin a new conversation, or use a model with a larger window."),
    (errors.InvalidAnswerError, lambda _: "Ask again, loosen the schema, or use a larger model."),
    (errors.StoreConflictError, lambda _: "Another program went on with this conversation; continue with -c."),
    (errors.ConcurrentUseError, lambda _: "Wait for the answer."),
)
