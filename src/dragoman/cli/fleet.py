"""`dragoman fleet`: submit turns to workers, wait, approve, cancel and watch; `dragoman worker`: run turns."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

import dragoman.fleet
from dragoman.chat import load_config
from dragoman.conversation import Ended
from dragoman.fleet import Agent, Outcome, Turn, TurnEnded, prometheus_text
from dragoman.stores import MessageAdded, PostgresOptions, ToolCallBegun

from .arguments import Parser, UsageError, add_json, clean, suggest
from .failures import FAILED, LIMIT, NEEDS_APPROVAL, NO_ANSWER, OK, describe
from .output import format_call, format_result, print_json, print_list
from .terminal import Terminal, shorten, to_line
from .tools import load_module

if TYPE_CHECKING:
    from dragoman.fleet import Fleet, Worker  # they need an extra, which `--help` must not

_CODES: Final[dict[Ended, int]] = {
    "done": OK,
    "await_approval": NEEDS_APPROVAL,
    "limit_reached": LIMIT,
    "no_answer": NO_ANSWER,
    "cancelled": FAILED,
}


class FleetTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[fleet]: the default database. If it is empty, libpq's own variables apply."""

    postgres: str = ""
    schema: str = "dragoman"


def add_database(parser: Parser) -> None:
    """The options that name the database."""
    parser.add_argument("--postgres", metavar="URL", help="the database; by default [fleet] of the configuration")
    parser.add_argument("--schema", metavar="NAME", help="the schema of its tables (dragoman)")


def find_database(arguments: argparse.Namespace) -> tuple[str, PostgresOptions]:
    """The database of the arguments or the configuration."""
    table = load_config().section("fleet", FleetTable)
    url = table.postgres if arguments.postgres is None else arguments.postgres
    return url, {"schema": arguments.schema or table.schema}


def declare_fleet(parser: Parser) -> None:
    parser.default = "status"
    turn = "a turn or a conversation, by its id"
    status = _add(parser, "status", _status, "Show how many turns are queued, running and finished.")
    status.add_argument("-f", "--format", choices=("text", "json", "prometheus"), default="text", help="(text)")
    _add(parser, "install", _install, "Create the tables of a fleet, or migrate PgQueuer's to its version.")
    submit = _add(parser, "submit", _submit, "Submit a turn.", 'submit support "Where is my parcel?" --wait')
    submit.add_argument("agent", help="the agent that answers")
    submit.add_argument("words", nargs="*", metavar="PROMPT", help="the message")
    submit.add_argument("--cid", metavar="ID", help="in this conversation; by default in a new one")
    wait = _add(parser, "wait", _wait, "Wait for a turn and show its outcome.", "wait 01a1e92a-… --timeout 60")
    approve = _add(parser, "approve", _approve, "Approve calls that are waiting.", "approve 01a1e92a-… --wait")
    refuse, example = partial(_approve, deny=True), 'deny 01a1e92a-… --reason "too expensive"'
    deny = _add(parser, "deny", refuse, "Deny calls that are waiting.", example)
    resume = _add(parser, "resume", _resume, "Resume a conversation after a limit or an error.", "resume 01a1e92a-…")
    cancel = _add(parser, "cancel", _cancel, "Cancel a turn.", "cancel 01a1e92a-…")
    about = "Show the steps of a turn, or of all turns of a conversation."
    watch = _add(parser, "watch", _watch, about, "watch 01a1e92a-…")
    watch.add_argument("--after", type=int, default=0, metavar="N", help="leave the first N messages out")
    for each in (wait, approve, deny, resume, cancel, watch):
        each.add_argument("turn", help=turn)
    for each in (approve, deny):
        each.add_argument("calls", nargs="*", metavar="CALL", help="their ids; by default all that are waiting")
        each.add_argument("--reason", default="", help="shown to the model")
    for each in (submit, approve, deny, resume):
        each.add_argument("--wait", action="store_true", help="wait for the outcome")
    for each in (submit, wait, approve, deny, resume):
        each.add_argument("--timeout", type=float, metavar="SECONDS", help="how long to wait; by default no limit")
        add_json(each)


def _add(
    parser: Parser, name: str, run: Callable[[Fleet, Any, Terminal], int | None], about: str, example: str = ""
) -> Parser:
    def command(arguments: argparse.Namespace, terminal: Terminal) -> int | None:
        url, options = find_database(arguments)
        with dragoman.fleet.Fleet(url, **options) as fleet:
            return run(fleet, arguments, terminal)

    added = parser.add_command(name, command, about, f"dragoman fleet {example or name}")
    add_database(added)
    return added


def _status(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> None:
    rows = fleet.status()
    if arguments.format == "prometheus":
        terminal.answer(prometheus_text(rows))
        return
    print_list(
        terminal,
        rows,
        lambda row: {
            "agent": row.agent,
            "provider": row.provider,
            "queued": row.queued,
            "oldest": f"{row.oldest_seconds:.0f} s",
            "running": row.running,
            "last hour": ", ".join([f"{count} {name}" for name, count in row.ended.items()]) or "-",
        },
        as_json=arguments.format == "json",
        otherwise="No worker has offered an agent yet. Start one: dragoman worker MODULE:ATTRIBUTE",
    )


def _install(fleet: Fleet, _arguments: argparse.Namespace, terminal: Terminal) -> None:
    fleet.install()
    terminal.say("The tables are in place.")


def _submit(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    if not arguments.words:
        raise UsageError("There is no prompt.", hint="dragoman fleet submit AGENT PROMPT")
    turn = fleet.submit(clean(" ".join(arguments.words)), agent=arguments.agent, conversation=arguments.cid)
    return _follow(fleet, turn, arguments, terminal)


def _approve(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal, *, deny: bool = False) -> int:
    answer = fleet.deny if deny else fleet.approve
    turn = answer(arguments.turn, *arguments.calls, reason=clean(arguments.reason))
    return _follow(fleet, turn, arguments, terminal)


def _resume(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    return _follow(fleet, fleet.resume(arguments.turn), arguments, terminal)


def _follow(fleet: Fleet, turn: Turn, arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.wait:
        terminal.note(f"turn {turn.id} of conversation {turn.conversation}")
        return _show(fleet.wait(turn, arguments.timeout), arguments, terminal)
    if arguments.json:
        print_json(terminal, turn)
    else:
        terminal.line(turn.id)
    return OK


def _wait(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    terminal.show_status("waiting for the turn …")
    return _show(fleet.wait(arguments.turn, arguments.timeout), arguments, terminal)


def _show(outcome: Outcome, arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.json:
        print_json(terminal, outcome)
    elif outcome.text:
        terminal.line(outcome.text)
    _note_ending(outcome, terminal)
    return _CODES[outcome.ending]


def _note_ending(outcome: Outcome, terminal: Terminal) -> None:
    for each in outcome.pending:
        reason = f" ({to_line(each.reason)})" if each.reason else ""
        terminal.say(f"waiting for your approval: {to_line(f'{each.call.id}: {format_call(each.call)}')}{reason}")
    if outcome.pending:
        terminal.say(f"Answer with: dragoman fleet approve {outcome.turn.id} (or deny)")
    elif outcome.note:
        terminal.say(f"dragoman: {to_line(outcome.note)}", "yellow")
    elif outcome.ending != "done":
        terminal.say(f"dragoman: the turn ended: {outcome.ending}.", "yellow")


def _cancel(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> None:
    state = fleet.cancel(arguments.turn)
    texts = {"cancelled": "The turn is cancelled.", "running": "Its worker has been told to stop."}
    terminal.say(texts.get(state, f"The turn had already ended: {state}."))


def _watch(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    code = OK
    for event in fleet.watch(arguments.turn, after=arguments.after):
        match event:
            case MessageAdded():
                if event.message.role == "user":
                    terminal.note(f"> {shorten(event.message.text, terminal.width - 4)}")
                elif event.message.text:
                    terminal.line(event.message.text)
            case ToolCallBegun():
                terminal.note(f"→ {shorten(format_call(event.call), terminal.width - 4)}")
            case TurnEnded(outcome=None, error=error):
                assert error is not None
                terminal.say(f"dragoman: {' '.join(describe(error))}", "red")
                code = FAILED
            case TurnEnded(outcome=outcome):
                assert outcome is not None
                _note_ending(outcome, terminal)
                code = _CODES[outcome.ending]
            case done:
                terminal.note(format_result(done.result, terminal.width))
    return code


# --- a worker ---------------------------------------------------------------------------------------------------------

_EXAMPLE: Final = (
    "Write `agents = {'support': Agent('openai:gpt-5')}` into a module, and name it: dragoman worker shop:agents"
)


def declare_worker(parser: Parser) -> None:
    about = "Run conversation turns for a fleet; stop with Ctrl-C or SIGTERM, twice to stop at once."
    examples = ("dragoman worker shop:agents", "dragoman worker shop:worker")
    parser.describe(_work, about, *examples)
    parser.add_argument("place", metavar="MODULE:ATTRIBUTE", help="a Worker, or agents by name")
    parser.add_argument("--concurrency", type=int, metavar="N", help="turns at once, where agents are named (20)")
    add_database(parser)


def _work(arguments: argparse.Namespace, _terminal: Terminal) -> None:
    found = _load(arguments.place)
    if isinstance(found, dragoman.fleet.Worker):
        if arguments.postgres or arguments.schema or arguments.concurrency is not None:
            message = f"{arguments.place} is a Worker, which has its own database and concurrency."
            raise UsageError(message, hint="Set them there, or name a mapping of agents.")
        worker = found
    else:
        url, options = find_database(arguments)
        worker = dragoman.fleet.Worker(
            url, found, concurrency=20 if arguments.concurrency is None else arguments.concurrency, **options
        )
    logging.getLogger("dragoman.fleet").setLevel(logging.INFO)  # which turns run, and how they end
    worker.serve()


def _load(place: str) -> Worker | Mapping[str, Agent]:
    """The Worker or the agents in the user's module."""
    name, colon, attribute = place.partition(":")
    if not colon or not name or not attribute:
        raise UsageError(f"{place!r} is not MODULE:ATTRIBUTE.", hint=_EXAMPLE)
    module = load_module(name, Path.cwd())
    found: object = getattr(module, attribute, None)
    if found is None:
        raise UsageError(f"{name} has no {attribute!r}.", hint=suggest(attribute, vars(module), _EXAMPLE))
    if isinstance(found, dragoman.fleet.Worker):
        return found
    if isinstance(found, Mapping) and found:
        agents = cast("Mapping[str, object]", found)
        if all(isinstance(each, Agent) for each in agents.values()):
            return cast("Mapping[str, Agent]", agents)
    raise UsageError(f"{place} is neither a Worker nor a mapping of names to Agents.", hint=_EXAMPLE)
