"""What all contenders are asked to do, in plain values: the words, the histories, the tools.

A contender is a module with the classes `Plain` and `OnLoop` (or one of them). Both are made with the address of the
server (`http://127.0.0.1:1234`, perhaps with `/tools` or `/paced` behind it) and a dialect, and have, with `await` in
`OnLoop`:

    turn() -> str                       one question, one answer
    stream() -> Delivered               one streamed answer, every event looked at
    tool_loop() -> str                  the model calls `weather`, gets its result, and answers
    history(messages) -> () -> str      prepares; the function is a turn behind so many earlier messages
    loaded(messages) -> () -> str       the same, on a history that is read from JSON each time
    many_tools(functions) -> () -> str  makes tools of functions; the function is a turn that offers them
    dispatch() -> () -> object          prepares; the function validates arguments and calls a tool with them
    close(), or aclose()                only where the tests of the benchmark use it

What a contender cannot do is not there. Each is used as its own documentation shows, its connections are kept, and
what it logs or reports elsewhere is off.

Must not import anything but the standard library: it is loaded in the environment of every contender.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

SYSTEM = "Be brief."
PROMPT = "Hello"
TOOL_PROMPT = "Do I need an umbrella in Lyon?"
KEY = "sk-none"

BASES = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic": "", "gemini": ""}
MODELS = {
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
}

MAX_TOKENS = 8192
"""Said to every Anthropic model, because the service demands it."""


class Delivered(NamedTuple):
    """What came out of a stream."""

    events: int
    """However the client cuts them."""
    characters: int


class Said(NamedTuple):
    role: str
    text: str


def said(count: int) -> list[Said]:
    """A history of so many messages, each as long as one of a chat mostly is; the next word is the user's."""
    return [Said("assistant" if n % 2 else "user", f"Message number {n}: {'words ' * 30}") for n in range(count)]


def weather(city: str) -> str:
    """What the weather is like.

    Args:
        city: Where to look.
    """
    return f"Rain in {city}, 12 degrees."


async def aweather(city: str) -> str:
    """What the weather is like.

    Args:
        city: Where to look.
    """
    return weather(city)


aweather.__name__ = "weather"
"""For those on an event loop: most libraries run a plain function in a thread there, which is not what is measured."""

ARGUMENTS = '{"a":1,"b":"hello","c":2.5}'


def nothing(a: int, b: str, c: float) -> str:  # noqa: ARG001 - its name says it
    """Do nothing.

    Args:
        a: A number.
        b: A text.
        c: Another number.
    """
    return "done"


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where to look."}},
    "required": ["city"],
    "additionalProperties": False,
}
"""Of `weather`, for clients that want it written by hand."""

_FUNCTION = '''
def tool_{number}(query: str, limit: int = 10, tags: list[str] = [], exact: bool = False) -> str:
    """Search collection number {number}.

    Args:
        query: What to look for.
        limit: At most so many.
        tags: Only with these tags.
        exact: Whether the words must stand as given.
    """
    return query
'''


def functions(count: int) -> list[Callable[..., Any]]:
    """So many new functions, as a program would have them as tools."""
    names: dict[str, Any] = {"__name__": "bench_tools"}
    for number in range(count):
        exec(_FUNCTION.format(number=number), names)  # noqa: S102 - our own text, a few lines above
    return [names[f"tool_{number}"] for number in range(count)]


def schemas(given: Sequence[Callable[..., Any]]) -> list[dict[str, Any]]:
    """The schemas of such functions, as somebody writes them by hand: name, description, parameters."""
    parameters = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "description": "At most so many.", "default": 10},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Only with these tags."},
            "exact": {"type": "boolean", "description": "Whether the words must stand as given."},
        },
        "required": ["query"],
    }
    return [
        {"name": each.__name__, "description": (each.__doc__ or "").partition("\n")[0], "parameters": parameters}
        for each in given
    ]
