"""Routes: which requests there are, and who answers them.

Must not know: any particular service.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from .dialect import Dialect
from .exchange import Request
from .reading import JsonObject

Handler: TypeAlias = Callable[[Request], Awaitable[JsonObject | bytes | tuple[JsonObject, dict[str, str]]]]
"""From a request, whose body was read, to what is sent back, perhaps with headers of its own. Raises Refusal."""


class Route(Struct, frozen=True):
    """Requests of one kind, and who answers them."""

    method: str
    path: str
    """A pattern of the whole path; its groups may be `model`, `stream` and `count`, which asks how many tokens."""
    dialect: Dialect
    """In whose words errors are told."""
    handle: Handler | None = None
    """None: it is a turn of a conversation."""
    header: str = ""
    """One that they have: two providers may have the same paths."""
    scripted: bool = False
    """Whether a service asks the script, too; what that says does not matter, but its faults do."""

    def match(self, request: Request) -> dict[str, str | None] | None:
        """What the groups of the path are, if this is a request of this kind."""
        if request.method != self.method or (self.header and self.header not in request.headers):
            return None
        found = re.fullmatch(self.path, request.path)
        return None if found is None else found.groupdict()
