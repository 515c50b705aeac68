"""What killed writers leave behind, and how it is tidied up.

Owns: finding litter and conversations without a head.
Must not know: when it was left. Whoever writes holds a lock, so what lies there while the lock is free was left.

Nothing that may have been acknowledged is removed. A log without its head is the first save of a writer that died at
the last step, or a head that somebody lost: the head is made again from what the log holds as a whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from dragoman.errors import SnapshotCorruptError, SnapshotError
from dragoman.stores.summary import Unreadable

from .chain import Chain, ReplacedError
from .folder import TEMPORARY
from .frames import Head, log_origin
from .locks import Locks
from .log import Log, TornError
from .seals import Seals
from .shelf import GONE, HEAD, JOURNAL, Shelf, head_name, journal_name, log_name

__all__ = ["sign_of_trouble", "tidy", "with_odd_logs"]

_ID: Final = r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_LOG: Final = re.compile(_ID + r"\.([0-9]{1,9})\.log")
_JOURNAL: Final = re.compile(_ID + re.escape(JOURNAL + TEMPORARY))
_SIGN: Final = re.compile(_ID + f"(?:{re.escape(HEAD + TEMPORARY)}|{re.escape(GONE)})")


def sign_of_trouble(name: str) -> str | None:
    """The conversation that a name in heads/ says somebody is changing, or died while changing; None for others."""
    found = _SIGN.fullmatch(name)
    return None if found is None else found[1]


def with_odd_logs(shelf: Shelf) -> set[str]:
    """Conversations that have a log and no head, more than one log, or a journal that somebody began to replace."""
    names, heads = shelf.logs.names(), set(shelf.heads.names())
    logs = Counter([found[1] for name in names if (found := _LOG.fullmatch(name)) is not None])
    odd = {root for root, number in logs.items() if number > 1 or head_name(root) not in heads}
    return odd | {found[1] for name in names if (found := _JOURNAL.fullmatch(name)) is not None}


def tidy(shelf: Shelf, locks: Locks, seals: Seals, roots: Iterable[str]) -> tuple[Unreadable, ...]:
    """Remove what nobody needs and mend what can be mended, where nobody writes; what is left for a person to look at.

    A store that can only be read is left as it is.
    """
    assert shelf.locks is not None
    left: list[Unreadable] = []
    for root in sorted(roots):
        try:
            locks.if_free(shelf.locks, root, partial(_tidy_one, shelf, Chain(shelf, root, seals)))
        except SnapshotError as error:
            left.append(Unreadable(id=root, problem=str(error)))
        except (OSError, ReplacedError):
            continue
    return tuple(left)


def _tidy_one(shelf: Shelf, chain: Chain) -> None:
    if shelf.heads.has(chain.root + GONE):
        chain.bury()
    if not shelf.heads.has(head_name(chain.root)):
        found = [_LOG.fullmatch(name) for name in shelf.logs.names()]
        numbers = [int(each[2]) for each in found if each is not None and each[1] == chain.root]
        if numbers and _head_again(shelf, chain, max(numbers)) is None:
            for number in numbers:
                shelf.logs.remove_quietly(log_name(chain.root, number))
    shelf.logs.remove_quietly(journal_name(chain.root) + TEMPORARY)
    with suppress(SnapshotCorruptError):  # the list reports it
        chain.settle(None)


def _head_again(shelf: Shelf, chain: Chain, number: int) -> Head | None:
    """A head for a log that has none; None if the log is not even one record long, so that nothing is lost.

    Raises SnapshotCorruptError if it is damaged in another way than by a writer that died.
    """
    file = shelf.logs.open(log_name(chain.root, number))
    assert shelf.store is not None
    if file is None:
        return None
    head: Head | None = None
    origin = log_origin(shelf.store, chain.root)
    with Log(file) as log:
        try:
            for record, offset in log.records():
                parts = log.parts(record, offset)
                record.check(origin, parts)
                head = Head(
                    store=shelf.store,
                    root=chain.root,
                    newest=record.id,
                    generation=number,
                    length=offset + record.size,
                    last=offset,
                    count=record.position + 1,
                    digest=record.digest,
                    summary=parts[0],
                )
        except TornError:
            pass  # by a writer that died; what comes before it is whole
    if head is not None:
        chain.commit(head)
    return head
