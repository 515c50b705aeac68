"""What a model is sent as its system prompt: one table for every way to begin or to continue a conversation.

A road takes a cell, sends a turn, and says what arrived and what the conversation names afterwards. Several modules
have roads; each checks at import that it has those that the table gives to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from dragoman.conversation import Conversation


def function(_run: object) -> str:
    """Instructions by a function."""
    return "F"


KINDS: Final[dict[str, dict[str, Any]]] = {
    "text": {"system": "NEW"},
    "function": {"system": function},
    "both": {"system": ["NEW", function]},
    "none": {},
    "empty": {"system": ""},
}
"""The instructions of whoever is in charge, as options."""
OWN: Final = ("OLD", None)
"""The conversation's own system prompt, from somebody else or from an earlier version of the program."""


class Sent(NamedTuple):
    """What arrived at the model, and what the conversation (a snapshot, if there is a store) names afterwards."""

    wire: str | None
    kept: str | None


class Cell(NamedTuple):
    kind: str
    own: str | None

    @property
    def options(self) -> dict[str, Any]:
        """The options of whoever is in charge."""
        return dict(KINDS[self.kind])

    @property
    def before(self) -> dict[str, Any]:
        """The options of who began the conversation."""
        return {} if self.own is None else {"system": self.own}

    @property
    def conversation(self) -> Conversation:
        return Conversation(self.own)


CLIENT: Final[dict[Cell, Sent]] = {
    Cell("text", "OLD"): Sent("NEW", "NEW"),
    Cell("text", None): Sent("NEW", "NEW"),
    Cell("function", "OLD"): Sent("F", None),
    Cell("function", None): Sent("F", None),
    Cell("both", "OLD"): Sent("NEW\n\nF", "NEW"),
    Cell("both", None): Sent("NEW\n\nF", "NEW"),
    Cell("none", "OLD"): Sent("OLD", "OLD"),
    Cell("none", None): Sent(None, None),
    Cell("empty", "OLD"): Sent(None, None),
    Cell("empty", None): Sent(None, None),
}
"""A client, a page, an agent behind a tool …: the conversation's own is sent only where there are no instructions."""
TOOK_OVER: Final[dict[Cell, Sent]] = {**CLIENT, Cell("none", "OLD"): Sent(None, None)}
"""An agent that took over: never the instructions of the one before it."""

_CHAT, _LOOP, _WEB = "chat.test_instructions", "loop.test_instructions", "web.test_instructions"
_CLI, _FLEET, _TEMPORAL = "cli.test_system", "fleet.test_instructions", "temporal.test_instructions"
_TEXTS: Final = {cell: sent for cell, sent in CLIENT.items() if cell.kind in ("text", "none", "empty")}
ROADS: Final[dict[str, tuple[str, dict[Cell, Sent]]]] = {
    "a client": (_CHAT, CLIENT),
    "a streamed turn": (_CHAT, CLIENT),
    "an async client": (_CHAT, CLIENT),
    "a question": (_CHAT, CLIENT),
    "a client from a configuration": (_CHAT, CLIENT),
    "stateless": (_CHAT, CLIENT),
    "stateless, resumed": (_CHAT, CLIENT),
    "assigned": (_CHAT, CLIENT),
    "restored by id": (_CHAT, CLIENT),
    "restored from a snapshot": (_CHAT, CLIENT),
    "restored, and restored elsewhere without instructions": (_CHAT, CLIENT),
    "restored and approved": (_CHAT, CLIENT),
    "restored after a crash": (_CHAT, CLIENT),
    "a fork": (_CHAT, CLIENT),
    "a fork of a fork that was restored": (_CHAT, CLIENT),
    "switched": (_CHAT, CLIENT),
    "handed over in the turn": (_CHAT, TOOK_OVER),
    "handed over before": (_CHAT, TOOK_OVER),
    "handed over, stateless": (_CHAT, TOOK_OVER),
    "handed over and restored": (_CHAT, TOOK_OVER),
    "handed over, restored and approved": (_CHAT, TOOK_OVER),
    "handed over, forked and switched": (_CHAT, TOOK_OVER),
    "an agent behind a tool": (_CHAT, CLIENT),
    "an agent behind a tool, restored and approved": (_CHAT, CLIENT),
    "a client as a tool": (_CHAT, CLIENT),
    "an orchestrator": (_LOOP, CLIENT),
    "a durable run": (_LOOP, CLIENT),
    "a front end": (_WEB, CLIENT),
    "a front end, approved": (_WEB, CLIENT),
    "a front end, handed over": (_WEB, TOOK_OVER),
    "the page": (_WEB, CLIENT),
    "the page, handed over": (_WEB, TOOK_OVER),
    "the command line": (_CLI, _TEXTS),
    "a fleet": (_FLEET, CLIENT),
    "a fleet, approved": (_FLEET, CLIENT),
    "a fleet, handed over": (_FLEET, TOOK_OVER),
    "Temporal": (_TEMPORAL, CLIENT),
    "Temporal, approved": (_TEMPORAL, CLIENT),
}
"""Each road: the module that goes it, and what is sent there. A program's command line has no functions."""

Road = Callable[[Cell], Sent]


def exercised_here(module: str, roads: Mapping[str, Any]) -> list[str]:
    """The names of these roads; an error if they are not those that the table gives to this module."""
    expected = {name for name, (where, _) in ROADS.items() if module.endswith(where)}
    assert set(roads) == expected, set(roads) ^ expected
    return list(roads)


def cells(road: str) -> dict[Cell, Sent]:
    return ROADS[road][1]


def check(road: str, go: Road) -> None:
    """Go this road for each cell."""
    found = {cell: go(cell) for cell in cells(road)}
    assert found == cells(road)


def missing() -> list[str]:
    """The modules of the table that do not exist, or do not say that they go its roads."""
    here = Path(__file__).parent
    paths = {where: here / f"{where.replace('.', '/')}.py" for where, _ in ROADS.values()}
    said = "exercised_here(__name__"
    return [where for where, path in paths.items() if not path.exists() or said not in path.read_text()]
