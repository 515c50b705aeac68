"""Two errors at once.

Owns: which of them the caller gets to see: the first one, with the second told beside it.
Must not know: what either is about.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["beside"]


@contextmanager
def beside(error: BaseException | None) -> Generator[None]:
    """For what must still be done while an error is on its way: its own trouble does not take the error's place."""
    try:
        yield
    except Exception as trouble:
        # GeneratorExit is nobody's error: somebody has left a stream, and the trouble is all there is to tell.
        if error is None or isinstance(error, GeneratorExit):
            raise
        error.add_note(f"Then this went wrong too: {type(trouble).__name__}: {trouble}")
