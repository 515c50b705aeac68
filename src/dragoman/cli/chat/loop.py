"""The chat itself: what is typed goes to the model, or is a command.

Owns: the loop, and that nothing but leaving ends it: neither an error nor Ctrl-C.
Must not know: how turns are carried out, where lines come from, and what is shown of them.
"""

from __future__ import annotations

from importlib.util import find_spec

from dragoman._version import __version__
from dragoman.cli.arguments.talking import Talking
from dragoman.cli.exit_codes import OK, code_of
from dragoman.cli.failures import report
from dragoman.cli.printing import TextView, usage_line
from dragoman.cli.prompts import clean
from dragoman.cli.session import Session
from dragoman.cli.signals import Terminated
from dragoman.cli.terminal import Terminal, shortened
from dragoman.cli.turns import View, take_turn
from dragoman.cli.warning_lines import warnings_as_lines
from dragoman.errors import DragomanError

from .commands import COMMANDS, Outcome, carry_out
from .inputs import Input, open_input

__all__ = ["chat"]


def chat(arguments: Talking, terminal: Terminal) -> int:
    """Talk until the user leaves. The exit code is 0 on a terminal, and elsewhere that of the last failure."""
    with warnings_as_lines(terminal), Session(arguments, terminal) as session:
        talk = _Talk(session, terminal)
        talk.greet()
        talk.run(open_input(terminal, COMMANDS, talk.status))
        session.drop_empty()
        return OK if terminal.in_is_tty else talk.code


class _Talk:
    def __init__(self, session: Session, terminal: Terminal) -> None:
        self._session: Session = session
        self._terminal: Terminal = terminal
        self.code: int = OK

    def greet(self) -> None:
        client = self._session.client
        self._terminal.note(f"dragoman {__version__} · {client.model} · /help, Ctrl-D to leave")
        if client.history:
            title = shortened(client.conversation.messages[0].text, 60)
            self._terminal.note(f"Continuing: {title} ({len(client.history)} messages)")
            last = client.conversation.last
            if client.pending or (last is not None and last.role != "assistant"):
                self._terminal.note("It was interrupted; /continue lets the model go on.", "yellow")
            elif last is not None:
                self._terminal.note(shortened(last.text, self._terminal.width * 3))

    def status(self) -> str:
        """What stands below the input."""
        client = self._session.client
        tokens = client.usage.tokens
        used = f" · {tokens:,} tokens" if tokens else ""
        tools = len(client.tools.tools)
        offered = f"{tools} tool{'' if tools == 1 else 's'}"
        return f"{client.model} · {offered} · {self._session.approver.mode}{used}"

    def run(self, source: Input) -> None:
        edit = ""
        while True:
            try:
                said = source.read(edit)
            except KeyboardInterrupt as stopped:
                self._leave_if_told(stopped)
                edit = ""
                continue
            if said is None:
                return
            outcome = self._take(clean(said).strip())
            if outcome.leave:
                return
            edit = outcome.edit

    def _take(self, said: str) -> Outcome:
        """Carry out what was typed; whatever goes wrong is said, and the chat goes on."""
        if not said:
            return Outcome()
        try:
            if said.startswith("/") and not said.startswith("//"):
                outcome = carry_out(self._session, said)
                if outcome.go_on:
                    self._turn(None)
                return outcome
            return self._turn(said[1:] if said.startswith("//") else said)
        except KeyboardInterrupt as stopped:
            self._leave_if_told(stopped)
            self._terminal.say("[stopped]", "yellow")
        except DragomanError as error:
            self.code = report(error, self._terminal, debug=self._session.arguments.debug)
        return Outcome()

    def _leave_if_told(self, stopped: KeyboardInterrupt) -> None:
        """Ctrl-C stops what is under way; SIGTERM, or either of them where nobody types, ends the chat."""
        if isinstance(stopped, Terminated) or not self._terminal.in_is_tty:
            raise stopped

    def _turn(self, said: str | None) -> Outcome:
        client = self._session.client
        since = len(client.history)
        view = self._view()
        try:
            take_turn(client, said, self._session.approver, view)
        except DragomanError as error:
            _end(view)
            self.code = code_of(error)
            report(error, self._terminal, debug=self._session.arguments.debug)
            # A turn that failed before anything was heard leaves no trace: the words are there to be sent again.
            return Outcome(edit=said or "" if len(client.history) == since else "")
        except KeyboardInterrupt as stopped:
            _end(view)
            self._leave_if_told(stopped)
            if client.pending or len(client.history) > since:
                self._terminal.say("[stopped; /continue goes on]", "yellow")
                return Outcome()
            self._terminal.say("[stopped]", "yellow")
            return Outcome(edit=said or "")
        _end(view)
        if self._session.arguments.usage:
            self._terminal.note(usage_line(client, since))
        return Outcome()

    def _view(self) -> View:
        rich_enough = self._terminal.out_is_tty and self._terminal.err_is_tty and self._session.markdown
        if rich_enough and self._terminal.environ.get("TERM") != "dumb" and find_spec("rich") is not None:
            from .screen import Screen

            return Screen(self._terminal)
        return TextView(self._terminal)


def _end(view: View) -> None:
    if isinstance(view, TextView):
        view.end()
