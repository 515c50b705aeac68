"""What a model may write in one turn: a call of one of its tools, or an answer.

Owns: the grammar of a turn. Where both are allowed, a text is free until it opens a call of one of the tools; from
there on the call is held to that tool's schema, and ends the turn. A text that looks like a call of something else
stays a text.
Must not know: how tools are described to the model, and how calls are read out of the text again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from dragoman.providers.schema.rules import ANNOTATIONS, META, Note, is_object

from .gbnf import Grammar, either, literal, optional, repeated, sequence
from .values import ValueGrammar, written

__all__ = ["CallForm", "Turn", "turn_grammar"]

THINK_OPEN: Final = "<think>"
THINK_CLOSE: Final = "</think>"

_NAMING_NOTHING: Final = frozenset(["type", "properties", "required", *ANNOTATIONS, *META])


class CallForm(Struct, frozen=True):
    """How a call is written: the name and the arguments between three fixed texts."""

    opening: str
    between: str
    closing: str

    def start(self, name: str) -> str:
        """All that stands before the arguments."""
        return self.opening + written(name) + self.between

    def call(self, name: str, arguments: str) -> str:
        """A whole call."""
        return self.start(name) + arguments + self.closing


class Turn(Struct, frozen=True, kw_only=True):
    """What is allowed in a turn."""

    tools: Mapping[str, object] = {}
    """The schemas of the tools that may be called, by name."""
    form: CallForm
    must_call: bool = False
    answer: object = None
    """The schema of the answer; None: any text."""
    thinks: Literal["never", "maybe", "always"] = "never"
    """Whether the model thinks before it does either: between tags that it writes, or from the start on."""


def turn_grammar(turn: Turn) -> tuple[str, dict[str, tuple[Note, ...]]]:
    """The grammar, and what it does not enforce: by the tool's name, and of the answer under an empty one."""
    values = ValueGrammar(Grammar())
    notes: dict[str, tuple[Note, ...]] = {}
    arguments: dict[str, str] = {}
    for name, schema in turn.tools.items():
        arguments[name], notes[name] = values.of(_closed(schema))
    answer: str | None = None
    if turn.answer is not None:
        answer, notes[""] = values.of(turn.answer)
    grammar, form = values.grammar, turn.form
    # The closing quote belongs to the name: a tool's name may be the beginning of another's.
    ends = {
        form.opening + written(name): sequence(literal(form.between), inside, literal(form.closing))
        for name, inside in arguments.items()
    }
    calls = [sequence(literal(start), end) for start, end in ends.items()]
    if turn.must_call and calls:
        root = either(calls)
    elif answer is not None:
        root = either([*calls, answer])
    else:
        root = _text_until(grammar, ends)
    if turn.thinks != "never":
        thought = sequence(_text_until(grammar, {THINK_CLOSE: ""}, must_end=True), repeated(literal("\n"), 0, 2))
        aloud = sequence(literal(THINK_OPEN), optional(literal("\n")), thought)
        root = sequence(optional(aloud) if turn.thinks == "maybe" else thought, root)
    return grammar.text(root), {name: found for name, found in notes.items() if found}


def _closed(schema: object) -> object:
    """The schema of arguments; a tool that names none has none, although its schema would allow any."""
    if is_object(schema) and schema.get("type") == "object" and schema.keys() <= _NAMING_NOTHING:
        return schema if schema.get("properties") else {**schema, "additionalProperties": False}
    return schema


def _text_until(grammar: Grammar, ends: Mapping[str, str], *, must_end: bool = False) -> str:
    """Any text up to the first of these marks, and then what belongs behind it; or, if it may, without any mark.

    It is an automaton: one rule for each beginning of a mark, which is what the text up to there ends with.
    """
    beginnings = sorted({mark[:length] for mark in ends for length in range(len(mark))}, key=len)
    names = {begun: grammar.reserved("text") for begun in beginnings}
    longer: dict[str, dict[str, str]] = {begun: {} for begun in beginnings}
    for text in [*beginnings, *ends]:
        if text:
            longer[text[:-1]][text[-1]] = text
    steps: dict[str, dict[str, str]] = {}
    for begun in beginnings:  # the shorter ones first
        # Where no mark goes on, the next shorter end of the text may be the beginning of one.
        shorter = next((begun[start:] for start in range(1, len(begun) + 1) if begun[start:] in names), None)
        steps[begun] = {**(steps[shorter] if shorter is not None else {}), **longer[begun]}
        options = [
            sequence(literal(letter), ends[reached] if reached in ends else names[reached])
            for letter, reached in sorted(steps[begun].items())
        ]
        options.append(sequence(f"[^{''.join(map(_in_class, sorted(steps[begun])))}]", names[""]))
        grammar.define(names[begun], " | ".join(options if must_end else [*options, '""']))
    return names[""] if names else repeated("[^\\x00]")


def _in_class(letter: str) -> str:
    return letter if letter.isascii() and letter.isalnum() else f"\\U{ord(letter):08X}"
