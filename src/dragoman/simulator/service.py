"""Parts of providers' APIs that are no conversation: what a route is, and how it refuses.

Must not know: any particular service.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias

from msgspec import Struct

from .dialect import Dialect, Refusal
from .exchange import Request
from .reading import JsonObject


class WithHeaders(Struct, frozen=True):
    """What is sent back, with headers of its own."""

    body: JsonObject
    headers: Mapping[str, str]


Handler: TypeAlias = Callable[[Request], Awaitable[JsonObject | bytes | WithHeaders]]
"""From a request, whose body was read, to what is sent back; Refused where the provider would refuse."""


class Refused(Exception):  # noqa: N818 -- what the provider does
    """The provider would refuse this request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.refusal: Refusal = Refusal(status, message)


class Route(Struct, frozen=True, kw_only=True):
    """Requests of one kind, and who answers them."""

    path: re.Pattern[str]
    """The whole of their path; what a client puts before it differs."""
    dialect: Dialect
    """In whose words errors are told."""
    handle: Handler
    method: str = "POST"
    headers: frozenset[str] = frozenset()
    """Headers that they have: two providers may have the same paths."""
    scripted: bool = True
    """Whether the script is asked: what it says does not matter here, but its faults do."""

    def fits(self, request: Request) -> bool:
        known = self.headers <= request.headers.keys()
        return known and request.method == self.method and self.path.fullmatch(request.path) is not None


def route(
    method: str, path: str, dialect: Dialect, handle: Handler, *, headers: Collection[str] = (), scripted: bool = False
) -> Route:
    """A route whose path is given as a text."""
    return Route(
        method=method,
        path=re.compile(path),
        dialect=dialect,
        handle=handle,
        headers=frozenset(headers),
        scripted=scripted,
    )
