"""Permission by rules: one policy for every call, whichever door it comes through.

rules.py       rules and policies as data
subject.py     what a call is about: commands, paths, addresses
shell.py       reading the text of a command; command patterns
places.py      path patterns and host patterns
judge.py       does a rule cover a call, is it touched by one; which rule wins
suggestions.py rules to remember about a call
checker.py     the PermissionChecker: judge, remember, ask a person, write the audit line
"""
