"""Permission by rules: one policy for every call, whichever entry point it comes through.

rules.py       rules and policies as data
subject.py     the commands, paths and URLs of a call
shell.py       reading commands, and the one spelling in which they run
commands.py    command patterns; programs that run other programs
patterns.py    path patterns and host patterns
judge.py       matching rules against a call; which rule wins
checker.py     the PermissionChecker: decide, ask a person, remember, log
"""
