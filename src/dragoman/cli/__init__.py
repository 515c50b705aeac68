"""The command `dragoman`.

    program.py        from the process's arguments to an exit code     arguments.py   parsers and shared options
    ask.py, chat.py   one question; the interactive chat               chat_screen.py live Markdown
    session.py        a client from the arguments; asking for approval instructions.py   AGENTS.md and the like
    settings.py       the configuration of the command line            tools.py       tools and skills
    output.py         events as text or JSON; tables                   terminal.py    the standard streams, safely
    failures.py       errors as one line, and exit codes               setup.py       keys, config, doctor, completion
    models.py         models of servers and of this machine            mcp.py         MCP
    history.py        stored conversations and their cost              web.py         the page in the browser
    batch.py          batches                                          fleet.py       a fleet and its workers

Standard output carries the answer, or JSON, and nothing else; everything else goes to standard error. A command's
module is imported when it is used, so that `--help` and `--version` are fast.
"""

from .program import main

__all__ = ["main"]
