"""One question, one answer: `dragoman "question"`.

Owns: carrying it out, and its exit code.
Must not know: how the model is called, and how approvals are asked for.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from dragoman.chat.schema import AnswerType, answer_type
from dragoman.conversation import Message, StopReason
from dragoman.errors import DragomanError

from .arguments import UsageError
from .arguments.talking import Talking
from .exit_codes import LIMIT, NEEDS_APPROVAL, NO_ANSWER, OK, code_of
from .failures import report
from .printing import JsonLinesView, SilentView, TextView, error_object, sum_up, usage_line
from .prompts import message_from, read_prompt
from .session import Session
from .short_schema import read_schema
from .terminal import Terminal
from .turns import take_turn
from .warning_lines import warnings_as_lines

__all__ = ["ask"]

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
            message = "An answer of a schema is had without tools."
            raise UsageError(message, hint="Leave out -T, or ask in two steps: first with -T, then with -c --schema.")
        text, piped = read_prompt(arguments.words, terminal)
        message = message_from(text, piped, arguments.attachments, arguments.typed_attachments)
        if message is None and not (arguments.go_on or arguments.cid):
            raise UsageError("There is no question.", hint='Write one: dragoman "question"')
        with warnings_as_lines(terminal), Session(arguments, terminal) as session:
            asked = _Asked(session, terminal)
            return asked.for_answer(message, answer) if answer is not None else asked.turn(message)
    except DragomanError as error:
        if not (arguments.json or arguments.json_lines) or getattr(error, "was_printed", False):
            raise
        code = code_of(error)
        _print_json(terminal, {"error": error_object(error, code)}, arguments)
        return report(error, terminal, debug=arguments.debug)


def _print_json(terminal: Terminal, found: dict[str, object], arguments: Talking) -> None:
    tagged = {"type": "result", **found} if arguments.json_lines else found
    terminal.line(msgspec.json.encode(tagged).decode())


class _Asked:
    """A question under way."""

    def __init__(self, session: Session, terminal: Terminal) -> None:
        self._session: Session = session
        self._terminal: Terminal = terminal
        self._arguments: Talking = session.arguments
        self._since: int = len(session.client.history)

    def turn(self, message: Message | None) -> int:
        """A text, with tools."""
        client = self._session.client
        self._check_there_is_something(message)
        view = self._view()
        try:
            take_turn(client, message, self._session.approver, view)
        except (DragomanError, KeyboardInterrupt) as error:
            if isinstance(view, TextView):
                view.end()
            return self._broke_off(error)
        if isinstance(view, TextView):
            view.end()
        code = self._code()
        self._conclude(code)
        return code

    def for_answer(self, message: Message | None, kind: AnswerType[object]) -> int:
        """JSON of this kind, without tools."""
        if message is None:
            raise UsageError("--schema needs a question.", hint='Write one: dragoman -c --schema "name" "Who was it?"')
        client = self._session.client
        try:
            answer: object = client.ask(message, kind)
        except (DragomanError, KeyboardInterrupt) as error:
            return self._broke_off(error)
        if self._is_json:
            self._conclude(OK, answer=answer)
        else:
            self._terminal.line(json.dumps(msgspec.to_builtins(answer), indent=2, ensure_ascii=False))
            self._conclude(OK)
        return OK

    def _check_there_is_something(self, message: Message | None) -> None:
        last = self._session.client.conversation.last
        if message is None and (last is None or (last.role == "assistant" and not self._session.client.pending)):
            text = "The conversation is complete: there is nothing to continue."
            raise UsageError(text, hint='Say something: dragoman -c "…"')

    def _view(self) -> TextView | JsonLinesView | SilentView:
        if self._arguments.json_lines:
            return JsonLinesView(self._terminal)
        return SilentView() if self._arguments.json else TextView(self._terminal)

    @property
    def _is_json(self) -> bool:
        return self._arguments.json or self._arguments.json_lines

    # --- the end ---

    def _code(self) -> int:
        if self._session.approver.refused:
            return NEEDS_APPROVAL
        last = self._session.client.conversation.last
        ending = _ENDINGS.get(last.stop_reason) if last is not None and last.stop_reason is not None else None
        if ending is None:
            return OK
        code, words = ending
        self._terminal.say(f"dragoman: {words}", "yellow")
        return code

    def _broke_off(self, error: DragomanError | KeyboardInterrupt) -> int:
        """What was said stays, and is printed where JSON is wanted; then the error."""
        self._session.drop_empty()
        code = code_of(error)
        if isinstance(error, KeyboardInterrupt):
            kept = "; what was said is kept. Continue with: dragoman -c" if self._session.is_kept else ""
            self._terminal.say(f"dragoman: interrupted{kept}", "yellow")
            self._conclude(code, error={"type": type(error).__name__, "message": "interrupted", "exit_code": code})
            return code
        self._conclude(code, error=error_object(error, code))
        report(error, self._terminal, debug=self._arguments.debug)
        return code

    def _conclude(self, code: int, **further: object) -> None:
        if self._is_json:
            found = sum_up(self._session.client, self._since, **further)
            found["exit_code"] = code
            _print_json(self._terminal, found, self._arguments)
        if self._arguments.usage:
            self._terminal.say(usage_line(self._session.client, self._since), "dim")
