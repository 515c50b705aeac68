"""The script of a stress test: what each user does in each turn, what the service does to it, and what may come of it.

Owns: turns, drawn from a seed, and the judgement of what a user got.
Must not know: sockets, threads and event loops.

All words of a turn begin with a marker that no other turn has, so that a single word tells whose it is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from dragoman import DragomanError, Message
from tests.transport.replies import DIALECTS, Say

ServiceAct: TypeAlias = Literal["answers", "late", "closes", "cuts", "resets", "surplus", "redirects", "refuses"]
"""What the service does. `closes`: after a whole reply, without a word; `surplus`: another whole reply behind it."""

UserAct: TypeAlias = Literal["waits", "leaves", "cancels", "expires", "hasty"]
"""What the user does. `leaves`: a stream, after some events; `cancels`: the task; `expires`: asyncio.timeout, while
something blocks the event loop; `hasty`: short time limits of the engine, as also a plain program can have them."""

Linger: TypeAlias = Literal["no", "awaits", "blocks"]
"""What a user does before leaving a stream: nothing; wait while the rest arrives; the same without the event loop."""

MARKER = re.compile(r"u\d+t\d+-[0-9a-f]{8}")
STRANGER = "u999999t0-00000000"
"""In whose words the service speaks where nobody has asked: no user has this marker."""

_SERVICE = {"answers": 8, "late": 3, "closes": 2, "cuts": 2, "resets": 1, "surplus": 2, "redirects": 2, "refuses": 2}
_USER = {"waits": 8, "leaves": 4, "cancels": 2, "expires": 2, "hasty": 2}
_SIZES = {"small": 90, "large": 9, "huge": 1}
_PIECE_WORDS = {"small": 1, "large": 60, "huge": 1200}
"""Words in a piece of text. A huge reply is longer than a transport reads ahead."""


@dataclass(frozen=True)
class Turn:
    """One turn of one user, with everything decided by chance beforehand."""

    user: int
    marker: str
    dialect: str
    streamed: bool
    calls_tool: bool
    service: ServiceAct
    step: int
    """The request of the turn, 0 or 1, at which the service does it; it answers the other one."""
    act: UserAct
    linger: Linger
    events: int
    """After how many events the user leaves."""
    pause: float
    """Seconds for which the service is late."""
    patience: float
    """Seconds after which the user gives up."""
    block: float
    """Seconds for which something blocks the event loop, or the user lingers."""
    status: int
    framing: Literal["length", "chunked"]
    compressed: bool
    replies: tuple[Say, ...] = field(repr=False)

    @property
    def prompt(self) -> str:
        return f"Say your words about {self.marker}"

    @property
    def refused(self) -> bool:
        """Whether the service gives no answer."""
        return self.service in ("redirects", "refuses")

    @property
    def healthy(self) -> bool:
        """Whether the user must get the whole answer."""
        return self.act == "waits" and self.service in ("answers", "late", "closes", "surplus")


def turn(seed: int, user: int, number: int) -> Turn:
    """The turn that this seed has for this user: always the same one."""
    draw = random.Random(f"{seed} {user} {number}")
    marker = f"u{user}t{number}-{draw.getrandbits(32):08x}"
    service: ServiceAct = _one(draw, _SERVICE)
    act: UserAct = _one(draw, _USER)
    calls_tool = draw.random() < 0.3
    size = "small" if service == "surplus" else _one(draw, _SIZES)  # reply and surplus must arrive at the same moment
    pause = draw.uniform(0.001, 0.03)
    return Turn(
        user=user,
        marker=marker,
        dialect=draw.choice(list(DIALECTS)),
        streamed=act == "leaves" or draw.random() < 0.5,
        calls_tool=calls_tool,
        service=service,
        step=draw.randrange(2) if calls_tool else 0,
        act=act,
        linger=draw.choice(get_args(Linger)),
        events=draw.randint(1, 12),
        pause=pause,
        patience=draw.choice((draw.uniform(0.0, 0.03), pause)),
        block=draw.uniform(0.001, 0.012),
        status=draw.choice((400, 429, 500)),
        framing=draw.choice(("length", "chunked")),
        compressed=draw.random() < 0.1,
        replies=tuple(_replies(draw, marker, size, calls_tool=calls_tool)),
    )


def _one(draw: random.Random, weights: dict[str, int]) -> Any:
    return draw.choices(list(weights), list(weights.values()))[0]


def _replies(draw: random.Random, marker: str, size: str, *, calls_tool: bool) -> list[Say]:
    said: list[Say] = []
    for step in range(1 + calls_tool):
        pieces = draw.randint(1, 8)
        text = "".join(f"{marker}.{step}.{word} " for word in range(pieces * _PIECE_WORDS[size]))
        said.append(Say(text, marker if calls_tool and step == 0 else None, pieces))
    return said


def script(seed: int, users: int, turns: int) -> list[list[Turn]]:
    """So many turns for each of the users."""
    return [[turn(seed, user, number) for number in range(turns)] for user in range(users)]


# --- what came of it -------------------------------------------------------------------------------------------------


@dataclass
class Received:
    """What a user got in a turn."""

    events: int = 0
    streamed: str = ""
    """The text of the events."""
    answer: str | None = None
    """The text of the result, where the turn came to its end."""
    error: BaseException | None = None
    history: Sequence[Message] = ()


@dataclass
class ByUser:
    """What belongs to a user for good: tools may run a little longer than the turn that asked for them."""

    turns: Sequence[Turn]
    noted: list[str] = field(default_factory=list[str])
    """The words with which the user's tool was called."""


def problems(turn: Turn, got: Received, user: ByUser) -> list[str]:
    """What a user got that they should not have, and what they should have got and did not."""
    found = [*_strange(turn, got), *_strange_calls(user)]
    if turn.healthy and got.error is not None:
        found.append(f"the turn should have gone well, but: {got.error!r}")
    elif turn.healthy and got.answer is None:
        found.append("the turn came to no end")
    if turn.refused and got.answer is not None:
        found.append(f"the service {turn.service}, and yet there is an answer: {got.answer!r}")
    if got.answer is not None:
        if got.answer != turn.replies[-1].text:
            found.append(f"the answer is {_short(got.answer)}")
        if turn.streamed and got.streamed != "".join(say.text for say in turn.replies):
            found.append(f"the stream was {_short(got.streamed)}")
        if user.noted.count(turn.marker) != turn.calls_tool:
            found.append(f"the tool has run {user.noted.count(turn.marker)} times")
    if got.error is not None and not _expected(turn, got.error):
        found.append(f"the error is {got.error!r}")
    return [f"{turn.marker}: {problem}; {turn}" for problem in found]


def _strange(turn: Turn, got: Received) -> list[str]:
    """Words that are not those of this turn, wherever they turned up."""
    found: list[str] = []
    if not "".join(say.text for say in turn.replies).startswith(got.streamed):
        found.append(f"got strange words: {_short(got.streamed)}")
    said = [message.text for message in got.history if message.role == "assistant"]
    if len(said) > len(turn.replies):
        found.append(f"{len(said)} replies in the history")
    found += [
        f"strange words in the history: {_short(text)}"
        for text, say in zip(said, turn.replies, strict=False)
        if not say.text.startswith(text)
    ]
    shown = f"{got.history!r} {got.error!r} {got.error!s}"
    if strangers := set(MARKER.findall(shown)) - {turn.marker}:
        found.append(f"words of others in the history or in the error: {strangers}")
    return found


def _strange_calls(user: ByUser) -> list[str]:
    own = {turn.marker for turn in user.turns if turn.calls_tool}
    return [
        f"the tool has run with {word!r}, {user.noted.count(word)} times"
        for word in dict.fromkeys(user.noted)
        if word not in own or user.noted.count(word) > 1
    ]


def _expected(turn: Turn, error: BaseException) -> bool:
    return isinstance(error, DragomanError) or (turn.act == "expires" and isinstance(error, TimeoutError))


def _short(text: str) -> str:
    return repr(text if len(text) < 200 else f"{text[:100]} … {text[-100:]}")
