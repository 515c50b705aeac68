"""`now`: the date and time, anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from dragoman.errors import ToolExecutionError
from dragoman.tools.definition import AnyTool

from .decorator import ready


def now_tool(*, clock: Callable[[], float] = time.time, default: str = "UTC") -> AnyTool:
    """The tool `now`. The clock gives seconds since 1970, as `time.time` does."""

    @ready(name="now", read_only=True, idempotent=True)
    def now(*, timezone: str = default) -> str:
        """Tell the date and the time.

        Args:
            timezone: Where, as an IANA name such as Europe/Berlin or UTC.
        """
        zone = _zone(timezone or default)
        there = datetime.fromtimestamp(clock(), zone)
        return f"{there.isoformat(timespec='seconds')} ({there:%A}, {timezone or default})"

    return now


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z", "GMT"):  # also where the machine has no table of zones
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # not there; a path; a directory
        pass
    known = available_timezones()
    nearest = get_close_matches(name[:80], known, n=3) or [each for each in ("Europe/London", "UTC") if each in known]
    hint = f"Did you mean {' or '.join(nearest)}?" if nearest else "This machine has no time zones; use UTC."
    raise ToolExecutionError(f"there is no time zone {name[:80]!r}.", hint=hint)
