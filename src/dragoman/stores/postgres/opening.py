"""What both colours of the store are opened with.

Owns: the options, checked; errors that both colours raise.
Must not know: psycopg (it may be missing, and then this says how to get it), connections.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from dragoman.errors import ConfigurationError, StoreError, StoreUnavailableError

from .schema import checked_schema
from .troubles import Failure, Stage

__all__ = ["MAX_IDLE", "Attempt", "Options", "closed", "driver_needed", "exhausted"]

MAX_IDLE: Final = 300.0
"""Seconds after which an idle connection is not trusted any more: firewalls forget them without a word."""


class Options(Struct, frozen=True, kw_only=True):
    """How to reach the server, and how long to wait for it."""

    schema: str
    timeout: float
    connections: int
    prepared_statements: bool

    def __post_init__(self) -> None:
        checked_schema(self.schema)
        if not 0 < self.timeout < 1e6 or self.connections < 1:
            message = "A store needs a timeout of some seconds and at least one connection."
            raise ConfigurationError(message)


@contextmanager
def driver_needed() -> Generator[None]:
    """Around the import of what needs psycopg."""
    try:
        yield
    except ImportError as error:
        message = "A store in PostgreSQL needs the package `psycopg`."
        raise ConfigurationError(message, hint="Install it: pip install 'dragoman[postgres]'.") from error


class Attempt:
    """How far one try has come."""

    __slots__ = ("lost", "stage")

    def __init__(self) -> None:
        self.stage: Stage = "connecting"
        self.lost: bool = True

    def failed(self, error: Exception, *, silent: bool) -> Failure:
        return Failure(error, self.stage, self.lost, silent)


def closed() -> StoreError:
    """The store was used after it was closed."""
    message = "The store is closed."
    return StoreError(message, hint="Open it again to use it.")


def exhausted(options: Options) -> StoreUnavailableError:
    """All connections were in use for too long."""
    message = f"All {options.connections} connections of the store were in use for {options.timeout:g} seconds."
    return StoreUnavailableError(message, hint="Use fewer threads or tasks at once, or open it with connections=….")
