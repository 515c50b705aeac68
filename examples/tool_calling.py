"""A command-line program that lets a model use tools, in the fewest lines.

python examples/tool_calling.py "What is 12 * 34, and what time is it in Tokyo?"
python examples/tool_calling.py --model openai:gpt-5 --max-iterations 5 "…"
"""

from __future__ import annotations

import argparse
from datetime import datetime
from zoneinfo import ZoneInfo

from dragoman import Conversation, Message, ToolConfig, ToolRegistry, engine, errors, run_tool_calling_loop, tool


@tool
def multiply(a: float, b: float) -> float:
    """The product of two numbers."""
    return a * b


@tool
def time_in(zone: str) -> str:
    """The time in a time zone.

    Args:
        zone: Its name, such as Asia/Tokyo.
    """
    return datetime.now(ZoneInfo(zone)).isoformat(timespec="minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description="Let a model use tools.")
    parser.add_argument("prompt")
    parser.add_argument("--model", default="anthropic:claude-sonnet-4-5")
    parser.add_argument("--base-url", help="where the model is, if not at its provider's own address")
    parser.add_argument("--max-iterations", type=int, default=10)
    arguments = parser.parse_args()
    talk = Conversation().plus(Message.user(arguments.prompt))
    config = ToolConfig(max_iterations=arguments.max_iterations, max_parallel_tools=4)
    try:
        with engine(arguments.model, base_url=arguments.base_url) as model:
            talk = run_tool_calling_loop(model, talk, ToolRegistry([multiply, time_in]), config)
    except errors.LimitReachedError as error:
        talk = error.conversation  # nothing done so far is lost
        print(error)
    for message in talk.messages:
        for call in message.tool_calls:
            print(f"→ {call.name}({call.arguments})")
        for result in message.tool_results:
            print(f"← {result.text}")
    print(talk.text)


if __name__ == "__main__":
    main()
