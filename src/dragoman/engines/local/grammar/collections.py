"""Arrays and objects.

Owns: how many items come one after the other, and which properties in which order.
Must not know: schemas. What an item or a value is, is an expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .characters import spelled
from .gbnf import Grammar, Impossible, either, literal, optional, repeated, sequence

__all__ = ["Member", "any_key_but", "array_of", "object_of"]

_COMMA: Final = literal(", ")
MOST_FURTHER: Final = 100
"""Items or entries where no schema says how many: a small model may not find the end by itself."""

_PLAIN: Final = r'"\\\x00-\x1F'
"""What has to be escaped in a string, as it stands in a class."""
_LONGEST_KEY: Final = 100


class Member(NamedTuple):
    """A named property and its value."""

    name: str
    value: str
    required: bool = False

    @property
    def written(self) -> str:
        return sequence(literal(f'"{spelled(self.name)}": '), self.value)


def array_of(grammar: Grammar, prefix: Sequence[str], rest: str | None, least: int = 0, most: int | None = None) -> str:
    """An array of these items, and any number of further ones; `rest` None: no further ones."""
    if rest is None:
        most = len(prefix) if most is None else min(most, len(prefix))
    if most is not None and most < least:
        raise Impossible
    known = prefix if most is None else prefix[:most]
    inside = ""
    if rest is not None:
        further = grammar.rule("item", rest) if "|" in rest else rest
        left = None if most is None else most - len(known)
        inside = _further(further, max(0, least - len(known)), left, first=not known)
    for place in reversed(range(len(known))):
        inside = sequence(_COMMA if place else "", known[place], inside)
        if place >= least:
            inside = optional(inside)
    return sequence(literal("["), inside, literal("]"))


def _further(item: str, least: int, most: int | None, *, first: bool) -> str:
    most = max(MOST_FURTHER, least) if most is None else most
    if not first:
        return repeated(sequence(_COMMA, item), least, most)
    if most == 0:
        return ""
    inside = sequence(item, repeated(sequence(_COMMA, item), max(0, least - 1), most - 1))
    return inside if least else optional(inside)


def object_of(
    grammar: Grammar, members: Sequence[Member], entry: str | None, least: int = 0, most: int | None = None
) -> str:
    """An object of these properties in this order, and then of any number of other entries; None: of none.

    The number of properties is limited only where none is named.
    """
    if not members:
        inside = _further(entry, least, most, first=True) if entry is not None else ""
        if entry is None and least:
            raise Impossible
        return sequence(literal("{"), inside, literal("}"))
    # What may follow when something stands before it: from the end to the start.
    tail = repeated(sequence(_COMMA, entry), 0, MOST_FURTHER) if entry is not None else ""
    tails = [tail]  # of the members from the second on: nothing stands before the first
    for member in reversed(members[1:]):
        following = sequence(_COMMA, member.written)
        tail = sequence(following if member.required else optional(following), tail)
        tail = grammar.rule("rest", tail)
        tails.insert(0, tail)
    # What may come first: everything up to and including the first property that must be there.
    options: list[str] = []
    for place, member in enumerate(members):
        options.append(sequence(member.written, tails[place]))
        if member.required:
            break
    else:
        if entry is not None:
            options.append(sequence(entry, tails[-1]))
        options.append("")
    return sequence(literal("{"), either(options), literal("}"))


# --- keys -------------------------------------------------------------------------------------------------------------


def any_key_but(grammar: Grammar, names: Sequence[str]) -> str:
    """A key, quotes included, that is none of these names. It has no escapes, so that there is one way to write it."""
    letter = grammar.rule("key-char", f"[^{_PLAIN}]")
    plain = sorted({name for name in names if spelled(name) == name})
    return sequence(
        literal('"'), _other_than(grammar, plain, letter) if plain else repeated(letter, 0, _LONGEST_KEY), literal('"')
    )


def _other_than(grammar: Grammar, names: Sequence[str], letter: str) -> str:
    """The end of a key that is none of these ends."""
    starts = sorted({name[0] for name in names if name})
    options = [sequence(f"[^{_PLAIN}{''.join(map(_in_class, starts))}]", repeated(letter, 0, _LONGEST_KEY))]
    for start in starts:
        ends = [name[1:] for name in names if name.startswith(start)]
        rest = _other_than(grammar, ends, letter)
        options.append(sequence(literal(start), grammar.rule("key-end", rest) if rest else ""))
    return either(options if "" in names else [*options, ""])


def _in_class(letter: str) -> str:
    point = ord(letter)
    if letter.isascii() and letter.isalnum():
        return letter
    return f"\\x{point:02X}" if point <= 0xFF else f"\\u{point:04X}" if point <= 0xFFFF else f"\\U{point:08X}"
