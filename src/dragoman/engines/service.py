"""What a provider offers beside its models' answers (vectors, batches, files): reading what it says.

Owns: the error for what cannot be read. Must not know: what is asked for.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from dragoman.errors import ProtocolError

from .http import AnyHttpEngine


@contextmanager
def understanding(engine: AnyHttpEngine, what: str) -> Generator[None]:
    """Inside the block, what is not of the form that it should have is a ProtocolError."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"{what} of {engine.name} cannot be understood: {error}."
        provider, model = engine.connection.provider.name, engine.connection.model
        raise ProtocolError(message, provider=provider, model=model) from None
