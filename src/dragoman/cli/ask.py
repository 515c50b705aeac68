"""`dragoman ask`, and `dragoman` without a command: one question, one answer."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from dragoman.chat import AnswerType, answer_type
from dragoman.conversation import Message, StopReason
from dragoman.errors import DragomanError

from .arguments import Talking, UsageError
from .failures import LIMIT, NEEDS_APPROVAL, NO_ANSWER, OK, code_of, error_object, report
from .output import JsonLinesView, View, format_usage, sum_up
from .prompts import make_message, read_prompt, read_schema
from .session import Session
from .terminal import Terminal

_ENDINGS: Final = {
    StopReason.MAX_TOKENS: (LIMIT, "The answer was cut at the limit of tokens. Raise it: -o max_tokens 8000"),
    StopReason.CONTEXT_FULL: (LIMIT, "The model's window was full before the answer was. Begin a new conversation."),
    StopReason.REFUSAL: (NO_ANSWER, "The model declined to answer. Rephrase the question."),
    StopReason.CONTENT_FILTER: (NO_ANSWER, "The provider withheld the answer. Rephrase the question."),
}
"""Endings with which a program should not take the answer for a whole one."""


def ask(arguments: Talking, terminal: Terminal) -> int:
    """Ask, print the answer, and give the exit code."""
    terminal.quiet = arguments.quiet
    try:
        answer = None if arguments.schema is None else answer_type(read_schema(arguments.schema))
        if answer is not None and arguments.tools:
            message = "A question with --schema is asked without tools."
            raise UsageError(message, hint="Leave out -T, or ask in two steps: first with -T, then with -c --schema.")
        text, piped = read_prompt(arguments.words, terminal)
        message = make_message(text, piped, arguments.attachments, arguments.typed_attachments)
        if message is None and (answer is not None or not (arguments.go_on or arguments.cid)):
            raise UsageError("There is no question.", hint='Write one: dragoman "question"')
        with Session(arguments, terminal) as session:
            return _Question(session).ask(message, answer)
    except DragomanError as error:
        if arguments.json or arguments.json_lines:
            _print_json(terminal, {"error": error_object(error, code_of(error))}, arguments)
        return report(error, terminal, debug=arguments.debug)


def _print_json(terminal: Terminal, found: dict[str, object], arguments: Talking) -> None:
    tagged = {"type": "result", **found} if arguments.json_lines else found
    terminal.line(msgspec.json.encode(tagged).decode())


class _Question:
    """A question under way."""

    def __init__(self, session: Session) -> None:
        self._session: Session = session
        self._terminal: Terminal = session.terminal
        self._arguments: Talking = session.arguments
        self._since: int = len(session.client.history)

    def ask(self, message: Message | None, kind: AnswerType[object] | None) -> int:
        """A text, with tools, or JSON of this kind without. What was said stays, also if it breaks off."""
        if message is None and not self._session.can_continue():
            text = "The conversation is complete: there is nothing to continue."
            raise UsageError(text, hint='Say something: dragoman -c "…"')
        answer: object = None
        try:
            if kind is None or message is None:
                self._session.take_turn(message, self._make_view())
            else:
                view = self._make_view()
                view.wait()
                try:
                    answer = self._session.client.ask(message, kind)
                finally:
                    view.pause()
        except (DragomanError, KeyboardInterrupt) as error:
            return self._break_off(error)
        code = self._judge_ending() if kind is None else OK
        if kind is not None and not self._wants_json:
            self._terminal.line(json.dumps(msgspec.to_builtins(answer), indent=2, ensure_ascii=False))
        self._conclude(code, **({} if kind is None else {"answer": answer}))
        return code

    def _make_view(self) -> View:
        if self._arguments.json_lines:
            return JsonLinesView(self._terminal)
        return View() if self._arguments.json else self._session.make_view()

    @property
    def _wants_json(self) -> bool:
        return self._arguments.json or self._arguments.json_lines

    def _judge_ending(self) -> int:
        if self._session.approver.refused:
            return NEEDS_APPROVAL
        last = self._session.client.conversation.last
        ending = _ENDINGS.get(last.stop_reason) if last is not None and last.stop_reason is not None else None
        if ending is None:
            return OK
        code, words = ending
        self._terminal.say(f"dragoman: {words}", "yellow")
        return code

    def _break_off(self, error: DragomanError | KeyboardInterrupt) -> int:
        self._session.drop_empty()
        code = code_of(error)
        if isinstance(error, KeyboardInterrupt):
            kept = "; what was said is kept. Continue with: dragoman -c" if self._session.is_kept else ""
            self._terminal.say(f"dragoman: interrupted{kept}", "yellow")
            self._conclude(code, error={"type": type(error).__name__, "message": "interrupted", "exit_code": code})
        else:
            self._conclude(code, error=error_object(error, code))
            report(error, self._terminal, debug=self._arguments.debug)
        return code

    def _conclude(self, code: int, **further: object) -> None:
        if self._wants_json:
            found = sum_up(self._session.client, self._since, **further, exit_code=code)
            _print_json(self._terminal, found, self._arguments)
        if self._arguments.usage:
            self._terminal.say(format_usage(self._session.client.history[self._since :]), "dim")
