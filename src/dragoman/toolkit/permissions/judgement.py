"""Which rule wins.

Owns: the order (deny, ask, allow, default), and the reason that is given.
Must not know: people, sessions and logs.

The order of the rules does not matter: they are sorted by what they say before they are asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from .conditions import CompiledRule, compile_rule
from .match import Match
from .paths import PathPattern, Places, Surroundings, compile_path
from .rules import Action, PermissionPolicy
from .subject import Subject

__all__ = ["Judge", "Source", "Verdict"]

Source: TypeAlias = Literal["rule", "default", "session", "person", "error"]
"""Who decided: a rule, the policy's default, an answer given earlier, a person just now, or a fault."""


class Verdict(Struct, frozen=True):
    """What is to be done with a call, and why."""

    action: Action
    reason: str
    source: Source = "default"
    rule: str = ""
    """What the rule that decided is called."""


class Judge:
    """A policy, compiled. Never changes; safe to share."""

    def __init__(self, policy: PermissionPolicy, around: Surroundings) -> None:
        self.policy: PermissionPolicy = policy
        self.around: Surroundings = around
        ordered = sorted(policy.rules, key=lambda rule: (rule.canonical, rule.name, rule.reason))
        compiled = [compile_rule(rule, around) for rule in ordered]
        self._by_action: dict[Action, list[CompiledRule]] = {"allow": [], "deny": [], "ask": []}
        for each in compiled:
            self._by_action[each.rule.action].append(each)
        self._inside: PathPattern = compile_path(".", around)

    def decide(
        self, subject: Subject, *, answer: Verdict | None = None, also_allow: Iterable[CompiledRule] = ()
    ) -> Verdict:
        """What the policy says. An answer that was given before, or a rule of the session, answers what it would ask;
        nothing makes good for a rule that denies."""
        places = Places(self.around)
        denying = [(each.rule, each.touches(subject, places)) for each in self._by_action["deny"]]
        for rule, match in denying:
            if match is Match.YES:
                return Verdict("deny", rule.reason or "a rule forbids it", "rule", rule.label)
        if answer is not None:
            return answer
        for each in also_allow:
            if each.covers(subject, places):
                return Verdict("allow", each.rule.reason or "the user allowed it", "session", each.rule.label)
        for each in self._by_action["ask"]:
            if each.touches(subject, places) is not Match.NO:
                return Verdict("ask", each.rule.reason or "a rule says to ask", "rule", each.rule.label)
        for rule, match in denying:
            if match is Match.MAYBE:
                reason = f"it may be what a rule forbids: {rule.reason or rule.label}"
                return Verdict("ask", reason, "rule", rule.label)
        for each in self._by_action["allow"]:
            if each.covers(subject, places):
                return Verdict("allow", each.rule.reason or "a rule allows it", "rule", each.rule.label)
        return self._default(subject, places)

    def _default(self, subject: Subject, places: Places) -> Verdict:
        if not subject.read_only:
            reason = f"no rule allows {subject.tool}"
            return Verdict(self.policy.default, reason, rule="default")
        outside = self._outside(subject, places)
        if outside:
            return Verdict(self.policy.default, outside, rule="default")
        return Verdict(self.policy.read_only, "it changes nothing and stays in the workspace", rule="read-only")

    def _outside(self, subject: Subject, places: Places) -> str:
        """Why a tool that changes nothing is not harmless all the same."""
        if subject.commands:
            return "it runs a command"
        if subject.urls:
            return "it reaches out of this machine"
        if subject.unclear:
            return "it is not clear what it touches"
        if not all(self._inside.covers(places.of(path)) for path in subject.paths):
            return "it reaches out of the workspace"
        return ""
