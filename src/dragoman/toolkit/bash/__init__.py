"""Running shell commands (`Bash`).

tool.py          the tool: arguments, limits, how the outcome is told
environment.py   the variables that a command gets, and no others
process.py       one command from start to end
strays.py        finding and ending everything that a command has started
output.py        the beginning and the end of a long output
"""
