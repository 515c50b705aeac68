"""The command `dragoman simulate`."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from textwrap import dedent

from dragoman.errors import ConfigurationError

from .answerer import load_script
from .faults import FAULTS
from .server import Simulator

_EPILOG = """\
Without a script, the simulator repeats what the user said. A script is a Python file with a variable `script`: a list
of replies, or a function from a request to a reply:

  from dragoman.conversation import StopReason, Thinking, ToolCall, Usage
  from dragoman.simulator import Cut, Reply, Status

  script = [
      "Hello!",
      Reply(Thinking("They want the weather.", ""), "Let me look.", ToolCall("c1", "weather", '{"city": "Paris"}')),
      Reply("It is sunny.", usage=Usage(input=50, output=4), stop_reason=StopReason.MAX_TOKENS),
      Reply("This one breaks off.", faults=[Cut("close")]),
      Status(429, headers={"retry-after": "2"}),
  ]

Point any client at it; every key is accepted:

  OpenAI, and everything compatible   base URL http://127.0.0.1:PORT/v1
  Anthropic, Gemini                   base URL http://127.0.0.1:PORT

  dragoman simulate --port 8900 --script replies.py
  curl http://127.0.0.1:8900/v1/chat/completions -d '{"model":"any","messages":[{"role":"user","content":"Hi"}]}'

In tests you need no command: see `dragoman.simulator.Simulator`, and the fixture of `dragoman.simulator.pytest_plugin`.
"""


def main(argv: Sequence[str] | None = None, *, until: threading.Event | None = None) -> int:
    """Run the command until it is interrupted, or `until` is set. Returns its exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.list_faults:
        _print("\n".join(f"{name:28} {fault.effect():8} {fault!r}" for name, fault in FAULTS.items()))
        return 0
    try:
        script = load_script(arguments.script) if arguments.script else None
        simulator = Simulator(
            script,
            port=arguments.port,
            faults=[FAULTS[name] for name in arguments.fault],
        ).start()
    except (ConfigurationError, OSError, ValueError) as error:
        sys.stderr.write(f"dragoman simulate: {error}\n")
        return 1
    try:
        _print(f"The simulator listens at {simulator.url} (stop it with Ctrl-C).")
        for name in ("openai", "anthropic", "gemini"):
            _print(f"  {name:10} base URL {simulator.base_url(name)}")
        (until or threading.Event()).wait()
    except KeyboardInterrupt:
        _print("")
    finally:
        simulator.close()
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dragoman simulate",
        description="A local server that speaks the dialects of OpenAI (chat and responses), Anthropic and Gemini, and "
        "answers from a script: for tests and demonstrations without a key and without the network.",
        epilog=dedent(_EPILOG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; by default, any that is free")
    parser.add_argument("--script", metavar="FILE", help="the replies: a Python file (see below)")
    parser.add_argument(
        "--fault",
        metavar="NAME",
        action="append",
        default=[],
        choices=list(FAULTS),
        help="a fault of every reply; may be given several times",
    )
    parser.add_argument("--list-faults", action="store_true", help="print all faults with their effects, and stop")
    return parser
