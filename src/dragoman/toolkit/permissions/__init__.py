"""Permission by rules: one policy for every call, whichever door it comes through.

rules.py       rules and policies as data
subject.py     what a call is about: commands, paths, addresses
shell.py       reading the text of a command; command patterns
places.py      path patterns and host patterns
judge.py       does a rule cover a call, is it touched by one; which rule wins
checker.py     the PermissionChecker: judge, ask a person, remember, write the audit line
"""
