"""A walk through a store that seals everything with the key that is written now.

Owns: `reseal` in both colours, what it reports on the way, and a progress bar for terminals.
Must not know: any particular store, ciphers, keys.

A store seals conversation by conversation, each at once or not at all, so the walk can be broken off anywhere and
others may save meanwhile. Begun again, it finds what is done already and only looks at it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TextIO, TypeAlias

from msgspec import Struct

from .protocol import AsyncConversationStore, ConversationStore, Resealed

_STEP: Final = 20
"""Conversations between two looks at the progress."""
_WIDTH: Final = 30


class ResealProgress(Struct, frozen=True, kw_only=True):
    """How far a walk has come."""

    done: int = 0
    """Conversations that it has gone through."""
    total: int = 0
    """Conversations in the store; others may add to them meanwhile."""
    unreadable: tuple[str, ...] = ()
    """Conversations that no key opens, or that are corrupt. They are left as they are."""
    cursor: str | None = None
    """Where it stands: give it to `reseal` to go on here in another process. None: at the end."""


Progress: TypeAlias = Callable[[ResealProgress], None]


def reseal(store: ConversationStore, *, progress: Progress | None = None, cursor: str | None = None) -> ResealProgress:
    """Seal the whole store with the key that is written now, telling `progress` after every few conversations.

    Raises what the store raises, and KeyboardInterrupt: what is done by then stays done.
    """
    so_far = ResealProgress(cursor=cursor)
    while True:
        so_far = _further(so_far, store.reseal(limit=_STEP, cursor=so_far.cursor))
        if progress is not None:
            progress(so_far)
        if so_far.cursor is None:
            return so_far


async def areseal(
    store: AsyncConversationStore, *, progress: Progress | None = None, cursor: str | None = None
) -> ResealProgress:
    """`reseal` for an async store."""
    so_far = ResealProgress(cursor=cursor)
    while True:
        so_far = _further(so_far, await store.reseal(limit=_STEP, cursor=so_far.cursor))
        if progress is not None:
            progress(so_far)
        if so_far.cursor is None:
            return so_far


def _further(so_far: ResealProgress, step: Resealed) -> ResealProgress:
    done = so_far.done + step.done
    return ResealProgress(
        done=done,
        total=max(step.total, done),
        unreadable=so_far.unreadable + step.unreadable,
        cursor=step.cursor,
    )


def progress_bar(stream: TextIO | None = None) -> Progress:
    """A `progress` that draws a bar on a terminal, and writes one line at the end anywhere else."""
    target = sys.stderr if stream is None else stream
    on_terminal = target.isatty()

    def draw(progress: ResealProgress) -> None:
        at_end = progress.cursor is None
        if not (on_terminal or at_end):
            return
        share = 1.0 if at_end or not progress.total else progress.done / progress.total
        filled = int(share * _WIDTH)
        bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] " if on_terminal else ""
        unreadable = f", {len(progress.unreadable)} unreadable" if progress.unreadable else ""
        start, end = ("\r" if on_terminal else ""), ("\n" if at_end else "")
        target.write(f"{start}{bar}{progress.done} of {progress.total} conversations sealed{unreadable}{end}")
        target.flush()

    return draw
