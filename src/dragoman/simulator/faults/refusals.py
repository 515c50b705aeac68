"""Faults that stand in the place of a reply.

Owns: error statuses, requests that are never answered, connections that end without a response.
Must not know: how a dialect writes an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from dragoman.simulator.dialects.dialect import Frame, Refusal
from dragoman.simulator.plan import Pause, Plan

from .fault import Fault

__all__ = ["NoResponse", "Silence", "Status"]

_TEXTS: Final[dict[int, str]] = {
    400: "The request was not acceptable.",
    401: "The credentials are not valid.",
    402: "There is a problem with billing.",
    403: "This is not permitted.",
    404: "There is nothing of that name.",
    408: "The request took too long.",
    409: "There is a conflict with another request.",
    413: "The request is too large.",
    422: "The request could not be processed.",
    429: "Too many requests. Please try again later.",
    500: "An internal error occurred. Please try again.",
    502: "The server behind this one gave no valid answer.",
    503: "The model is overloaded. Please try again later.",
    504: "The server behind this one did not answer in time.",
    529: "Overloaded",
}


class Status(Fault, frozen=True):
    """An error status with a body in the provider's shape, e.g. Status(429, headers={"retry-after": "1"})."""

    status: int
    message: str = ""
    code: str | None = None
    """The provider's own word; None: the dialect's usual one for the status."""
    headers: Mapping[str, str] = {}
    body: str | None = None
    """Sent instead of the provider's shape, as HTML: proxies and gateways have pages of their own."""

    usual_effect = "failure"

    @property
    def refusal(self) -> Refusal:
        """The error, for a dialect to write."""
        text = self.message or _TEXTS.get(self.status, f"The simulator answers with status {self.status}.")
        wait = self.headers.get("retry-after", "")
        return Refusal(self.status, text, self.code, retry_after=wait if wait.isdecimal() else None)

    def apply(self, plan: Plan) -> None:
        """Put the error in the place of the reply."""
        plan.status = self.status
        plan.headers |= self.headers
        plan.frames = [Frame(plan.dialect.failure(self.refusal, plan.answer.id("req_")))]
        # Where Gemini streams an array, an error is an array too; all other errors are one JSON value.
        plan.body = "array" if plan.body == "array" else "json"
        plan.headers["content-type"] = plan.dialect.whole_type
        if self.body is not None:
            plan.replaced = self.body.encode()
            plan.headers["content-type"] = "text/html; charset=UTF-8"


class Silence(Fault, frozen=True):
    """The request is taken and never answered."""

    seconds: float | None = None
    """After which the connection is closed; None: when the client closes it, or at the simulator's limit."""

    usual_effect = "silence"

    def apply(self, plan: Plan) -> None:
        """Wait, and do nothing more."""
        plan.before = Pause(self.seconds)


class NoResponse(Fault, frozen=True):
    """The connection ends before a byte of the response."""

    how: Literal["reset", "close"] = "close"

    usual_effect = "broken"

    def apply(self, plan: Plan) -> None:
        """Give the request up."""
        plan.abandoned = self.how
