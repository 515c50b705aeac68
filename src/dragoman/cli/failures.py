"""Errors in one line, and exit codes: what happened, and which command to run next."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from dragoman import errors
from dragoman.chat import default_model
from dragoman.providers import PROVIDERS, ProfileRow

from .program import Terminated
from .terminal import Terminal

LOCAL_MODEL: Final = "local:qwen2.5-coder-1.5b"
"""What answers where there is no key."""
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

# The first that fits counts, so what is special comes before what is general.
_CODES: Final[tuple[tuple[tuple[type[BaseException], ...], int], ...]] = (
    ((errors.MissingKeyError, errors.AuthenticationError), NO_KEY),
    ((errors.LocalModelError,), FAILED),
    ((errors.ConfigurationError, errors.ModelNotFoundError, errors.ToolDefinitionError), USAGE),
    ((errors.ToolNotFoundError, errors.ToolConflictError, errors.SkillNotFoundError), USAGE),
    ((errors.SnapshotNotFoundError, errors.InvalidSnapshotIDError), USAGE),
    ((errors.LimitReachedError, errors.ContextTooLongError), LIMIT),
    ((errors.ConnectionFailedError, errors.RequestTimeoutError), UNREACHABLE),
    ((errors.RateLimitError, errors.OverloadedError), UNREACHABLE),
    ((errors.ContentFilteredError, errors.InvalidAnswerError), NO_ANSWER),
    ((Terminated,), TERMINATED),
    ((KeyboardInterrupt,), INTERRUPTED),
    ((BrokenPipeError,), BROKEN_PIPE),
)


def code_of(error: BaseException) -> int:
    if type(error) is errors.ProviderError and (error.status or 0) >= 500:
        return UNREACHABLE
    if isinstance(error, errors.LocalModelError) and error.reason == "download":
        return UNREACHABLE
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)


def report(error: BaseException, terminal: Terminal, *, debug: bool = False) -> int:
    """Say what happened and what to do next, and give the exit code."""
    if debug:
        terminal.write_error("".join(traceback.format_exception(error)))
    message, hint = describe(error)
    terminal.say(terminal.wrap(f"dragoman: {message} {hint}"), "red")
    return code_of(error)


def describe(error: BaseException) -> tuple[str, str]:
    if isinstance(error, errors.DragomanError):
        hint = next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), error.hint)
        text = hint if isinstance(hint, str) else hint(error)
        for said, here in _IN_CODE:
            text = said.sub(here, text)
        return _end_sentence(error.message), text
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted.", "Continue with: dragoman -c"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or type(error).__name__}.", "Check the file, its directory and its permissions."
    message = f"This should not have happened: {type(error).__name__}: {error}."
    return message, "Run it again with --debug, and report what it shows."


def _end_sentence(text: str) -> str:
    return text if text.rstrip()[-1:] in (*".!?:…", "") else f"{text.rstrip()}."


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
    usual = "Check [mcp.servers] in the configuration; `dragoman doctor` looks closer."
    return usual if error.hint == type(error).next_step else error.hint


_HINTS: Final[dict[type[errors.DragomanError], str | Callable[[Any], str]]] = {
    errors.MissingKeyError: _hint_missing_key,
    errors.AuthenticationError: lambda error: f"Store another key with: dragoman keys set {error.provider or 'NAME'}",
    errors.ModelNotFoundError: _hint_unknown_model,
    errors.RateLimitError: _hint_later,
    errors.OverloadedError: _hint_later,
    errors.ConnectionFailedError: "Check the network and the address; `dragoman doctor` looks closer.",
    errors.RequestTimeoutError: "Try again, or raise [timeouts] in the configuration.",
    errors.LimitReachedError: "Continue with: dragoman -c",
    errors.ContextTooLongError: "Begin a new conversation, or use a model with a larger window.",
    errors.InvalidAnswerError: "Ask again, loosen the schema, or use a larger model.",
    errors.StoreConflictError: "Another program went on with this conversation; continue with -c.",
    errors.LossyConversionError: "Leave --strict out, or choose another model: -m MODEL",
    errors.InvalidConversationError: "Begin a new conversation, or continue another one (dragoman history list).",
    errors.SnapshotNotFoundError: "See dragoman history list.",
    errors.ToolConflictError: "Leave one of the two out (-T).",
    errors.SkillNotFoundError: "See dragoman skills list.",
    errors.SkillError: "Check it with: dragoman skills validate DIRECTORY",
    errors.McpError: _hint_server,
}
_IN_CODE: Final = (
    (re.compile(r"Or say adapt=True to go on without it\."), "Or go on without it: -o adapt true"),
    (re.compile(r"model='([^']*)'\."), r"-m \1"),
    (re.compile(r"base_url='([^']*)'\."), r"--base-url \1"),
    (re.compile(r"; code that knows better may pass \w+=True"), ""),
)
"""What hints say to those who write code, and how it is said here."""


# --- which models there are -------------------------------------------------------------------------------------------


def can_run_local() -> bool:
    """Whether this installation can run the model on this machine."""
    return find_spec("xllamacpp") is not None


def list_models(provider: str) -> list[str]:
    """The models of a provider that surely exist: its default one, and those that the catalogue names in full."""
    names = [default_model(provider)] if default_model(provider) else []
    if provider in PROVIDERS:
        package = import_module(f"dragoman.providers.{PROVIDERS[provider].dialect}.profiles")
        rows = [row for row in cast("tuple[ProfileRow, ...]", package.ROWS) if row.provider == provider]
        names += [name for row in rows for name in row.models if not set(name) & set("*?[")]
    return list(dict.fromkeys(names))
