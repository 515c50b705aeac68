"""Every fault under a name.

Owns: FAULTS, and the union by which faults are read from JSON.
Must not know: how a fault works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from .delivery import Cut, Delay, Drip, Gzip, Stall, WrongLength
from .events import (
    Crlf,
    Duplicated,
    ErrorEvent,
    KeepAlive,
    Malformed,
    MissingEnd,
    Reordered,
    UnknownEvent,
    UnknownFields,
)
from .fault import Fault
from .refusals import NoResponse, Silence, Status

__all__ = ["FAULTS", "AnyFault"]

AnyFault: TypeAlias = (
    Crlf
    | Cut
    | Delay
    | Drip
    | Duplicated
    | ErrorEvent
    | Gzip
    | KeepAlive
    | Malformed
    | MissingEnd
    | NoResponse
    | Reordered
    | Silence
    | Stall
    | Status
    | UnknownEvent
    | UnknownFields
    | WrongLength
)

FAULTS: Final[Mapping[str, Fault]] = {
    # instead of a reply
    "status_400": Status(400),
    "status_401": Status(401),
    "status_403": Status(403),
    "status_404": Status(404),
    "status_408": Status(408),
    "status_409": Status(409),
    "status_413": Status(413),
    "status_429": Status(429),
    "status_429_retry_after": Status(429, headers={"retry-after": "1"}),
    "status_429_retry_after_ms": Status(429, headers={"retry-after-ms": "20", "retry-after": "1"}),
    "status_429_retry_after_date": Status(429, headers={"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT"}),
    "status_500": Status(500),
    "status_502_html": Status(502, body="<html><body><h1>502 Bad Gateway</h1></body></html>"),
    "status_503": Status(503),
    "status_504_empty": Status(504, body=""),
    "status_529": Status(529),
    "silence": Silence(),
    "no_response_close": NoResponse("close"),
    "no_response_reset": NoResponse("reset"),
    # on the way
    "delay": Delay(0.05),
    "drip": Drip(),
    "stall": Stall(),
    "stall_after_headers": Stall(after=0),
    "stall_then_go_on": Stall(0.05, go_on=True),
    "cut_close": Cut("close"),
    "cut_reset": Cut("reset"),
    "cut_end": Cut("end"),
    "cut_after_headers": Cut("close", after=0),
    "cut_last_byte": Cut("close", after=-1),
    "length_too_long": WrongLength(7),
    "length_too_short": WrongLength(-7),
    "gzip": Gzip(),
    # in what is said
    "malformed_json": Malformed("json"),
    "malformed_event": Malformed("html"),
    "malformed_utf8": Malformed("utf8"),
    "duplicated_start": Duplicated("start"),
    "duplicated_event": Duplicated("middle"),
    "duplicated_end": Duplicated("end"),
    "reordered_parts": Reordered("part"),
    "reordered_deltas": Reordered("delta"),
    "error_event": ErrorEvent(),
    "error_event_first": ErrorEvent(share=0.0),
    "error_event_nested": ErrorEvent(500, form="nested"),
    "failed_response": ErrorEvent(500, form="failed"),
    "missing_end": MissingEnd(),
    "missing_finish": MissingEnd(all_marks=True),
    "unknown_event": UnknownEvent(),
    "unknown_fields": UnknownFields(),
    "keep_alive": KeepAlive(),
    "crlf": Crlf(),
}
"""Every kind of fault, with settings that suit any reply and any dialect: for tests that try them all."""
