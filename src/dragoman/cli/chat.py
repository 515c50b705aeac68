"""`dragoman chat`: what is typed is a message to the model, or a command that starts with /."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeAlias

from dragoman._version import __version__
from dragoman.directories import state_directory
from dragoman.errors import ConfigurationError, DragomanError

from .arguments import APPROVE, Parser, UsageError, add_talking, clean, find_nearest
from .failures import OK, report
from .history import shorten_id, write_document
from .output import format_cost, format_usage
from .program import Terminated
from .session import Session
from .terminal import Terminal, shorten, to_line

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent


def declare_chat(parser: Parser) -> None:
    about = "Chat with a model: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves."
    model = "dragoman chat -m anthropic:claude-sonnet-4-5 -T Read -T Bash"
    parser.describe(chat, about, "dragoman chat", model, "dragoman chat -c")
    add_talking(parser)
    without = "ignore the project's instructions (AGENTS.md, CLAUDE.md or GEMINI.md)"
    parser.add_argument("--no-instructions", dest="instructions", action="store_false", help=without)


def chat(arguments: Namespace, terminal: Terminal) -> int:
    """Chat until the user leaves. The exit code is 0 on a terminal, and elsewhere that of the last failure."""
    with Session(arguments, terminal, reads_instructions=arguments.instructions) as session:
        talk = _Talk(session)
        talk.greet()
        talk.run(open_input(terminal, talk.commands, talk.describe_status))
        session.drop_empty()
        if session.is_kept and session.client.id is not None and terminal.in_is_tty:
            terminal.note(f"To continue: dragoman chat --cid {shorten_id(session.client.id)}")
        return OK if terminal.in_is_tty else talk.code


class _Talk:
    """A chat: its turns and its commands."""

    def __init__(self, session: Session) -> None:
        self._session: Session = session
        self._terminal: Terminal = session.terminal
        self._edit: str = ""
        """The text that the next input starts with."""
        self._is_over: bool = False
        self.code: int = OK
        self.commands: Mapping[str, tuple[Callable[[str], None], str, str]] = {
            "help": (self._help, "", "list the commands"),
            "model": (self._model, "[NAME]", "show the model; continue with another one"),
            "tools": (self._tools, "[NAMES]", "show the tools; use these instead, or none"),
            "approve": (self._approve, "[ask|auto|deny]", "what happens to calls that no rule allows"),
            "system": (self._system, "[TEXT]", "show the system prompt; change it, or none"),
            "usage": (self._usage, "", "the tokens and the cost of this conversation"),
            "undo": (self._undo, "", "take back the last turn"),
            "fork": (self._fork, "", "continue in a copy; the original stays as it is"),
            "new": (self._new, "", "start a new conversation"),
            "continue": (self._continue, "", "let the model continue after an interruption"),
            "save": (self._save, "FILE", "write the conversation to a .md or .json file"),
            "quit": (self._quit, "", "leave"),
        }

    def greet(self) -> None:
        client, note = self._session.client, self._terminal.note
        note(f"dragoman {__version__} · {client.model} · /help, Ctrl-D to leave")
        last = client.conversation.last
        if last is None:
            return
        note(f"Continuing: {shorten(client.history[0].text, 60)} ({len(client.history)} messages)")
        if self._session.can_continue():
            note("It was interrupted; /continue lets the model continue.", "yellow")
        else:
            note(shorten(last.text, self._terminal.width * 3))

    def describe_status(self) -> str:
        """The line below the input."""
        client = self._session.client
        used = f" · {client.usage.tokens:,} tokens, cost {format_cost(client.cost)}" if client.usage.tokens else ""
        tools = len(client.tools.tools)
        return f"{client.model} · {tools} tool{'' if tools == 1 else 's'} · {self._session.approver.mode}{used}"

    def run(self, read: Read) -> None:
        while not self._is_over:
            edit, self._edit = self._edit, ""
            try:
                line = read(edit)
                if line is None:
                    return
                self._handle(clean(line).strip())
            except KeyboardInterrupt as interrupt:
                self._leave_if_terminated(interrupt)
            except DragomanError as error:
                self.code = report(error, self._terminal, debug=self._session.arguments.debug)

    def _handle(self, line: str) -> None:
        if not line.startswith("/") or line.startswith("//"):
            return self._take_turn(line.removeprefix("/")) if line else None
        name, _, rest = line[1:].strip().partition(" ")
        name = {"exit": "quit", "?": "help", "": "help"}.get(name, name)
        if name not in self.commands:
            near = find_nearest(name, self.commands)
            meant = f"Did you mean /{near}? " if near else ""
            hint = f"{meant}/help lists them; // starts a message with /."
            raise UsageError(f"There is no command /{name}.", hint=hint)
        return self.commands[name][0](rest.strip())

    def _leave_if_terminated(self, interrupt: KeyboardInterrupt) -> None:
        """Ctrl-C stops the answer; SIGTERM, or Ctrl-C without a terminal, ends the chat."""
        if isinstance(interrupt, Terminated) or not self._terminal.in_is_tty:
            raise interrupt

    def _take_turn(self, prompt: str | None) -> None:
        client = self._session.client
        since = len(client.history)
        try:
            self._session.tell_ending(self._session.take_turn(prompt, self._session.make_view()))
            if self._session.arguments.usage:
                self._terminal.note(format_usage(client.history[since:]))
            return
        except DragomanError as error:
            self.code = report(error, self._terminal, debug=self._session.arguments.debug)
        except KeyboardInterrupt as interrupt:
            self._leave_if_terminated(interrupt)
            can_continue = client.pending or len(client.history) > since
            how = f"; {self._session.waiting}/continue resumes" if can_continue else ""
            self._terminal.say(f"[stopped{how}]", "yellow")
        if len(client.history) == since and not client.pending:
            self._edit = prompt or ""  # the turn left no trace: offer the prompt again

    # --- commands ---

    def _help(self, _rest: str) -> None:
        usages = {f"/{name} {arguments}": about for name, (_, arguments, about) in self.commands.items()}
        for usage, about in usages.items():
            self._terminal.say(f"{usage:<{max(map(len, usages))}}  {about}")
        self._terminal.say("Enter sends, Alt-Enter starts a new line, Ctrl-C stops the answer, Ctrl-D leaves.")

    def _model(self, rest: str) -> None:
        for loss in self._session.use_model(rest) if rest else ():
            self._terminal.say(str(loss), "yellow")
        self._terminal.say(f"The model is {self._session.client.model}.")

    def _tools(self, rest: str) -> None:
        client = self._session.client
        if rest:
            client.set_tools([] if rest == "none" else self._session.build_tools(rest.replace(",", " ").split()))
        for tool in client.tools.tools:
            about = shorten(tool.description, max(20, self._terminal.width - len(tool.name) - 4))
            self._terminal.say(f"{to_line(tool.name)}  {about}")
        if not len(client.tools.tools):
            self._terminal.say("There are no tools. Try /tools Read Grep, or /tools toolkit.")

    def _approve(self, rest: str) -> None:
        if rest and rest not in APPROVE:
            raise UsageError(f"There is no approval mode {rest!r}.", hint="Use ask, auto or deny.")
        self._session.approver.mode = rest or self._session.approver.mode
        self._terminal.say(f"Calls that no rule allows: {self._session.approver.mode}.")

    def _system(self, rest: str) -> None:
        if rest:
            self._session.use_system("" if rest == "none" else rest)
        self._terminal.say(self._session.system or "There is no system prompt.")

    def _usage(self, _rest: str) -> None:
        history = self._session.client.history
        self._terminal.say(f"{len(history)} messages; {format_usage(history)}.")

    def _undo(self, _rest: str) -> None:
        messages = self._session.client.history
        at = max([index for index, message in enumerate(messages) if message.role == "user"], default=None)
        if at is None:
            raise UsageError("There is nothing to undo.", hint="")
        self._session.rewrite(lambda conversation: conversation.up_to(at))
        self._terminal.say("Took back the last turn; your message is back in the input.")
        self._edit = messages[at].text

    def _fork(self, _rest: str) -> None:
        before = self._session.client.id
        self._session.fork()
        kept = f"; the original is {shorten_id(before)}" if before is not None else ""
        self._terminal.say(f"This is now a copy with its own history{kept}.")

    def _new(self, _rest: str) -> None:
        self._session.begin_anew()
        self._terminal.say("Started a new conversation.")

    def _continue(self, _rest: str) -> None:
        if not self._session.can_continue():
            raise UsageError("There is nothing to continue.", hint="Type a message.")
        self._take_turn(None)

    def _save(self, rest: str) -> None:
        if not rest:
            raise UsageError("Where to?", hint="Name a file: /save talk.md (or .json)")
        self._terminal.say(f"Written to {write_document(self._session.client.save(), rest)}.")

    def _quit(self, _rest: str) -> None:
        self._is_over = True


# --- input ------------------------------------------------------------------------------------------------------------

_PROMPT: Final = "> "
Read: TypeAlias = Callable[[str], str | None]
"""Reads the next message, which may have several lines, starting with a text to edit; None at the end of input."""


def open_input(terminal: Terminal, commands: Iterable[str], describe_status: Callable[[], str]) -> Read:
    """The line editor if it is installed and there is a terminal; otherwise plain lines."""
    if not (terminal.in_is_tty and terminal.err_is_tty) or terminal.environ.get("TERM") == "dumb":
        return lambda _edit: _read_plain(terminal)
    if find_spec("prompt_toolkit") is None:
        terminal.note("dragoman: editing, history and Markdown come with: pip install 'dragoman[cli]'", "yellow")
        return lambda _edit: _read_plain(terminal)
    return _make_editor(commands, describe_status)


def _read_plain(terminal: Terminal) -> str | None:
    """Read lines; a backslash at the end of a line continues it in the next one."""
    lines: list[str] = []
    while True:
        if terminal.in_is_tty:
            terminal.write_error(_PROMPT if not lines else ". ")
        line = terminal.stdin.readline() if terminal.stdin is not None else ""
        if not line:
            return "\n".join(lines) if lines else None
        line = line.rstrip("\r\n")
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _make_editor(commands: Iterable[str], describe_status: Callable[[], str]) -> Read:
    """A line editor: history, completion of commands, several lines (Alt-Enter), pasting."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output import create_output

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _break_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    history: History = InMemoryHistory()
    with suppress(OSError, ConfigurationError):  # if it cannot be stored
        path = state_directory() / "chat_history"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))  # readable by the owner only
        history = FileHistory(str(path))
    session: PromptSession[str] = PromptSession(
        history=history,
        completer=WordCompleter([f"/{name}" for name in commands], sentence=True),
        multiline=True,
        key_bindings=keys,
        bottom_toolbar=describe_status,
        output=create_output(stdout=sys.stderr),  # standard output is for answers
        prompt_continuation=". ",
        reserve_space_for_menu=4,
    )

    def read(edit: str) -> str | None:
        try:
            return session.prompt(_PROMPT, default=edit)
        except EOFError:
            return None

    return read
