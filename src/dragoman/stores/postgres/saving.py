"""What writing transactions do.

Owns: saving a snapshot, recording steps, deleting a conversation; who comes first where several want to.
Must not know: connections and colours.

Whoever changes a conversation first locks the row of its chain, so that changes of one conversation happen one after
the other, and those of different conversations side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dragoman.conversation import Message, message_to_json
from dragoman.errors import SnapshotCorruptError, SnapshotNotFoundError, StoreConflictError
from dragoman.stores.entries import JournalEntry
from dragoman.stores.json_form import snapshot_from_json
from dragoman.stores.records import Records
from dragoman.stores.rows import Body, body_from_json, body_to_json, digest_after
from dragoman.stores.searching import searchable_text
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import microseconds

from .grams import grams_of_text
from .spans import MAX_SPANS, Span, cut, extended, flat, joined, spans_of
from .work import Ask, Steps

__all__ = ["Draft", "delete", "drafted", "not_found", "record", "save"]


def not_found(id: str) -> SnapshotNotFoundError:
    return SnapshotNotFoundError(f"The store has no snapshot {id}.")


# --- saving ----------------------------------------------------------------------------------------------------------


class Draft(NamedTuple):
    """A snapshot, ready to be saved."""

    snapshot: Snapshot
    after: int
    body: bytes


def drafted(snapshot: Snapshot, after: int) -> Draft:
    """Raises ConversationError for what cannot be written."""
    return Draft(snapshot, after, body_to_json(snapshot))


def save(records: Records, draft: Draft) -> Steps[None]:
    """Keep the snapshot, unless it is there or does not fit."""
    return (_save_first if draft.snapshot.parent is None else _save_next)(records, draft)


_BEGIN_CHAIN: Final = (
    "INSERT INTO {s}.chain (root, newest, place, rank, at, provider, title) "
    "SELECT %s::uuid, %s::uuid, 1, coalesce(%s::int8, 1 + (SELECT max(rank) FROM {s}.chain), 1), %s, %s, %s "
    "ON CONFLICT (root) DO NOTHING RETURNING (SELECT value FROM {s}.setting WHERE name = 'mode')"
)
_LOCK_CHAIN: Final = (
    "SELECT newest::text, place, (SELECT value FROM {s}.setting WHERE name = 'mode') "
    "FROM {s}.chain WHERE root = %s::uuid FOR UPDATE"
)
_STATE: Final = (
    "SELECT (SELECT body FROM {s}.snapshot WHERE id = %s::uuid), "
    "(SELECT coalesce(max(position), 0) FROM {s}.journal WHERE root = %s::uuid), p.body, p.spans, "
    "(SELECT max(position) FROM {s}.message WHERE root = %s::uuid AND line = p.spans[array_upper(p.spans, 1)][1]), "
    "(SELECT max(line) FROM {s}.message WHERE root = %s::uuid) "
    "FROM (SELECT 1) AS one LEFT JOIN {s}.snapshot p ON p.id = %s::uuid"
)
_BODY: Final = "SELECT body FROM {s}.snapshot WHERE id = %s::uuid"
_ADD_SNAPSHOT: Final = (
    "INSERT INTO {s}.snapshot (id, root, place, spans, summary, body) "
    "VALUES (%s::uuid, %s::uuid, %s, %s::int4[], %s, %s) ON CONFLICT (id) DO NOTHING RETURNING 1"
)
_MOVE_CHAIN: Final = (
    "UPDATE {s}.chain SET newest = %s::uuid, place = %s, provider = %s, title = %s, at = %s, "
    "rank = CASE WHEN %s::int8 IS NULL THEN 1 + (SELECT max(rank) FROM {s}.chain) ELSE greatest(rank, %s::int8) END "
    "WHERE root = %s::uuid"
)
_END_JOURNAL: Final = "DELETE FROM {s}.journal WHERE root = %s::uuid"
_ADD_MESSAGES: Final = "INSERT INTO {s}.message (root, line, position, body) VALUES (%s::uuid, %s, %s, %s)"
_ADD_WORDS: Final = (
    "INSERT INTO {s}.words (root, line, position, text, grams) VALUES (%s::uuid, %s, %s, %s, %s::int4[])"
)


def _save_first(records: Records, draft: Draft) -> Steps[None]:
    snapshot = draft.snapshot
    at, provider, title = _shown(records, draft.snapshot)
    begun = yield Ask(_BEGIN_CHAIN, (snapshot.root, snapshot.id, at, at, provider, title))
    if not begun:
        [[body]] = (yield Ask(_BODY, (snapshot.id,))) or [[None]]
        _settle(records, draft, body)
        return
    records.ensure_mode(begun[0][0])
    if draft.after != 0:
        raise _other_journal(draft, 0)
    yield from _add(records, draft, kept=0, spans=(), line=1, place=1)


def _save_next(records: Records, draft: Draft) -> Steps[None]:
    snapshot, root = draft.snapshot, draft.snapshot.root
    locked = yield Ask(_LOCK_CHAIN, (root,))
    [state] = yield Ask(_STATE, (snapshot.id, root, root, root, snapshot.parent))
    own_body, entries, parent_body, parent_spans, tip, last_line = state
    if own_body is not None:
        _settle(records, draft, own_body)
        return
    if not locked or locked[0][0] != snapshot.parent or parent_body is None:
        message = f"Snapshot {snapshot.parent} is not the newest of its conversation, or is not there."
        raise StoreConflictError(message)
    [[_, place, mode]] = locked
    records.ensure_mode(mode)
    if entries != draft.after:
        raise _other_journal(draft, entries)
    spans = spans_of(parent_spans)
    kept = yield from _kept(records, draft, parent_body, spans)
    if len(spans) >= MAX_SPANS and kept < len(snapshot.messages):
        kept = 0  # a history in too many pieces is slow to read: begin it anew
    # The next message goes behind the last one, unless another history went on from there.
    line = spans[-1].line if spans and tip == kept - 1 == spans[-1].stop - 1 else 1 + (last_line or 0)
    yield from _add(records, draft, kept=kept, spans=cut(spans, kept), line=line, place=place + 1)
    at, provider, title = _shown(records, draft.snapshot)
    yield Ask(_MOVE_CHAIN, (snapshot.id, place + 1, provider, title, at, at, at, root))
    if entries:
        yield Ask(_END_JOURNAL, (root,))


def _settle(records: Records, draft: Draft, stored: bytes | None) -> None:
    """The id is taken: by this very snapshot, or not."""
    if stored is not None:
        body = records.opened(stored, "body", draft.snapshot.id)
        if body == draft.body or _same(body_from_json(body), body_from_json(draft.body)):
            return
    message = f"The id {draft.snapshot.id} belongs to another snapshot."
    raise StoreConflictError(message, hint="Give the new snapshot an id of its own: snapshot.next(…).")


def _same(one: Body, two: Body) -> bool:
    # Bytes may differ where values do not: members in another order, an older version of the form.
    if (one.count, one.digest) != (two.count, two.digest):
        return False
    return snapshot_from_json(bytes(one.snapshot)) == snapshot_from_json(bytes(two.snapshot))


def _other_journal(draft: Draft, entries: int) -> StoreConflictError:
    message = f"The journal of {draft.snapshot.root} has {entries} entries, and the snapshot covers {draft.after}."
    return StoreConflictError(message)


def _kept(records: Records, draft: Draft, parent_body: bytes, spans: Sequence[Span]) -> Steps[int]:
    """How many messages of the parent's history are the first ones of this history, too."""
    messages = draft.snapshot.messages
    try:
        parent = records.body(parent_body, draft.snapshot.parent or "")
    except SnapshotCorruptError:
        return 0  # what is new is safe all the same: its whole history is written again
    if len(messages) >= parent.count == joined(spans) and digest_after(messages[: parent.count]) == parent.digest:
        return parent.count
    stored = yield Ask(MESSAGES, (draft.snapshot.root, flat(spans)))
    kept = 0
    for (line, position, data), message in zip(stored, messages, strict=False):
        try:
            written = records.opened(data, "message", draft.snapshot.root, line, position)
        except SnapshotCorruptError:
            break
        if position != kept or written != message_to_json(message):
            break
        kept += 1
    return kept


MESSAGES: Final = (
    "SELECT m.line, m.position, m.body FROM (SELECT %s::uuid AS root, %s::int4[] AS spans) AS h "
    "CROSS JOIN generate_subscripts(h.spans, 1) AS i JOIN {s}.message m "
    "ON m.root = h.root AND m.line = h.spans[i][1] AND m.position >= h.spans[i][2] AND m.position < h.spans[i][3] "
    "ORDER BY m.position"
)


def _add(records: Records, draft: Draft, *, kept: int, spans: Sequence[Span], line: int, place: int) -> Steps[None]:
    """The rows of the snapshot and of its messages from `kept` on."""
    snapshot, root = draft.snapshot, draft.snapshot.root
    new = snapshot.messages[kept:]
    spans = extended(spans, Span(line, kept, kept + len(new))) if new else spans
    added = yield Ask(
        _ADD_SNAPSHOT,
        (
            snapshot.id,
            root,
            place,
            flat(spans),
            records.sealed_summary(snapshot),
            records.sealed(draft.body, "body", snapshot.id),
        ),
    )
    if not added:  # in another conversation
        _settle(records, draft, None)
    if not new:
        return
    rows = [
        (root, line, position, records.sealed(message_to_json(message), "message", root, line, position))
        for position, message in enumerate(new, kept)
    ]
    yield Ask(_ADD_MESSAGES, rows, many=True)
    if records.mode == "open" and (words := _word_rows(root, line, kept, new)):
        yield Ask(_ADD_WORDS, words, many=True)


def _word_rows(root: str, line: int, first: int, messages: Sequence[Message]) -> list[tuple[object, ...]]:
    """The rows that a search looks at."""
    return [
        (root, line, position, text.encode(), grams_of_text(text))
        for position, message in enumerate(messages, first)
        if (text := searchable_text(message))
    ]


def _shown(records: Records, snapshot: Snapshot) -> tuple[int | None, bytes | None, bytes | None]:
    """What lists are sorted by and what they filter by, where that may be read."""
    if records.mode == "sealed":
        return None, None, None
    return microseconds(snapshot.created_at), snapshot.provider.encode(), snapshot.title.casefold().encode()


# --- the journal -----------------------------------------------------------------------------------------------------

_LOCK_BY_ID: Final = (
    "SELECT c.root::text, c.newest::text, (SELECT value FROM {s}.setting WHERE name = 'mode') "
    "FROM {s}.snapshot s JOIN {s}.chain c ON c.root = s.root WHERE s.id = %s::uuid FOR UPDATE OF c"
)
_POSITION: Final = "SELECT coalesce(max(position), 0) FROM {s}.journal WHERE root = %s::uuid"
_ADD_ENTRIES: Final = "INSERT INTO {s}.journal (root, position, body) VALUES (%s::uuid, %s, %s)"


def record(records: Records, id: str, entries: Sequence[JournalEntry], after: int) -> Steps[int]:
    """Append to the journal, behind position `after`."""
    locked = yield Ask(_LOCK_BY_ID, (id,))
    if not locked:
        raise not_found(id)
    [[root, newest, mode]] = locked
    if newest != id:
        message = f"Snapshot {id} is not the newest of its conversation any more."
        raise StoreConflictError(message)
    records.ensure_mode(mode)
    [[position]] = yield Ask(_POSITION, (root,))
    if position != after:
        message = f"The journal of {root} has {position} entries, not {after}: somebody else went on."
        raise StoreConflictError(message)
    rows = [
        (root, number, records.sealed_entry(entry, root, newest, number))
        for number, entry in enumerate(entries, position + 1)
    ]
    if rows:
        yield Ask(_ADD_ENTRIES, rows, many=True)
    return position + len(rows)


# --- deleting --------------------------------------------------------------------------------------------------------

_TABLES: Final = ("words", "journal", "message", "snapshot", "chain")


def delete(id: str) -> Steps[None]:
    """Remove the conversation of this snapshot."""
    locked = yield Ask(_LOCK_BY_ID, (id,))
    if not locked:
        raise not_found(id)
    for table in _TABLES:
        yield Ask(f"DELETE FROM {{s}}.{table} WHERE root = %s::uuid", (locked[0][0],))  # noqa: S608 -- names of ours
