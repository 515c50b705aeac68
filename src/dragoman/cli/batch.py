"""`dragoman batch`: many questions in one batch, answered within a day at half the price."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from dragoman.batches import Batch, BatchDirectory, Batches, BatchStatus
from dragoman.chat import load_config
from dragoman.conversation import Conversation, Message
from dragoman.directories import data_directory
from dragoman.engines import HttpEngine, as_service, engine

from .arguments import Parser, Run, UsageError, add_json, clean, expand_path
from .failures import FAILED, OK
from .output import print_list
from .terminal import Terminal

_BAR: Final = 24


def declare_batch(parser: Parser) -> None:
    parser.default = "list"
    about = "Submit questions, one per line, and print the batch's id."
    submit = parser.add_command("submit", _submit, about, "dragoman batch submit -m openai:gpt-5-mini questions.txt")
    add = submit.add_argument
    add("files", nargs="*", metavar="FILE", help="files with one question per line; - or none reads standard input")
    add("-m", "--model", required=True, help="provider:model")
    add("-s", "--system", help="the system prompt of each")
    add("--base-url", metavar="URL", help="the address of the provider")
    add("--wait", action="store_true", help="wait for it to finish, and print the answers")
    add_json(
        parser.add_command("list", _list, "List the batches that were submitted from here.", "dragoman batch list")
    )
    _with_id(parser, "status", _status, "Show the progress of a batch.")
    _with_id(parser, "wait", partial(_status, wait=True), "Wait for a batch to finish, with a progress bar.")
    _with_id(parser, "results", _results, "Print the answers as JSON lines, in the order of the questions.")
    _with_id(parser, "cancel", _cancel, "Cancel a batch; answers that are done are kept.")
    _with_id(parser, "forget", _forget, "Forget a batch here. The provider keeps what it has of it.")


def _with_id(parser: Parser, name: str, run: Run, about: str) -> None:
    command = parser.add_command(name, run, about, f"dragoman batch {name} batch_abc123")
    command.add_argument("id", help="the batch (see dragoman batch list)")


def _directory() -> BatchDirectory:
    return BatchDirectory(data_directory() / "batches")


@contextmanager
def _open(model: str, base_url: str | None) -> Generator[Batches]:
    config = load_config(model=model, base_url=base_url).config
    with engine(config.model_name, **config.for_engine()) as made:
        yield Batches(as_service(made, HttpEngine, "batches"), directory=_directory().path)


@contextmanager
def _find(arguments: argparse.Namespace) -> Generator[tuple[Batches, Batch]]:
    batch = _directory().load(arguments.id)
    with _open(batch.model, batch.base_url) as batches:
        yield batches, batch


def _submit(arguments: argparse.Namespace, terminal: Terminal) -> int:
    questions: list[str] = []
    for name in arguments.files or ["-"]:
        text = terminal.read_input() if name == "-" else expand_path(name).read_text("utf-8", "replace")
        questions += [clean(line) for line in text.splitlines() if line.strip()]
    if not questions:
        raise UsageError("There are no questions.", hint="Name files with one question per line, or pipe them in.")
    with _open(arguments.model, arguments.base_url) as batches:
        asked = [Conversation(arguments.system).plus(Message.user(text)) for text in questions]
        batch = batches.submit(asked)
        if not arguments.wait:
            terminal.line(batch.id)
            terminal.note(f"{len(batch):,} questions. See: dragoman batch wait {batch.id}")
            return OK
        terminal.note(f"dragoman: batch {batch.id}, {len(batch):,} questions")
        batches.wait(batch, progress=partial(_show, terminal))
        return _print_results(batches, batch, terminal)


def _list(arguments: argparse.Namespace, terminal: Terminal) -> None:
    rows = [
        {"id": batch.id, "model": batch.model, "questions": len(batch), "submitted": f"{batch.created:%F %R}"}
        for batch in _directory().list()
    ]
    print_list(terminal, rows, dict, as_json=arguments.json, otherwise="There are no batches.")


def _status(arguments: argparse.Namespace, terminal: Terminal, *, wait: bool = False) -> int:
    with _find(arguments) as (batches, batch):
        status = batches.wait(batch, progress=partial(_show, terminal)) if wait else batches.status(batch)
    terminal.line(_describe(status))
    return FAILED if status.state == "failed" else OK


def _results(arguments: argparse.Namespace, terminal: Terminal) -> int:
    with _find(arguments) as (batches, batch):
        return _print_results(batches, batch, terminal)


def _print_results(batches: Batches, batch: Batch, terminal: Terminal) -> int:
    failures = 0
    for result in batches.results(batch):
        asked = batch.conversations[result.position].messages[-1].text
        line: dict[str, object] = {"question": asked, "answer": result.text}
        if result.error is not None:
            failures += 1
            line = {"question": asked, "error": str(result.error)}
        terminal.line(msgspec.json.encode(line).decode())
    if failures:
        terminal.note(f"{failures:,} of {len(batch):,} questions have no answer.", "yellow")
    return FAILED if failures else OK


def _cancel(arguments: argparse.Namespace, terminal: Terminal) -> None:
    with _find(arguments) as (batches, batch):
        terminal.line(_describe(batches.cancel(batch)))


def _forget(arguments: argparse.Namespace, terminal: Terminal) -> None:
    directory = _directory()
    directory.load(arguments.id)  # raises if there is none
    directory.delete(arguments.id)
    terminal.say("Forgotten.")


def _describe(status: BatchStatus) -> str:
    failed = f", {status.failed:,} without an answer" if status.failed else ""
    why = f": {status.message}" if status.message else ""
    return f"{status.state}, {status.succeeded:,} of {status.total:,} answered{failed}{why}"


def _show(terminal: Terminal, status: BatchStatus) -> None:
    """A progress bar in the status line."""
    full = _BAR * status.finished // max(status.total, 1)
    terminal.show_status(f"[{'#' * full}{'.' * (_BAR - full)}] {_describe(status)}")
