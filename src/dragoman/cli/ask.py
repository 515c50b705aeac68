"""`dragoman ask`, and `dragoman` without a command: the question (words, standard input, attachments), the schema of
the answer, and the answer.

Attachments are read at once and kept in the conversation, so that it can be continued when the file is gone. Text files
become text, which every model accepts; images, documents, audio and video become media.
"""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO, cast

import msgspec

from dragoman._decoding import check_depth
from dragoman.chat import AnswerType, answer_type
from dragoman.conversation import Block, Media, Message, StopReason, Text
from dragoman.errors import DragomanError
from dragoman.loop import ENDINGS

from .arguments import UsageError, clean, expand_path, suggest
from .failures import OK, code_of, error_object, report
from .output import JsonLinesView, View, format_usage, sum_up
from .session import Session
from .terminal import Terminal


def ask(arguments: Namespace, terminal: Terminal) -> int:
    """Ask the question, print the answer, and return the exit code."""
    terminal.quiet = arguments.quiet
    try:
        kind = None if arguments.schema is None else answer_type(read_schema(arguments.schema))
        if kind is not None and arguments.tools:
            text = "A question with --schema is asked without tools."
            raise UsageError(text, hint="Leave out -T, or ask in two steps: first with -T, then with -c --schema.")
        message = _read_message(arguments, terminal)
        if message is None and (kind is not None or not (arguments.go_on or arguments.cid)):
            raise UsageError("There is no question.", hint='Ask one: dragoman "question"')
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
    """Get a text, with tools, or JSON of this type, without. The conversation is kept even if it fails."""
    client, terminal, arguments = session.client, session.terminal, session.arguments
    since, code, further = len(client.history), OK, dict[str, object]()
    view = View() if arguments.json else JsonLinesView(terminal) if arguments.json_lines else session.make_view()
    try:
        if kind is None or message is None:
            result = session.take_turn(message, view)
            code = session.tell_ending(result)
            further |= {"ending": ENDINGS[type(result.ending)], "stop_reason": _word(result.stop_reason)}
        else:
            view.wait()
            try:
                further["answer"] = answer = client.ask(message, kind)
            finally:
                view.pause()
            if not (arguments.json or arguments.json_lines):
                terminal.line(json.dumps(msgspec.to_builtins(answer), indent=2, ensure_ascii=False))
    except (DragomanError, KeyboardInterrupt) as error:
        session.drop_empty()
        code, further["error"] = code_of(error), error_object(error)
        if isinstance(error, DragomanError):
            report(error, terminal, debug=arguments.debug)
        else:
            kept = "the conversation is kept. Continue with: dragoman -c" if session.is_kept else ""
            terminal.say(f"dragoman: interrupted; {session.waiting}{kept}".rstrip("; "), "yellow")
    _print_json(terminal, arguments, sum_up(client, since, **further, exit_code=code))
    if arguments.usage:
        terminal.say(format_usage(client.history[since:]), "dim")
    return code


def _word(reason: StopReason | None) -> str | None:
    return None if reason is None else reason.value


# --- what is asked ----------------------------------------------------------------------------------------------------

_LARGEST: Final = 100 * 1024 * 1024
_TYPES_BY_MAGIC: Final = {
    rb"\x89PNG\r\n\x1a\n": "image/png",
    rb"\xff\xd8\xff": "image/jpeg",
    rb"GIF8[79]a": "image/gif",
    rb"(?s)RIFF.{4}WEBP": "image/webp",
    rb"%PDF-": "application/pdf",
    rb"(?s)RIFF.{4}WAVE": "audio/wav",
    rb"ID3": "audio/mpeg",
}


def _read_message(arguments: Namespace, terminal: Terminal) -> Message | None:
    """Attachments, the words, then standard input; None if all are empty. `-`: the question is in standard input."""
    is_piped = arguments.words == ["-"]
    text = "" if is_piped else clean(" ".join(arguments.words)).strip()
    piped = _read_piped(terminal.stdin) if terminal.stdin is not None and (is_piped or not terminal.in_is_tty) else b""
    blocks: list[Block] = []
    try:
        text = "\n\n".join([part for part in (text, piped.decode("utf-8-sig").strip("\n")) if part])
    except UnicodeDecodeError:
        blocks.append(_make_media(piped, "standard input"))
    blocks += [_read_attachment(name) for name in arguments.attachments]
    blocks += [_read_attachment(name, kind) for name, kind in arguments.typed_attachments]
    if text:
        blocks.append(Text(text))
    return Message.user(*blocks) if blocks else None


def _read_piped(stdin: TextIO) -> bytes:
    try:
        buffer = getattr(stdin, "buffer", None)
        raw: bytes = buffer.read(_LARGEST + 1) if buffer is not None else stdin.read(_LARGEST + 1).encode()
    except (OSError, ValueError):  # closed, or a terminal in the background
        return b""
    if len(raw) > _LARGEST:
        raise UsageError(f"Standard input is larger than {_LARGEST // 2**20} MiB.", hint="Pipe in less.")
    return raw


def _read_attachment(name: str, mime_type: str | None = None) -> Block:
    if name.startswith(("http://", "https://")):
        try:
            return Media.from_url(name, mime_type=mime_type)
        except ValueError:
            message = "The address of the attachment does not show its type."
            raise UsageError(message, hint=f"Name it: --at {name} image/png") from None
    path = expand_path(name)
    try:
        with path.open("rb") as file:  # perhaps a device without an end
            raw = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "that is not a file name"
        message = f"The attachment {name!r} cannot be read: {reason}."
        raise UsageError(message, hint="Check its name and permissions.") from None
    if len(raw) > _LARGEST:
        message = f"The attachment {name!r} is larger than {_LARGEST // 2**20} MiB."
        raise UsageError(message, hint="Attach something smaller.")
    if mime_type is not None and not mime_type.startswith("text/"):
        return Media.from_bytes(raw, mime_type, name=path.name)
    try:
        # Every model can read text, whatever the suffix of the file.
        text = raw.decode("utf-8-sig")
        if "\0" not in text:
            return Text(f"File {path.name}:\n\n{text}\n")
    except UnicodeDecodeError:
        pass
    return _make_media(raw, name, path)


def _make_media(raw: bytes, where: str, path: Path | None = None) -> Media:
    mime_type = next((kind for magic, kind in _TYPES_BY_MAGIC.items() if re.match(magic, raw)), None)
    if mime_type is None and path is not None:
        with suppress(ValueError):
            mime_type = Media.from_path(path).mime_type
    if mime_type is None:
        message = f"{where!r} is neither text nor a known file type."
        raise UsageError(message, hint="Name its type: --at FILE image/png")
    return Media.from_bytes(raw, mime_type, name=None if path is None else path.name)


# --- schemas ----------------------------------------------------------------------------------------------------------

_TYPES: Final[Mapping[str, Mapping[str, object]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "string"}},
}
_LIST: Final = re.compile(r"list\[(\w+)\]").fullmatch
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}").fullmatch


def read_schema(given: str) -> dict[str, object]:
    """Read a JSON Schema: from a file, inline, or in the short form."""
    text, where = given.strip(), "the text of --schema"
    if not text.startswith("{"):
        path, where = expand_path(text), text
        if path.suffix != ".json" and not os.path.isfile(path):  # noqa: PTH113 -- Path's raises for too long a name
            return parse_short_schema(text)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UsageError(f"The schema {where!r} cannot be read: {reason}.") from None
    try:
        check_depth(text)
        found: object = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON: {error}.", hint="Give a JSON Schema.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where} is not a JSON Schema: it is not an object.", hint="Give a JSON Schema.")
    return cast("dict[str, object]", found)


def parse_short_schema(text: str) -> dict[str, object]:
    """Parse the short form: `name`, `name type` or `name type: description`, separated by commas or newlines."""
    members: dict[str, object] = {}
    parts = [line for line in text.splitlines() if line.strip()] if "\n" in text else text.split(",")
    for part in parts:
        declared, _, about = part.partition(":")
        words = declared.split()
        name = words[0] if words else ""
        if len(words) > 2 or not _NAME(name):
            message = f"{part.strip()!r} is not a field of a schema." if words else "The schema has an empty field."
            raise UsageError(message, hint='Write "name, age int, tags list", or name a JSON file.')
        if name in members:
            raise UsageError(f"The schema names {name!r} twice.")
        schema = _find_type(words[1] if len(words) == 2 else "str")
        members[name] = {**schema, "description": about.strip()} if about.strip() else schema
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _find_type(word: str) -> dict[str, object]:
    if found := _LIST(word):
        return {"type": "array", "items": _find_type(found[1])}
    if word not in _TYPES:
        hint = suggest(word, _TYPES, "Use str, int, float, bool, list or list[type].")
        raise UsageError(f"The schema has no type {word!r}.", hint=hint)
    return dict(_TYPES[word])
