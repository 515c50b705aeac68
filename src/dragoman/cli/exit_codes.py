"""What the command's exit code says.

Owns: the codes, and which error has which.
Must not know: how errors are shown.
"""

from __future__ import annotations

from typing import Final

from dragoman import errors

from .signals import Terminated

__all__ = [
    "BROKEN_PIPE",
    "FAILED",
    "INTERRUPTED",
    "LIMIT",
    "MEANINGS",
    "NEEDS_APPROVAL",
    "NO_ANSWER",
    "NO_KEY",
    "OK",
    "TERMINATED",
    "UNREACHABLE",
    "USAGE",
    "code_of",
]

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

MEANINGS: Final = {
    OK: "done",
    FAILED: "something failed",
    USAGE: "the arguments or the configuration are wrong",
    NO_KEY: "there is no key, or the provider refuses it",
    NEEDS_APPROVAL: "a tool call needed approval and nobody could be asked",
    LIMIT: "a limit was reached; continue with -c",
    UNREACHABLE: "the provider cannot be reached, or is busy; try again later",
    NO_ANSWER: "the model or its provider declined, or its answer does not fit the schema",
    INTERRUPTED: "interrupted by Ctrl-C; continue with -c",
    BROKEN_PIPE: "whoever read the output stopped reading",
    TERMINATED: "told to end (SIGTERM); continue with -c",
}

# The first that fits counts, so what is special comes before what is general.
_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (errors.MissingKeyError, NO_KEY),
    (errors.AuthenticationError, NO_KEY),
    (errors.ModelNotFoundError, USAGE),
    (errors.LocalModelError, FAILED),
    (errors.ConfigurationError, USAGE),
    (errors.ToolDefinitionError, USAGE),
    (errors.ToolNotFoundError, USAGE),
    (errors.ToolConflictError, USAGE),
    (errors.SkillNotFoundError, USAGE),
    (errors.InvalidSnapshotIDError, USAGE),
    (errors.SnapshotNotFoundError, USAGE),
    (errors.LimitReachedError, LIMIT),
    (errors.ContextTooLongError, LIMIT),
    (errors.ConnectionFailedError, UNREACHABLE),
    (errors.RequestTimeoutError, UNREACHABLE),
    (errors.RateLimitError, UNREACHABLE),
    (errors.OverloadedError, UNREACHABLE),
    (errors.ContentFilteredError, NO_ANSWER),
    (errors.InvalidAnswerError, NO_ANSWER),
    (Terminated, TERMINATED),
    (KeyboardInterrupt, INTERRUPTED),
    (BrokenPipeError, BROKEN_PIPE),
)


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    if type(error) is errors.ProviderError and (error.status or 0) >= 500:
        return UNREACHABLE
    if isinstance(error, errors.LocalModelError) and error.reason == "download":
        return UNREACHABLE
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
