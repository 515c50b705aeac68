"""Permission by rules: one policy for every call, whichever door it comes through.

rules.py       rules and policies as data, from TOML, JSON or a dict
subject.py     what a call is about: commands, paths, addresses
shell.py       reading the text of a command; command patterns
places.py      path patterns and host patterns
judge.py       does a rule cover a call, is it touched by one; which rule wins; a rule to suggest
checker.py     the PermissionChecker: judge, remember, ask a person, write the audit line
"""

from .checker import AsksPermission, PermissionChecker, RuleAnswer
from .judge import Verdict
from .rules import Action, PermissionPolicy, Rule, load_policy, policy_from

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
