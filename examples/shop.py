"""A shop for the examples of workflow engines: a tool that charges, a tool that looks, and a model that is simulated.

What is done to the world is noted in a book, which no workflow can take back.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import msgspec

from dragoman import approve, deny, tool
from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request
from dragoman.tools import Approval, PendingApproval

SHELVES = {"tea": 0.1, "lamp": 0.6, "sofa": 2.0}
"""What there is, and the seconds that it takes to walk there."""
BANK = 3.0
"""The seconds after which the bank says that it has taken the money."""
PACE = float(os.environ.get("SHOP_PACE", "1"))
BOOK = Path("book.txt")


def note(line: str) -> None:
    with BOOK.open("a") as book:
        book.write(f"{line}\n")


@tool(requires_approval=lambda call: json.loads(call.arguments)["amount"] > 100)
async def charge(who: str, amount: int) -> str:
    """Take somebody's money."""
    note(f"charged {who} {amount}")
    await asyncio.sleep(BANK * PACE)
    return f"{who} has paid {amount}."


@tool(idempotent=True)
async def look(item: str) -> str:
    """Look whether there is one of these."""
    await asyncio.sleep(SHELVES[item] * PACE)
    note(f"saw {item}")
    return f"There is a {item}."


TOOLS = [charge, look]


def model(request: Request) -> Reply:
    """Calls all tools that the question is about, at once, and then says what came of it."""
    if request.tool_results:
        return Reply(" ".join([result.text for result in request.tool_results]))
    said = request.last_user_text
    calls = [
        ToolCall(f"look-{number}", "look", json.dumps({"item": item}))
        for number, item in enumerate(re.findall("|".join(SHELVES), said))
    ]
    for who, amount in re.findall(r"[Cc]harge (\w+) (\d+)", said):
        calls.append(ToolCall(f"charge-{who}", "charge", json.dumps({"who": who, "amount": int(amount)})))
    return Reply(*calls) if calls else Reply("What can I do for you?")


# --- what a person reads and answers, in another process --------------------------------------------------------------


def to_text(waiting: tuple[PendingApproval, ...]) -> str:
    return msgspec.json.encode(waiting).decode()


def answers_to(waiting: str, *, yes: bool, reason: str = "") -> str:
    """The answer about these very calls, with the arguments that were shown."""
    calls = [each.call for each in msgspec.json.decode(waiting, type=tuple[PendingApproval, ...])]
    return msgspec.json.encode([(approve if yes else deny)(call, reason=reason) for call in calls]).decode()


def answers_in(text: str | None, waiting: tuple[PendingApproval, ...]) -> list[Approval]:
    """The answers in a text, but for those about calls that do not wait any more."""
    given = msgspec.json.decode(text or "[]", type=list[Approval])
    return [answer for answer in given if any(answer.answers(each.call) for each in waiting)]
