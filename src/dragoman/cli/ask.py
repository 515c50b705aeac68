"""`dragoman ask`, and `dragoman` without a command: one question, one answer."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Final

import msgspec

from dragoman.chat import AnswerType, answer_type
from dragoman.conversation import Message, StopReason
from dragoman.errors import DragomanError

from .arguments import UsageError
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


def ask(arguments: Namespace, terminal: Terminal) -> int:
    """Ask, print the answer, and give the exit code."""
    terminal.quiet = arguments.quiet
    try:
        kind = None if arguments.schema is None else answer_type(read_schema(arguments.schema))
        if kind is not None and arguments.tools:
            message = "A question with --schema is asked without tools."
            raise UsageError(message, hint="Leave out -T, or ask in two steps: first with -T, then with -c --schema.")
        text, piped = read_prompt(arguments.words, terminal)
        message = make_message(text, piped, arguments.attachments, arguments.typed_attachments)
        if message is None and (kind is not None or not (arguments.go_on or arguments.cid)):
            raise UsageError("There is no question.", hint='Write one: dragoman "question"')
        with Session(arguments, terminal) as session:
            if message is None and not session.can_continue():
                text = "The conversation is complete: there is nothing to continue."
                raise UsageError(text, hint='Say something: dragoman -c "…"')
            return _ask(session, message, kind)
    except DragomanError as error:
        _print_json(terminal, arguments, {"error": error_object(error)})
        return report(error, terminal, debug=arguments.debug)


def _print_json(terminal: Terminal, arguments: Namespace, found: dict[str, object]) -> None:
    if arguments.json or arguments.json_lines:
        tagged = {"type": "result", **found} if arguments.json_lines else found
        terminal.line(msgspec.json.encode(tagged).decode())


def _ask(session: Session, message: Message | None, kind: AnswerType[object] | None) -> int:
    """A text, with tools, or JSON of this kind without. What was said stays, also if it breaks off."""
    client, terminal, arguments = session.client, session.terminal, session.arguments
    since, code, further = len(client.history), OK, dict[str, object]()
    try:
        if kind is None or message is None:
            session.take_turn(message, _make_view(session))
            code = _judge_ending(session)
        else:
            further["answer"] = answer = _ask_for_json(session, message, kind)
            if not (arguments.json or arguments.json_lines):
                terminal.line(json.dumps(msgspec.to_builtins(answer), indent=2, ensure_ascii=False))
    except (DragomanError, KeyboardInterrupt) as error:
        session.drop_empty()
        code, further["error"] = code_of(error), error_object(error)
        if isinstance(error, DragomanError):
            report(error, terminal, debug=arguments.debug)
        else:
            kept = "; what was said is kept. Continue with: dragoman -c" if session.is_kept else ""
            terminal.say(f"dragoman: interrupted{kept}", "yellow")
    _print_json(terminal, arguments, sum_up(client, since, **further, exit_code=code))
    if arguments.usage:
        terminal.say(format_usage(client.history[since:]), "dim")
    return code


def _make_view(session: Session) -> View:
    if session.arguments.json_lines:
        return JsonLinesView(session.terminal)
    return View() if session.arguments.json else session.make_view()


def _ask_for_json(session: Session, message: Message, kind: AnswerType[object]) -> object:
    view = _make_view(session)
    view.wait()
    try:
        return session.client.ask(message, kind)
    finally:
        view.pause()


def _judge_ending(session: Session) -> int:
    if session.approver.refused:
        return NEEDS_APPROVAL
    last = session.client.conversation.last
    code, words = _ENDINGS.get(last.stop_reason, (OK, "")) if last and last.stop_reason else (OK, "")
    if words:
        session.terminal.say(f"dragoman: {words}", "yellow")
    return code
