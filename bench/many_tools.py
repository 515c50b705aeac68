"""What a thousand tools cost: `python bench/many_tools.py` in the development environment.

A client with 1,000 tools talks to the simulator, told of all of them, with ToolConfig(search=20), and with the same
where the provider searches itself: what is sent in the first request (bytes, and tokens as estimated from the length of
what the model reads), and the processor time of a later turn, the simulator's included. Beside it, what the index
costs: to build it, once for a set of tools, and to search it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from dragoman import ChatClient, Tool, ToolConfig
from dragoman.loop import offered_tools
from dragoman.providers import estimated_tokens
from dragoman.simulator import Simulator
from dragoman.tools import ToolIndex

KINDS = ("github", "jira", "slack", "calendar", "mail", "files", "crm", "billing", "wiki", "deploys")
VERBS = ("create", "delete", "list", "update", "search")
THINGS = ("issue", "message", "event", "user", "channel", "file", "comment", "label", "invoice", "page")
TOOLS = 1_000
TURNS = 200
QUERIES = ("delete a comment in jira", "send an invoice", "who is in the channel", "list labels", "update the wiki")


def make_tools() -> list[Tool[..., Any]]:
    """Tools as servers of MCP have them: a description of two lines, four parameters."""
    made: list[Tool[..., Any]] = []
    for kind in KINDS:
        for verb in VERBS:
            for thing in THINGS:
                for way in ("", "_in_bulk"):
                    properties = {
                        f"{thing}_id": {"type": "string", "description": f"The id of the {thing}."},
                        "workspace": {"type": "string", "description": "Where to look."},
                        "limit": {"type": "integer", "description": "How many at the most."},
                        "dry_run": {"type": "boolean", "description": "Only say what would be done."},
                    }
                    made.append(
                        Tool.from_schema(
                            lambda **_: "done",
                            {"type": "object", "properties": properties, "required": [f"{thing}_id"]},
                            name=f"{kind}_{verb}_{thing}{way}",
                            description=f"{verb.title()} a {thing} in {kind}.\nNeeds the scope {kind}:{verb}.",
                        )
                    )
    return made[:TOOLS]


def milliseconds(work: Callable[[], object], times: int) -> float:
    """The median of the processor time."""
    taken: list[float] = []
    for _ in range(times):
        start = time.process_time_ns()
        work()
        taken.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(taken)


def talk(tools: list[Tool[..., Any]], search: int | None, searched: int) -> tuple[int, int, float]:
    """Bytes and estimated tokens of the first request, and the time of a later turn."""
    with (
        Simulator(["Hello."] * (TURNS + 2)) as simulator,
        ChatClient(
            "anthropic:claude-sonnet-4-5",
            tools,
            tool_config=ToolConfig(search=search),
            profile={"tool_search": searched},
            key="k",
            base_url=simulator.base_url("anthropic"),
            stateless=True,
        ) as client,
    ):
        client.chat("Hello")
        client.chat("Hello")
        taken = milliseconds(lambda: client.chat("Hello"), TURNS)
        executor, options = client.tools, client.engine.options
        told = offered_tools(executor, client.conversation, client.engine.profile, options)
        return len(simulator.requests[0].raw), estimated_tokens(client.conversation, told), taken


def main() -> None:
    """Print a table."""
    tools = make_tools()
    print(f"{len(tools):,} tools               bytes     tokens    ms a turn")
    for name, search, searched in (
        ("all of them", None, 0),
        ("search=20", 20, 0),
        ("the provider's", 20, 10_000),
    ):
        size, tokens, taken = talk(tools, search, searched)
        print(f"{name:<18}{size:>11,}{tokens:>11,}{taken:>13.2f}")
    specs = [each.spec for each in tools]
    index = ToolIndex(specs)
    print(f"index: built once in {milliseconds(lambda: ToolIndex(specs), 9):.1f} ms", end=", ")
    print(f"a search takes {statistics.mean([milliseconds(lambda q=q: index.search(q), 50) for q in QUERIES]):.2f} ms")


if __name__ == "__main__":
    main()
