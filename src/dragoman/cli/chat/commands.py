"""The commands that begin with /.

Owns: their names, what they do, and what is said about a wrong one.
Must not know: where lines come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dragoman.cli.arguments import UsageError, nearest
from dragoman.cli.conversations import all_conversations, find, short_id
from dragoman.cli.export import export, format_of
from dragoman.cli.paths import user_path
from dragoman.cli.session import Session
from dragoman.cli.terminal import one_line, shortened
from dragoman.conversation import Conversation

__all__ = ["COMMANDS", "Outcome", "SlashCommand", "carry_out"]


class Outcome(NamedTuple):
    """What the chat does after a command."""

    leave: bool = False
    go_on: bool = False
    """Whether the model is to speak without a new message."""
    edit: str = ""
    """What stands in the next input."""


class SlashCommand(NamedTuple):
    """A command of the chat."""

    run: Callable[[Session, str], Outcome | None]
    arguments: str
    about: str


def carry_out(session: Session, line: str) -> Outcome:
    """Carry out a line that begins with /. Raises UsageError, and whatever the command raises."""
    name, _, rest = line[1:].strip().partition(" ")
    found = COMMANDS.get(_ALIASES.get(name, name))
    if found is None:
        near = nearest(name, COMMANDS)
        hint = f"Did you mean /{near}? " if near else ""
        raise UsageError(f"There is no command /{name}.", hint=f"{hint}/help lists them; // begins a message with /.")
    return found.run(session, rest.strip()) or Outcome()


# --- the commands -----------------------------------------------------------------------------------------------------


def _help(session: Session, _rest: str) -> None:
    wide = max(len(f"/{name} {each.arguments}") for name, each in COMMANDS.items())
    for name, each in COMMANDS.items():
        session.terminal.say(f"{f'/{name} {each.arguments}':<{wide}}  {each.about}")
    session.terminal.say("Enter sends, Alt-Enter begins a new line, Ctrl-C stops the answer, Ctrl-D leaves.")


def _model(session: Session, rest: str) -> None:
    if rest:
        for loss in session.use_model(rest):
            session.terminal.say(f"{loss}", "yellow")
    session.terminal.say(f"The model is {session.client.model}.")


def _tools(session: Session, rest: str) -> None:
    if rest == "none":
        session.client.set_tools([])
    elif rest:
        session.client.set_tools(session.tools(rest.replace(",", " ").split()))
    for tool in session.client.tools.tools:
        about = shortened(tool.description, max(20, session.terminal.width - len(tool.name) - 4))
        session.terminal.say(f"{one_line(tool.name)}  {about}")
    if not len(session.client.tools.tools):
        session.terminal.say("There are no tools. Say, for example: /tools Read Grep, or /tools toolkit")


def _approve(session: Session, rest: str) -> None:
    if rest:
        if rest not in ("ask", "auto", "deny"):
            raise UsageError(f"{rest!r} is no way to approve.", hint="Say ask, auto or deny.")
        session.approver.mode = rest
    session.terminal.say(f"Calls that no rule allows: {session.approver.mode}.")


def _system(session: Session, rest: str) -> None:
    if rest:
        system = None if rest == "none" else rest
        session.rewrite(lambda conversation: conversation.with_system(system))
    session.terminal.say(session.client.conversation.system or "There is no system prompt.")


def _usage(session: Session, _rest: str) -> None:
    usage = session.client.usage
    counts = {"read": usage.input, "of it cached": usage.cache_read, "written": usage.output}
    known = ", ".join([f"{count:,} {what}" for what, count in counts.items() if count]) or "none reported"
    session.terminal.say(f"{len(session.client.history)} messages; tokens: {known}.")


def _undo(session: Session, _rest: str) -> Outcome:
    taken = ""

    def without_last(conversation: Conversation) -> Conversation:
        nonlocal taken
        at = [index for index, message in enumerate(conversation.messages) if message.role == "user"]
        if not at:
            raise UsageError("There is nothing to undo.", hint="")
        taken = conversation.messages[at[-1]].text
        return conversation.up_to(at[-1])

    session.rewrite(without_last)
    session.terminal.say("The last turn is undone; your words are back in the input.")
    return Outcome(edit=taken)


def _fork(session: Session, _rest: str) -> None:
    before = session.client.id
    session.fork()
    kept = f"; the other one is {short_id(before)}" if before is not None else ""
    session.terminal.say(f"From here on this is a conversation of its own{kept}.")


def _save(session: Session, rest: str) -> None:
    if not rest:
        session.client.save()
        if session.store is None or session.client.id is None:
            raise UsageError("This conversation is not kept.", hint="Name a file: /save talk.md (or .json, .html)")
        session.terminal.say(f"It is kept as {session.client.id}.")
        return
    path = user_path(rest)
    text = export(session.client.save(), format_of(path))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{rest} cannot be written: {error.strerror}.", hint="Name another file.") from None
    session.terminal.say(f"Written to {path}.")


def _load(session: Session, rest: str) -> None:
    if session.store is None:
        raise UsageError("Conversations are not kept here.", hint="Start without -n.")
    if not rest:
        raise UsageError("Which conversation?", hint="/history lists them: /load ID")
    summary = find(session.store, rest)
    session.take_up(summary)
    session.terminal.say(f"Continuing: {shortened(summary.title, 60)} ({summary.message_count} messages)")


def _history(session: Session, rest: str) -> None:
    if session.store is None:
        raise UsageError("Conversations are not kept here.", hint="Start without -n.")
    most = int(rest) if rest.isdecimal() else 10
    for _, each in zip(range(most), all_conversations(session.store), strict=False):
        title = shortened(each.title, max(20, session.terminal.width - 30))
        session.terminal.say(f"{short_id(each.root)}  {each.created_at.astimezone():%Y-%m-%d %H:%M}  {title}")


def _new(session: Session, _rest: str) -> None:
    session.begin_anew()
    session.terminal.say("A new conversation.")


def _continue(session: Session, _rest: str) -> Outcome:
    last = session.client.conversation.last
    if last is None or (last.role == "assistant" and not session.client.pending):
        raise UsageError("There is nothing to continue.", hint="Say something.")
    return Outcome(go_on=True)


def _quit(_session: Session, _rest: str) -> Outcome:
    return Outcome(leave=True)


COMMANDS: Final[Mapping[str, SlashCommand]] = {
    "help": SlashCommand(_help, "", "what can be said here"),
    "model": SlashCommand(_model, "[NAME]", "the model; go on with another one"),
    "tools": SlashCommand(_tools, "[NAMES]", "the tools; use these instead, or none"),
    "approve": SlashCommand(_approve, "[ask|auto|deny]", "what happens to calls that no rule allows"),
    "system": SlashCommand(_system, "[TEXT]", "the system prompt; change it, or none"),
    "usage": SlashCommand(_usage, "", "the tokens of this conversation"),
    "undo": SlashCommand(_undo, "", "take back the last turn"),
    "fork": SlashCommand(_fork, "", "go on in a copy; the original stays as it is"),
    "new": SlashCommand(_new, "", "begin a new conversation"),
    "continue": SlashCommand(_continue, "", "let the model go on after an interruption"),
    "history": SlashCommand(_history, "[N]", "the latest conversations"),
    "load": SlashCommand(_load, "ID", "go on with one of them"),
    "save": SlashCommand(_save, "[FILE]", "write the conversation to a .md, .json or .html file"),
    "quit": SlashCommand(_quit, "", "leave"),
}
_ALIASES: Final = {"exit": "quit", "q": "quit", "?": "help", "": "help"}
