"""`dragoman doctor`: checks, and what to do about what is wrong."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser

if TYPE_CHECKING:
    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP"]


def _arguments(parser: Parser) -> None:
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.checks import examine
    from dragoman.cli.tables import print_json

    findings = examine(offline=arguments.offline)
    if arguments.json:
        print_json(terminal, findings)
    else:
        marks = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}
        for finding in findings:
            terminal.line(f"{marks[finding.state]}  {finding.about}: {finding.text}")
            if finding.fix:
                terminal.line(f"      {finding.fix}")
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


GROUP: Final = Group(
    "doctor",
    {
        "": Command(
            "Check versions, configuration, keys, network, store and model; say what to do.",
            _run,
            _arguments,
            ("dragoman doctor", "dragoman doctor --offline"),
        )
    },
)
