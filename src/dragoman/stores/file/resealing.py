"""Sealing a conversation again: with another key, for the first time, or with other summaries.

Owns: writing its log anew beside the old one.
Must not know: ciphers and keys, and when it is done; the caller holds the conversation's lock.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import structs

from dragoman.stores.json_form import snapshot_from_json
from dragoman.stores.summary import summary_of

from .chain import Chain
from .frames import Head, Record, log_origin, record_to_bytes
from .journal_file import batches_of, replace_journal
from .log import Located
from .seals import Seals
from .shelf import Shelf, log_name

__all__ = ["reseal_chain"]

_Parts: TypeAlias = tuple[bytes, bytes, bytes]


def reseal_chain(shelf: Shelf, chain: Chain, head: Head, seals: Seals) -> None:
    """Write what is not sealed with the key that is written now."""
    with chain.log(head) as log:
        located = [(each, log.parts(each.record, each.offset)) for each in log.records()]
    batches = batches_of(shelf, head)
    log_is_current = all(seals.is_current(parts) for _, parts in located)
    journal_is_current = all(seals.sealing.is_current(payload) for _, payload in batches)
    if log_is_current and journal_is_current:
        return

    def write() -> None:
        if not journal_is_current:
            replace_journal(shelf, head, seals, batches)
        if not log_is_current:
            new, data = _resealed_log(head, located, seals)
            chain.create_log(new.generation, data)
            chain.commit(new)
            shelf.logs.remove_quietly(log_name(head.root, head.generation))

    chain.change(head, write)


def _resealed_log(head: Head, located: list[tuple[Located, _Parts]], seals: Seals) -> tuple[Head, bytes]:
    origin = log_origin(head.store, head.root)
    written: list[bytes] = []
    moved: dict[int, int] = {}
    length, last, digest, summary = 0, 0, origin, head.summary
    for (record, offset), parts in located:
        record.check(origin, parts)
        moved[offset] = last = length
        new = _resealed(head, record, parts, seals)
        # A base that is no record would have been refused by whoever reads it; it stays as wrong as it was.
        base = moved.get(record.base, record.base)
        data, digest = record_to_bytes(
            record.id, position=record.position, base=base, parts=new, before=digest, origin=origin
        )
        written.append(data)
        length, summary = length + len(data), new[0]
    generation = head.generation + 1
    return (
        structs.replace(head, generation=generation, length=length, last=last, digest=digest, summary=summary),
        b"".join(written),
    )


def _resealed(head: Head, record: Record, parts: _Parts, seals: Seals) -> _Parts:
    store, id, position = head.store, record.id, record.position
    body = seals.body(store, parts[1], id, position)
    # From the body, not from the old summary: that may have been plain, and anybody's.
    summary = structs.replace(summary_of(snapshot_from_json(bytes(body.snapshot))), message_count=body.count)
    return (
        seals.sealed_summary(store, summary, position),
        seals.sealed(store, "body", seals.opened(store, "body", parts[1], id, position), id, position),
        seals.sealed(store, "messages", seals.opened(store, "messages", parts[2], id, position), id, position),
    )
