"""A fleet: conversations that any machine begins and any worker goes on with, over one PostgreSQL.

pip install 'dragoman[fleet]'
export FLEET=postgresql://app@localhost/talk
dragoman worker examples.fleet:agents --postgres $FLEET     # on as many machines as you like; the key is only there
python examples/fleet.py --postgres $FLEET "Refund order 17"

The refund needs a person's word. Kill a worker at any moment: another one goes on, and nothing is refunded twice.
"""

from __future__ import annotations

import argparse
import os

from dragoman import tool
from dragoman.fleet import Agent, Fleet, TurnEnded
from dragoman.stores import MessageAdded, ToolCallBegun, ToolCallDone


@tool(idempotent=True)
def find_order(number: int) -> dict[str, object]:
    """What is known of an order."""
    return {"number": number, "paid": 19.9, "state": "lost by the carrier"}


@tool(requires_approval=True)
def refund(number: int, amount: float) -> str:
    """Pay the money for an order back."""
    return f"{amount} paid back for order {number}"


agents = {
    "support": Agent(
        os.environ.get("FLEET_MODEL", "anthropic:claude-sonnet-4-5"),
        [find_order, refund],
        system="You look after the customers of a shop. Be brief.",
        base_url=os.environ.get("FLEET_BASE_URL"),
    )
}
"""What workers know by name; those who hand turns in need no more than the name."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Hand a turn in, watch it, and answer for it.")
    parser.add_argument("prompt")
    parser.add_argument("--postgres", default="", help="where the fleet is")
    parser.add_argument("--schema", default="dragoman")
    arguments = parser.parse_args()
    with Fleet(arguments.postgres, schema=arguments.schema) as fleet:
        turn, seen = fleet.submit(arguments.prompt, agent="support"), 0
        while True:
            for event in fleet.watch(turn, after=seen):
                match event:
                    case MessageAdded(message):
                        seen += 1
                        if message.text:
                            print(f"{message.role}: {message.text}")
                    case ToolCallBegun(call):
                        print(f"→ {call.name} {call.arguments}")
                    case ToolCallDone(result):
                        print(f"← {result.text}")
                    case TurnEnded():
                        pass
            outcome = fleet.wait(turn)
            if not outcome.pending:
                break
            for each in outcome.pending:
                print(f"{each.call.name} {each.call.arguments} waits for your word {each.reason}")
            yes = input("Let it? [y/N] ").strip().lower() == "y"
            turn = fleet.approve(turn) if yes else fleet.deny(turn, reason="A person said no.")


if __name__ == "__main__":
    main()
