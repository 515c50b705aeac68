"""The command `dragoman`.

    program.py        from the process's arguments to an exit code     arguments.py   parsers, and the options of a talk
    ask.py, chat.py   one question; the interactive chat, its input and its commands; chat_screen.py: live Markdown
    session.py        from arguments to a client, its turns, and asking a person about tool calls
    settings.py       the configuration as the command uses it; tools.py: tools and skills; history.py: what is kept
    output.py         events as text or JSON; tables                   terminal.py    what a terminal may be shown
    failures.py       errors in one line, and exit codes
    models.py, mcp.py models of servers and of this machine; MCP       setup.py       keys, config, doctor, completion
    web.py, batch.py  the page in the browser; batches                 fleet.py       a fleet, and its workers
    usage.py          what conversations cost                          instructions.py   AGENTS.md and the like

Standard output carries the answer, or JSON, and nothing else; everything else goes to standard error. A command's
module is loaded when it is used: `--help` and `--version` take little longer than `import dragoman`.
"""

from .program import main

__all__ = ["main"]
