"""The interactive chat.

loop.py        what is typed goes to the model, or is a command
commands.py    the commands that begin with /
inputs.py      where lines come from: an editor with history, or a plain stream
screen.py      live markdown, spinners and timing (an extra: rich)
blocks.py      which part of a growing Markdown text is complete
"""
