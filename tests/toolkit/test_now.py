"""`now`."""

from __future__ import annotations

from dragoman.toolkit.ready import now_tool
from tests.toolkit.calling import Call, both_colours, good

NOON = 1_700_000_000.0


@both_colours
def test_the_time_here_and_there(called: Call) -> None:
    now = now_tool(clock=lambda: NOON)
    assert (now.name, now.options.read_only, now.options.idempotent) == ("now", True, True)
    assert good(called(now)) == "2023-11-14T22:13:20+00:00 (Tuesday, UTC)"
    assert good(called(now, timezone="Asia/Tokyo")) == "2023-11-15T07:13:20+09:00 (Wednesday, Asia/Tokyo)"
    assert good(called(now, timezone="")) == "2023-11-14T22:13:20+00:00 (Tuesday, UTC)"
