"""Errors as one line with a next step, and exit codes."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, cast

from dragoman import errors
from dragoman.chat import default_model
from dragoman.providers import PROVIDERS, ProfileRow

from .program import Terminated
from .terminal import Terminal

LOCAL_MODEL: Final = "local:qwen2.5-coder-1.5b"
"""The model that answers if there is no key."""
LOCAL_INSTALL: Final = "pip install 'dragoman[local]'"

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NO_KEY: Final = 3
NEEDS_APPROVAL: Final = 4
LIMIT: Final = 5
UNREACHABLE: Final = 6
NO_ANSWER: Final = 7
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143


def code_of(error: BaseException) -> int:
    if type(error) is errors.ProviderError and (error.status or 0) >= 500:
        return UNREACHABLE
    if isinstance(error, errors.LocalModelError) and error.reason == "download":
        return UNREACHABLE
    return _find_row(error)[0]


def report(error: BaseException, terminal: Terminal, *, debug: bool = False) -> int:
    """Print what happened and what to do next, and return the exit code."""
    if debug:
        terminal.write_error("".join(traceback.format_exception(error)))
    message, hint = describe(error)
    terminal.say(terminal.wrap(f"dragoman: {message} {hint}"), "red")
    return code_of(error)


def describe(error: BaseException) -> tuple[str, str]:
    """What happened, and what to do next."""
    if isinstance(error, errors.DragomanError):
        hint = _find_row(error)[1]
        text = error.hint if hint is None else hint if isinstance(hint, str) else hint(error)
        for pattern, replacement in _IN_CODE:
            text = pattern.sub(replacement, text)
        message = error.message.rstrip()
        return message if message[-1:] in (*".!?:…", "") else f"{message}.", text
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted.", "Continue with: dragoman -c"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or type(error).__name__}.", "Check the file, its directory and its permissions."
    message = f"This should not have happened: {type(error).__name__}: {error}."
    return message, "Run it again with --debug, and report what it shows."


def error_object(error: BaseException) -> dict[str, object]:
    message, hint = describe(error)
    return {"type": type(error).__name__, "message": message, "hint": hint, "exit_code": code_of(error)}


# --- what to do next --------------------------------------------------------------------------------------------------


def _hint_missing_key(error: errors.MissingKeyError) -> str:
    if "hosts =" in error.hint:  # there is a key, for another host
        return f"A{error.hint[error.hint.find('allow the host') + 1 :]}"
    known = PROVIDERS.get(error.provider)
    variable = f", set {known.key_variables[0]}," if known is not None and known.key_variables else ""
    local = f"use the local model: -m {LOCAL_MODEL}" if can_run_local() else f"install the local model: {LOCAL_INSTALL}"
    return f"Store one with `dragoman keys set {error.provider}`{variable} or {local}"


def _hint_unknown_model(error: errors.ModelNotFoundError) -> str:
    near: list[str] = []
    if error.provider and error.model:
        names = [name for name in list_models(error.provider) if name != error.model]
        near = [f"{error.provider}:{name}" for name in get_close_matches(error.model, names, n=3, cutoff=0.5)]
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}See: dragoman models list"


def _hint_later(error: errors.ProviderError) -> str:
    return f"Try again in {error.retry_after:.0f} seconds." if error.retry_after else "Try again in a while."


def _hint_server(error: errors.McpError) -> str:
    usual = "Check [mcp.servers] in the configuration; `dragoman doctor` checks the servers."
    return usual if error.hint == type(error).next_step else error.hint


Hint: TypeAlias = str | Callable[[Any], str] | None
"""None: the error's own hint."""

# The first row that matches counts, so special errors come before general ones.
_ROWS: Final[dict[type[BaseException], tuple[int, Hint]]] = {
    errors.MissingKeyError: (NO_KEY, _hint_missing_key),
    errors.AuthenticationError: (NO_KEY, lambda e: f"Store another key with: dragoman keys set {e.provider or 'NAME'}"),
    errors.LocalModelError: (FAILED, None),
    errors.ConfigurationError: (USAGE, None),
    errors.ModelNotFoundError: (USAGE, _hint_unknown_model),
    errors.ToolDefinitionError: (USAGE, None),
    errors.ToolNotFoundError: (USAGE, None),
    errors.ToolConflictError: (USAGE, "Leave one of the two out (-T)."),
    errors.SkillNotFoundError: (USAGE, "See dragoman skills list."),
    errors.SkillError: (FAILED, "Check it with: dragoman skills validate DIRECTORY"),
    errors.SnapshotNotFoundError: (USAGE, "See dragoman history list."),
    errors.InvalidSnapshotIDError: (USAGE, None),
    errors.LimitReachedError: (LIMIT, "Continue with: dragoman -c"),
    errors.ContextTooLongError: (LIMIT, "Start a new conversation, or use a model with a larger context window."),
    errors.ConnectionFailedError: (UNREACHABLE, "Check the network and the address; `dragoman doctor` looks closer."),
    errors.RequestTimeoutError: (UNREACHABLE, "Try again, or raise [timeouts] in the configuration."),
    errors.RateLimitError: (UNREACHABLE, _hint_later),
    errors.OverloadedError: (UNREACHABLE, _hint_later),
    errors.ContentFilteredError: (NO_ANSWER, None),
    errors.InvalidAnswerError: (NO_ANSWER, "Ask again, loosen the schema, or use a larger model."),
    errors.StoreConflictError: (FAILED, "Another program continued this conversation; continue with -c."),
    errors.LossyConversionError: (FAILED, "Leave --strict out, or choose another model: -m MODEL"),
    errors.InvalidConversationError: (FAILED, "Start a new conversation, or continue another (dragoman history list)."),
    errors.McpError: (FAILED, _hint_server),
    Terminated: (TERMINATED, None),
    KeyboardInterrupt: (INTERRUPTED, None),
    BrokenPipeError: (BROKEN_PIPE, None),
}
_IN_CODE: Final = (
    (re.compile(r"Or \w+ adapt=True to \w+( on)? without it\."), "Or continue without it: -o adapt true"),
    (re.compile(r"model='([^']*)'\."), r"-m \1"),
    (re.compile(r"base_url='([^']*)'\."), r"--base-url \1"),
    (re.compile(r"; code may pass \w+=True"), ""),
)
"""Parts of hints for programmers, and what they are on the command line."""


def _find_row(error: BaseException) -> tuple[int, Hint]:
    return next((row for kind, row in _ROWS.items() if isinstance(error, kind)), (FAILED, None))


# --- which models there are -------------------------------------------------------------------------------------------


def can_run_local() -> bool:
    """Whether this installation can run the model on this machine."""
    return find_spec("xllamacpp") is not None


def list_models(provider: str) -> list[str]:
    """The models of a provider that surely exist: its default, and those that the catalogue names in full."""
    names = [default_model(provider)] if default_model(provider) else []
    if provider in PROVIDERS:
        package = import_module(f"dragoman.providers.{PROVIDERS[provider].dialect}.profiles")
        rows = [row for row in cast("tuple[ProfileRow, ...]", package.ROWS) if row.provider == provider]
        names += [name for row in rows for name in row.models if not set(name) & set("*?[")]
    return list(dict.fromkeys(names))
