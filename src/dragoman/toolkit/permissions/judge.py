"""Matching rules against a call, and deciding which rule wins.

A rule that allows must cover the call: all parts of the call certainly match, and what the rule does not mention is
harmless. For a rule that denies or asks, it is enough that the call touches it: some part may match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .commands import CommandPattern, compile_command, mentioned
from .patterns import HostPattern, PathPattern, PathResolver, ResolvedPath, Root, compile_host, compile_path, hosts_in
from .rules import Action, Match, PermissionPolicy, Rule, texts
from .shell import Word, read_shell
from .subject import Subject

_MOST_WORDS: Final = 256
"""Words of one command that are checked as paths."""
_BARE_OPTION: Final = re.compile(r"-[A-Za-z0-9]|--[A-Za-z0-9][A-Za-z0-9-]*").fullmatch
"""With no value in the same word."""


class CompiledRule(Struct, frozen=True):
    """A rule with its patterns compiled."""

    rule: Rule
    commands: tuple[CommandPattern, ...]
    paths: tuple[PathPattern, ...]
    hosts: tuple[HostPattern, ...]

    def _is_about(self, subject: Subject, tool: str, names: Iterable[str]) -> bool:
        """Whether the tool, its version and the exact arguments match."""
        rule = self.rule
        return (
            any(fnmatchcase(tool, name) for name in names)
            and rule.version in ("", subject.version)
            and rule.arguments in ("", subject.arguments)
        )

    # --- to allow ---

    def covers(self, subject: Subject, resolver: PathResolver) -> bool:
        if not self._is_about(subject, subject.tool, texts(self.rule.tool)):
            return False
        if not (self.commands or self.paths or self.hosts):
            return True
        return (
            not subject.unclear
            and self._covers_commands(subject)
            and self._covers_paths(subject, resolver)
            and self._covers_hosts(subject)
        )

    def _covers_commands(self, subject: Subject) -> bool:
        if not self.commands:
            return not subject.commands
        if subject.surrounds or not subject.commands:
            return False
        return all(any(pattern.covers(read_shell(text)) for pattern in self.commands) for text in subject.commands)

    def _covers_paths(self, subject: Subject, resolver: PathResolver) -> bool:
        found = [resolver.resolve(path) for path in subject.paths]
        if not self.paths:
            return all(map(resolver.is_inside, found))
        if subject.commands:
            # A rule for `cat` in `src` is about the operands of `cat`, relative to wherever it may run.
            if not all(resolver.is_inside(place) or self._is_place(place) for place in found):
                return False
            words = [word for text in subject.commands for word in self._paths_given(text)]
            bases = {"", *subject.paths}
            found = [resolver.resolve(f"{base}/{word}" if base else word) for base in bases for word in words]
        return bool(found) and all(map(self._is_place, found))

    def _is_place(self, place: ResolvedPath | None) -> bool:
        return any(pattern.covers(place) for pattern in self.paths)

    def _paths_given(self, text: str) -> list[str]:
        """The words that a command may take for paths; `\\0`, which matches nothing, if that is unclear."""
        read = read_shell(text)
        if read.simple is None:
            return ["\0"]
        words = [word.text for word in read.simple.words]
        lengths = [len(pattern.words) for pattern in self.commands if pattern.covers(read)]
        found: list[str] = []
        only_operands = False
        for word in words[max(lengths, default=1) :]:
            if word == "--" and not only_operands:
                only_operands = True
            elif only_operands or not word.startswith(("-", "+", "@")) or word == "-":
                found += [word, *_behind_signs(word)]
            elif "=" in word:
                found += _behind_signs(word) or ["\0"]
            elif word not in texts(self.rule.options) and not _BARE_OPTION(word):
                found.append("\0")  # `-o/etc/x`: a value may begin at any letter
        return found

    def _covers_hosts(self, subject: Subject) -> bool:
        if not self.hosts or not subject.urls:
            return not self.hosts and not subject.urls
        return all(any(pattern.covers(url) for pattern in self.hosts) for url in subject.urls)

    # --- to deny, or to ask ---

    def touches(self, subject: Subject, resolver: PathResolver) -> Match:
        """Whether some part of the call matches, or may match."""
        names = [name.casefold() for name in texts(self.rule.tool)]
        if not self._is_about(subject, subject.tool.casefold(), names):
            return Match.NO
        found: list[Match] = []
        if self.commands:
            read = [read_shell(text) for text in subject.commands]
            found.append(_most(pattern.touches(text) for pattern in self.commands for text in read))
        if self.paths:
            found.append(self._touches_paths(subject, resolver))
        if self.hosts:
            found.append(self._touches_hosts(subject))
        least = min(found, default=Match.YES)
        return Match.MAYBE if least is Match.NO and subject.unclear else least

    def _touches_paths(self, subject: Subject, resolver: PathResolver) -> Match:
        given = self._most_touched(subject.paths, resolver)
        if not subject.commands:
            return given
        # That a command runs in a directory does not mean that it reads everything there.
        found: Match = given if given is Match.YES else Match.NO
        for text in subject.commands:
            words, hidden = _words_of(text)
            seen = [f"{base}/{word}" if base else word for word in words for base in ("", *subject.paths)]
            readable = [word for word in seen[:_MOST_WORDS] if resolver.resolve(word) is not None]
            found = max(found, hidden, self._most_touched(readable, resolver))
            if len(seen) > _MOST_WORDS:
                found = max(found, Match.MAYBE)
        return found

    def _most_touched(self, paths: Iterable[str], resolver: PathResolver) -> Match:
        found = [resolver.resolve(path) for path in paths]
        return _most(pattern.touches(place, resolver) for pattern in self.paths for place in found)

    def _touches_hosts(self, subject: Subject) -> Match:
        found = _most(pattern.touches(url) for pattern in self.hosts for url in subject.urls)
        in_commands = [f"//{host}" for text in subject.commands for host in hosts_in(text)]
        seen = _most(pattern.touches(url) for pattern in self.hosts for url in in_commands)
        return max(found, seen if seen is Match.YES else Match.NO)


def compile_rule(rule: Rule, root: Root) -> CompiledRule:
    """Compile a rule. Raises ConfigurationError."""
    options = texts(rule.options)
    if rule.action != "allow" and options:
        message = f"The rule {rule.label!r} has options, which only a rule that allows can have."
        raise ConfigurationError(message, hint="A rule that denies or asks means every form of the command.")
    return CompiledRule(
        rule=rule,
        commands=tuple(compile_command(each, options=options) for each in texts(rule.command)),
        paths=tuple(compile_path(each, root) for each in texts(rule.path)),
        hosts=tuple(compile_host(each) for each in texts(rule.host)),
    )


def _most(found: Iterable[Match]) -> Match:
    return max(found, default=Match.NO)


def _behind_signs(word: str) -> list[str]:
    """The text after each sign that may split a word: `/x:y` and `y` of `a=/x:y`."""
    return [word[sign.end() :] for sign in re.finditer(r"[=:,@]", word) if word[sign.end() :]]


def _words_of(text: str) -> tuple[list[str], Match]:
    """What could be a path in a command, and whether there may be others that expansion hides."""
    read = read_shell(text)
    if read.opaque:
        return sorted({word for words in mentioned(text) for word in words if word}), Match.MAYBE
    words: list[Word] = []
    for command in read.commands:
        words += [*command.words, *command.redirections, *command.assignments]
    hidden = Match.MAYBE if any(word.expands for word in words) else Match.NO
    pieces = {piece for word in words for piece in (word.text, word.text.partition("=")[2], *word.text.split(":"))}
    # `-f/etc/passwd` has its value in the same word.
    pieces |= {word.text[2:] for word in words if word.text.startswith("-")}
    return sorted(pieces - {""}), hidden


# --- which rule wins -------------------------------------------------------------------------------------------------

Source: TypeAlias = Literal["rule", "default", "session", "person", "error"]
"""Who decided: a rule, the policy's default, an earlier answer, a person just now, or an error."""


class Verdict(Struct, frozen=True):
    """A decision about a call, and why."""

    action: Action
    reason: str
    source: Source = "default"
    rule: str = ""
    """The label of the rule that decided."""
    commands: tuple[str, ...] = ()
    """What runs if a rule with `command` allowed it: the words of its commands as they were judged, quoted anew."""


def decide(
    subject: Subject,
    policy: PermissionPolicy,
    rules: Sequence[CompiledRule],
    session: Sequence[CompiledRule],
    resolver: PathResolver,
) -> Verdict:
    """Decide about a call by the policy, whose rules are compiled.

    A rule of the session answers what the policy would ask; nothing overrides a rule that denies.
    """
    allowing, asking = ([each for each in rules if each.rule.action == action] for action in ("allow", "ask"))
    denying = [(each.rule, each.touches(subject, resolver)) for each in rules if each.rule.action == "deny"]
    for rule, match in denying:
        if match is Match.YES:
            return Verdict("deny", rule.reason or "a rule forbids it", "rule", rule.label)
    for each in reversed(session):  # the latest answer first
        if each.covers(subject, resolver):
            answer = "the user allowed it" if each.rule.action == "allow" else "the user refused"
            commands = _judged(each, subject)
            return Verdict(each.rule.action, each.rule.reason or answer, "session", each.rule.label, commands)
    for each in asking:
        if each.touches(subject, resolver) is not Match.NO:
            return Verdict("ask", each.rule.reason or "a rule says to ask", "rule", each.rule.label)
    for rule, match in denying:
        if match is Match.MAYBE:
            return Verdict("ask", f"it may be what a rule forbids: {rule.reason or rule.label}", "rule", rule.label)
    for each in allowing:
        if each.covers(subject, resolver):
            reason = each.rule.reason or "a rule allows it"
            return Verdict("allow", reason, "rule", each.rule.label, _judged(each, subject))
    if not subject.read_only:
        return Verdict(policy.default, f"no rule allows {subject.tool}", rule="default")
    if outside := _reach(subject, resolver):
        return Verdict(policy.default, outside, rule="default")
    return Verdict(policy.read_only, "it changes nothing and stays in the workspace", rule="read-only")


def _judged(rule: CompiledRule, subject: Subject) -> tuple[str, ...]:
    """The commands as they were read, if this rule allows because of them."""
    if not rule.commands or rule.rule.action != "allow":
        return ()
    return tuple([read_shell(text).canonical for text in subject.commands])


def _reach(subject: Subject, resolver: PathResolver) -> str:
    """How a read-only call reaches out of the workspace, so that it is not harmless; empty if it does not."""
    if subject.commands:
        return "it runs a command"
    if subject.urls:
        return "it reaches out of this machine"
    if subject.unclear:
        return "it is not clear what it touches"
    is_inside = all(resolver.is_inside(resolver.resolve(path)) for path in subject.paths)
    return "" if is_inside else "it reaches out of the workspace"
