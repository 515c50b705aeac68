"""The command `dragoman`.

    entry.py           from the process's arguments to an exit code; groups.py: which commands there are
    arguments/         parsers, and what is said about mistakes
    commands/          one module for each group of commands
    ask.py             one question, one answer          chat/        the interactive chat
    session.py         from arguments to a client: model_choice.py, tool_choice.py, options.py, conversations.py
    prompts.py         what is asked: words, standard input, attachments      short_schema.py
    approvals.py       asking a person about tool calls  turns.py     a turn with its questions
    printing.py        events as text or JSON            terminal.py  what a terminal may be shown
    failures.py        errors in one line                exit_codes.py
    export/            conversations as Markdown, JSON, HTML
    local_model.py     the model on this machine

Owns: arguments and printing.
Must not know: nothing is hidden from it; it stands on top of every other room.

Standard output carries the answer, or JSON, and nothing else; everything else goes to standard error. Nothing but the
standard library is loaded before it is needed: `--help` and `--version` take little longer than `import dragoman`.
"""

from __future__ import annotations

from .entry import main

__all__ = ["main"]
