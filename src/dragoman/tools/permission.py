"""May this call run? The answers, and approvals bound to the exact call.

Rules are the toolkit's business (PermissionChecker), and who is asked is the program's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from dragoman.conversation import ToolCall

if TYPE_CHECKING:
    from .definition import Tool
    from .run import ToolContext


class Allow(Struct, frozen=True):
    """The call may run."""

    approved: bool = False
    """A person has just approved this very call, so a tool that `requires_approval` need not ask again."""


class Deny(Struct, frozen=True):
    """The call must not run; the model reads the reason."""

    reason: str


class Ask(Struct, frozen=True):
    """A person must approve this very call first."""

    reason: str = ""


Decision: TypeAlias = Allow | Deny | Ask
"""What can be decided about a call before it runs."""

PermissionCheck: TypeAlias = (
    "Callable[[ToolCall, Tool[..., object], ToolContext[object]], Decision | Awaitable[Decision]]"
)
"""Decides about one call before it runs; plain or async."""


class Approval(Struct, frozen=True, kw_only=True):
    """A person's answer about one call. It holds for exactly the arguments that were shown, and for no other call."""

    call_id: str
    fingerprint: str
    approved: bool
    reason: str = ""

    def answers(self, call: ToolCall) -> bool:
        """Whether this is the answer about that call, unchanged."""
        return self.fingerprint == fingerprint(call)


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for a person."""

    call: ToolCall
    reason: str = ""


def fingerprint(call: ToolCall) -> str:
    """A hash of the call's id, tool and exact arguments."""
    digest = hashlib.sha256()
    for part in (call.id, call.name, call.arguments):
        raw = part.encode("utf-8", "surrogatepass")
        # With its length in front no two different calls can give the same bytes.
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()


def approve(call: ToolCall, *, reason: str = "") -> Approval:
    """Allow this call, with exactly these arguments."""
    return Approval(call_id=call.id, fingerprint=fingerprint(call), approved=True, reason=reason)


def deny(call: ToolCall, *, reason: str = "") -> Approval:
    """Refuse this call; the model reads the reason."""
    return Approval(call_id=call.id, fingerprint=fingerprint(call), approved=False, reason=reason)
