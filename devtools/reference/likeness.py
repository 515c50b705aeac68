"""Members that a reader already knows from another class.

Owns: finding the classes that one is like: its twin for plain programs (as `ChatClient` of `AsyncChatClient`), and the
protocol that it answers to; and which members are the same there, so that nothing is explained twice.
Must not know: how a page looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .classes import Class, Member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .book import Book, Entry

__all__ = ["Likeness", "likenesses"]


@dataclass(frozen=True)
class Likeness:
    """A class that another is like, and the members that are the same in both."""

    entry: Entry
    members: tuple[Member, ...]


def likenesses(book: Book, entry: Entry) -> list[Likeness]:
    """What this class is like, the nearest first; each member is counted once."""
    found: list[Likeness] = []
    left = book.members(entry)
    for other in _candidates(book, entry):
        known = {member.name: member for member in book.class_of(other).all_members}
        same = tuple([member for member in left if member.name in known and _is_same(member, known[member.name])])
        if same:
            found.append(Likeness(other, same))
            left = [member for member in left if member not in same]
    return found


def _candidates(book: Book, entry: Entry) -> Iterator[Entry]:
    twin = book.named(entry.name.removeprefix("Async"), entry) if entry.name.startswith("Async") else None
    if twin is not None and twin.kind == "class":
        yield twin
    mine = {member.name: member for member in book.class_of(entry).all_members}
    protocols: list[tuple[int, Entry]] = []
    for other in book.all:
        if other.kind != "class" or other in (entry, twin):
            continue
        protocol = book.class_of(other)
        if protocol.kind == "protocol" and _answers(mine, protocol):
            protocols.append((len(protocol.all_members), other))
    if protocols:
        yield max(protocols, key=lambda each: each[0])[1]


def _answers(mine: dict[str, Member], protocol: Class) -> bool:
    """Whether a class with these members has all that the protocol asks for, in the same colour."""
    wanted = protocol.all_members
    return len(wanted) > 1 and all(
        member.name in mine
        and mine[member.name].is_async == member.is_async
        and _is_called_alike(mine[member.name], member)
        for member in wanted
    )


def _is_called_alike(member: Member, other: Member) -> bool:
    ours = [(each.name.lstrip("_"), each.default, each.kind) for each in member.parameters]
    theirs = [(each.name.lstrip("_"), each.default, each.kind) for each in other.parameters]
    return ours == theirs or member.name.startswith("__")


def _is_same(member: Member, other: Member) -> bool:
    """Whether the other says what there is to say about this one."""
    return _is_called_alike(member, other) and (not member.doc or member.doc == other.doc)
