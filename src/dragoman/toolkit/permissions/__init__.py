"""Permission by rules: one policy for every call, whichever door it comes through.

checker.py       the PermissionChecker: judge, remember, ask, write the audit line
rules.py         rules and policies as data
policy_file.py   reading them from TOML, JSON or a dict
judgement.py     which rule wins
conditions.py    does a rule cover a call, is it touched by one
subject.py       what a call is about: commands, paths, addresses
shell.py         reading the text of a command
commands.py      command patterns
paths.py         path patterns
hosts.py         host patterns
questions.py     asking a person, in both colours
session.py       what a person has answered
suggestion.py    a rule to offer with a question
audit.py         the audit line
match.py         yes, no, maybe
"""

from .checker import PermissionChecker
from .judgement import Verdict
from .policy_file import load_policy, policy_from
from .questions import AsksPermission, RuleAnswer
from .rules import Action, PermissionPolicy, Rule

__all__ = [
    "Action",
    "AsksPermission",
    "PermissionChecker",
    "PermissionPolicy",
    "Rule",
    "RuleAnswer",
    "Verdict",
    "load_policy",
    "policy_from",
]
