"""`dragoman fleet`: turns that workers carry out, handed in, waited for, answered, cancelled and watched."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

import dragoman.fleet
from dragoman.chat import load_config
from dragoman.fleet import Outcome, Turn, TurnEnded, prometheus_text
from dragoman.stores import MessageAdded, PostgresOptions, ToolCallBegun

from .arguments import Parser, UsageError, add_json, clean
from .failures import FAILED, LIMIT, NEEDS_APPROVAL, OK, describe
from .output import format_result, print_json, print_list
from .terminal import Terminal, shorten, to_line

if TYPE_CHECKING:
    from dragoman.fleet import Fleet  # which needs an extra; the help does not

_CODES: Final = {"done": OK, "await_approval": NEEDS_APPROVAL, "limit_reached": LIMIT, "cancelled": FAILED}


class FleetTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[fleet]: the database where nothing is said on the command line; without it, what libpq's own variables say."""

    postgres: str = ""
    schema: str = "dragoman"


def add_database(parser: Parser) -> None:
    """The options of whatever speaks to the database."""
    parser.add_argument("--postgres", metavar="URL", help="the database; by default [fleet] of the configuration")
    parser.add_argument("--schema", metavar="NAME", help="where its tables lie (dragoman)")


def find_database(arguments: argparse.Namespace) -> tuple[str, PostgresOptions]:
    """The database that is meant."""
    table = load_config().section("fleet", FleetTable)
    url = table.postgres if arguments.postgres is None else arguments.postgres
    return url, {"schema": arguments.schema or table.schema}


def declare_fleet(parser: Parser) -> None:
    """The commands about a fleet."""
    parser.default = "status"
    turn = "a turn or a conversation, by its id"
    status = _add(parser, "status", _status, "Show how many turns wait, are under way and have ended.")
    status.add_argument("-f", "--format", choices=("text", "json", "prometheus"), default="text", help="(text)")
    _add(parser, "install", _install, "Make the tables of a fleet, or bring those of PgQueuer up to its version.")
    submit = _add(parser, "submit", _submit, "Hand a turn in.", 'submit support "Where is my parcel?" --wait')
    submit.add_argument("agent", help="who is to answer: an agent of the workers")
    submit.add_argument("words", nargs="*", metavar="PROMPT", help="what is said")
    submit.add_argument("--cid", metavar="ID", help="in this conversation; by default in a new one")
    wait = _add(parser, "wait", _wait, "Wait for a turn, and show what came of it.", "wait 01a1e92a-… --timeout 60")
    approve = _add(parser, "approve", _approve, "Let calls that wait be carried out.", "approve 01a1e92a-… --wait")
    deny = _add(parser, "deny", _deny, "Refuse calls that wait.", 'deny 01a1e92a-… --reason "too dear"')
    resume = _add(
        parser, "resume", _resume, "Go on with a conversation, after a limit or an error.", "resume 01a1e92a-…"
    )
    cancel = _add(parser, "cancel", _cancel, "Cancel a turn.", "cancel 01a1e92a-…")
    watch = _add(
        parser, "watch", _watch, "Show the steps of a turn, or of all turns of a conversation.", "watch 01a1e92a-…"
    )
    watch.add_argument("--after", type=int, default=0, metavar="N", help="leave the first N messages out")
    for each in (wait, approve, deny, resume, cancel, watch):
        each.add_argument("turn", help=turn)
    for each in (approve, deny):
        each.add_argument("calls", nargs="*", metavar="CALL", help="their ids; by default all that wait")
        each.add_argument("--reason", default="", help="which the model reads")
    for each in (submit, approve, deny, resume):
        each.add_argument("--wait", action="store_true", help="wait for what comes of it")
    for each in (submit, wait, approve, deny, resume):
        each.add_argument("--timeout", type=float, metavar="SECONDS", help="how long to wait; by default for ever")
        add_json(each)


def _add(
    parser: Parser, name: str, run: Callable[[Fleet, Any, Terminal], int], about: str, example: str = ""
) -> Parser:
    def command(arguments: argparse.Namespace, terminal: Terminal) -> int:
        url, options = find_database(arguments)
        with dragoman.fleet.Fleet(url, **options) as fleet:
            return run(fleet, arguments, terminal)

    added = parser.add_command(name, command, about, f"dragoman fleet {example or name}")
    add_database(added)
    return added


def _status(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    rows = fleet.status()
    if arguments.format == "prometheus":
        terminal.answer(prometheus_text(rows))
        return OK
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
    return OK


def _install(fleet: Fleet, _arguments: argparse.Namespace, terminal: Terminal) -> int:
    fleet.install()
    terminal.say("The tables are there.")
    return OK


def _submit(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    if not arguments.words:
        raise UsageError("What is to be said?", hint="dragoman fleet submit AGENT PROMPT")
    said = clean(" ".join(arguments.words))
    return _hand_in(fleet, fleet.submit(said, agent=arguments.agent, conversation=arguments.cid), arguments, terminal)


def _approve(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    turn = fleet.approve(arguments.turn, *arguments.calls, reason=clean(arguments.reason))
    return _hand_in(fleet, turn, arguments, terminal)


def _deny(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    turn = fleet.deny(arguments.turn, *arguments.calls, reason=clean(arguments.reason))
    return _hand_in(fleet, turn, arguments, terminal)


def _resume(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    return _hand_in(fleet, fleet.resume(arguments.turn), arguments, terminal)


def _hand_in(fleet: Fleet, turn: Turn, arguments: argparse.Namespace, terminal: Terminal) -> int:
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
        called = f"{each.call.id}: {each.call.name} {each.call.arguments}"
        terminal.say(f"waits for your word: {to_line(called)}{f' ({to_line(each.reason)})' if each.reason else ''}")
    if outcome.pending:
        terminal.say(f"Answer with: dragoman fleet approve {outcome.turn.id}, or deny")
    elif outcome.ending != "done":
        terminal.say(f"dragoman: the turn ended as {outcome.ending}.", "yellow")


def _cancel(fleet: Fleet, arguments: argparse.Namespace, terminal: Terminal) -> int:
    state = fleet.cancel(arguments.turn)
    told = {"cancelled": "The turn is cancelled.", "running": "Its worker is told to stop."}
    terminal.say(told.get(state, f"The turn had ended before, as {state}."))
    return OK


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
                terminal.note(f"→ {shorten(f'{event.call.name} {event.call.arguments}', terminal.width - 4)}")
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
