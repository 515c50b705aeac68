"""The options of whatever talks to a model: `dragoman "question"` and `dragoman chat`.

Owns: their names, help texts and types.
Must not know: what is done with them.
"""

from __future__ import annotations

import argparse
from typing import Final, Literal

from .parser import Parser

__all__ = ["APPROVE", "Talking", "add_asking", "add_talking"]

Approve = Literal["ask", "auto", "deny"]
APPROVE: Final[tuple[Approve, ...]] = ("ask", "auto", "deny")


class Talking(argparse.Namespace):
    """What the command line says about a talk with a model."""

    words: list[str]
    """Filled in by the parser alone: argparse complains about words that are there before."""
    model: str | None = None
    system: str | None = None
    attachments: list[str]
    typed_attachments: list[list[str]]
    tools: list[str]
    approve: Approve | None = None
    schema: str | None = None
    options: list[list[str]]
    go_on: bool = False
    cid: str | None = None
    json: bool = False
    json_lines: bool = False
    no_log: bool = False
    usage: bool = False
    quiet: bool = False
    profile: str | None = None
    base_url: str | None = None
    debug: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.tools, self.options = [], []
        self.attachments, self.typed_attachments = [], []


def add_talking(parser: Parser) -> None:
    """The options that asking and chatting share."""
    add = parser.add_argument
    add("-m", "--model", metavar="MODEL", help="provider:model, such as anthropic:claude-sonnet-4-5")
    add("-s", "--system", metavar="TEXT", help="the system prompt")
    add(
        "-T",
        "--tool",
        dest="tools",
        action="append",
        metavar="TOOL",
        help="a tool the model may use: a name (dragoman tools list), `toolkit` for all, module:function, a .py "
        "file, or an MCP server of the configuration; may be repeated",
    )
    add(
        "--approve",
        choices=APPROVE,
        help="calls that no rule allows: ask you (the default), run them, or refuse them",
    )
    add(
        "-o",
        "--option",
        dest="options",
        nargs=2,
        action="append",
        metavar=("KEY", "VALUE"),
        help="an option of the model, such as temperature 0.2; may be repeated",
    )
    add("-c", "--continue", dest="go_on", action="store_true", help="continue the latest conversation")
    add("--cid", metavar="ID", help="continue this conversation (dragoman history list)")
    add("-n", "--no-log", action="store_true", help="do not keep the conversation")
    add("--usage", action="store_true", help="say how many tokens it took")
    add("-q", "--quiet", action="store_true", help="nothing on standard error but errors and questions")
    add("--profile", metavar="NAME", help="a profile of the configuration")
    add("--base-url", metavar="URL", help="the address of the provider")


def add_asking(parser: Parser) -> None:
    """The options of a single question."""
    add = parser.add_argument
    add("words", nargs="*", metavar="PROMPT", help="the question; - reads it from standard input")
    add_talking(parser)
    add(
        "-a",
        "--attachment",
        dest="attachments",
        action="append",
        metavar="FILE|URL",
        help="an image, document or text that belongs to the question; may be repeated",
    )
    add(
        "--at",
        "--attachment-type",
        dest="typed_attachments",
        nargs=2,
        action="append",
        metavar=("FILE|URL", "TYPE"),
        help="the same where the name does not say the type, such as image/png",
    )
    add(
        "--schema",
        metavar="SCHEMA",
        help='answer as JSON: a JSON Schema (file or text), or the short form "name, age int, tags list"',
    )
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print one JSON object when all is done")
    formats.add_argument("--json-lines", action="store_true", help="print each event as JSON, one a line")
