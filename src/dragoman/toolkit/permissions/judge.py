"""Rules at work: does one speak of a call, which one wins, and which one to suggest.

Two questions are asked of a rule: does it cover a call (to allow it), is it touched by one (to deny it or to ask about
it). They are not the same. To allow, all parts of the call must certainly be meant, and what the rule does not mention
must be harmless. To deny, it is enough that some part may be meant.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from dragoman.errors import ConfigurationError

from .places import HostPattern, PathPattern, Place, Places, Surroundings, compile_host, compile_path, hosts_in
from .rules import Action, Match, PermissionPolicy, Rule, texts, words_in
from .shell import CommandPattern, Word, compile_command, mentioned, option_name, program_of, read_shell
from .subject import Subject

_MOST_WORDS: Final = 256
"""Words of one command that are looked at as paths."""


class CompiledRule(Struct, frozen=True):
    """A rule that can be asked about calls."""

    rule: Rule
    around: Surroundings
    commands: tuple[CommandPattern, ...]
    paths: tuple[PathPattern, ...]
    hosts: tuple[HostPattern, ...]
    inside: PathPattern
    """The workspace."""

    # --- to allow ---

    def covers(self, subject: Subject, places: Places | None = None) -> bool:
        """Whether all of the call is certainly meant."""
        if not any(fnmatchcase(subject.tool, name) for name in texts(self.rule.tool)):
            return False
        if not (self.commands or self.paths or self.hosts):
            return True
        return (
            not subject.unclear
            and self._covers_commands(subject)
            and self._covers_paths(subject, places or Places(self.around))
            and self._covers_hosts(subject)
        )

    def _covers_commands(self, subject: Subject) -> bool:
        if not self.commands:
            return not subject.commands
        if subject.surrounds or not subject.commands:
            return False
        return all(any(pattern.covers(read_shell(text)) for pattern in self.commands) for text in subject.commands)

    def _covers_paths(self, subject: Subject, places: Places) -> bool:
        found = [places.of(path) for path in subject.paths]
        if not self.paths:
            return all(map(self.inside.covers, found))
        if subject.commands:
            # A rule for `cat` in `src` means what is given to `cat`, seen from wherever it may run.
            if not all(self.inside.covers(place) or self._is_place(place) for place in found):
                return False
            words = [word for text in subject.commands for word in self._operands(text)]
            bases = {"", *subject.paths}
            found = [places.of(f"{base}/{word}" if base else word) for base in bases for word in words]
        return bool(found) and all(map(self._is_place, found))

    def _is_place(self, place: Place | None) -> bool:
        return any(pattern.covers(place) for pattern in self.paths)

    def _operands(self, text: str) -> list[str]:
        read = read_shell(text)
        if read.simple is None:
            return ["\0"]  # which no pattern covers
        words = [word.text for word in read.simple.words]
        lengths = [len(pattern.words) for pattern in self.commands if pattern.covers(read)]
        rest = words[max(lengths, default=1) :]
        return [word.partition("=")[2] if "=" in word else word for word in rest if not _is_bare_option(word)]

    def _covers_hosts(self, subject: Subject) -> bool:
        if not self.hosts or not subject.urls:
            return not self.hosts and not subject.urls
        return all(any(pattern.covers(url) for pattern in self.hosts) for url in subject.urls)

    # --- to deny, or to ask ---

    def touches(self, subject: Subject, places: Places | None = None) -> Match:
        """Whether some part of the call is meant, or may be."""
        if not any(fnmatchcase(subject.tool.casefold(), name.casefold()) for name in texts(self.rule.tool)):
            return Match.NO
        found: list[Match] = []
        if self.commands:
            read = [read_shell(text) for text in subject.commands]
            found.append(_most(pattern.touches(text) for pattern in self.commands for text in read))
        if self.paths:
            found.append(self._touches_paths(subject, places or Places(self.around)))
        if self.hosts:
            found.append(self._touches_hosts(subject))
        least = min(found, default=Match.YES)
        return Match.MAYBE if least is Match.NO and subject.unclear else least

    def _touches_paths(self, subject: Subject, places: Places) -> Match:
        given = self._most_touched(subject.paths, places)
        if not subject.commands:
            return given
        # Where a command runs is no reason to think that it reads all that lies there.
        found: Match = given if given is Match.YES else Match.NO
        for text in subject.commands:
            words, hidden = _words_of(text)
            seen = [f"{base}/{word}" if base else word for word in words for base in ("", *subject.paths)]
            readable = [word for word in seen[:_MOST_WORDS] if places.of(word) is not None]
            found = max(found, hidden, self._most_touched(readable, places))
            if len(seen) > _MOST_WORDS:
                found = max(found, Match.MAYBE)
        return found

    def _most_touched(self, paths: Iterable[str], places: Places) -> Match:
        found = [places.of(path) for path in paths]
        return _most(pattern.touches(place, places) for pattern in self.paths for place in found)

    def _touches_hosts(self, subject: Subject) -> Match:
        found = _most(pattern.touches(url) for pattern in self.hosts for url in subject.urls)
        in_commands = [f"//{host}" for text in subject.commands for host in hosts_in(text)]
        seen = _most(pattern.touches(url) for pattern in self.hosts for url in in_commands)
        return max(found, seen if seen is Match.YES else Match.NO)


def compile_rule(rule: Rule, around: Surroundings) -> CompiledRule:
    """The rule, or ConfigurationError for a pattern that means nothing."""
    options = texts(rule.options)
    if rule.action != "allow" and (options or rule.exact):
        message = f"The rule {rule.label!r} has options or exact, which only a rule that allows can have."
        raise ConfigurationError(message, hint="A rule that denies or asks means every form of the command.")
    return CompiledRule(
        rule=rule,
        around=around,
        commands=tuple(compile_command(each, options=options, exact=rule.exact) for each in texts(rule.command)),
        paths=tuple(compile_path(each, around) for each in texts(rule.path)),
        hosts=tuple(compile_host(each) for each in texts(rule.host)),
        inside=compile_path(".", around),
    )


def _most(found: Iterable[Match]) -> Match:
    return max(found, default=Match.NO)


def _is_bare_option(word: str) -> bool:
    return word == "--" or (bool(option_name(word)) and "=" not in word)


def _words_of(text: str) -> tuple[list[str], Match]:
    """What could be a path in a command, and whether there may be more than can be seen."""
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
        self._by_action: dict[Action, list[CompiledRule]] = {"allow": [], "deny": [], "ask": []}
        for rule in policy.rules:
            self._by_action[rule.action].append(compile_rule(rule, around))
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
            return Verdict(self.policy.default, f"no rule allows {subject.tool}", rule="default")
        # A tool that changes nothing is not harmless for that.
        outside = ""
        if subject.commands:
            outside = "it runs a command"
        elif subject.urls:
            outside = "it reaches out of this machine"
        elif subject.unclear:
            outside = "it is not clear what it touches"
        elif not all(self._inside.covers(places.of(path)) for path in subject.paths):
            outside = "it reaches out of the workspace"
        if outside:
            return Verdict(self.policy.default, outside, rule="default")
        return Verdict(self.policy.read_only, "it changes nothing and stays in the workspace", rule="read-only")


# --- a rule to suggest -----------------------------------------------------------------------------------------------

_HAVE_SUBCOMMANDS: Final = words_in(
    "apt brew cargo conda docker gh git go helm hg just kubectl make npm pip pip3 pnpm poetry systemctl terraform"
    " uv yarn"
)


def suggest_rule(subject: Subject, around: Surroundings) -> Rule | None:
    """A rule that allows this call and others like it; None where nothing narrower than the tool can be said."""
    try:
        rule = _candidate(subject, around)
        return rule if rule is not None and compile_rule(rule, around).covers(subject) else None
    except (ConfigurationError, OSError, ValueError):  # no address, or no file name: then no rule either
        return None


def _candidate(subject: Subject, around: Surroundings) -> Rule | None:
    literally = "".join([f"[{letter}]" if letter in "*?[" else letter for letter in subject.tool])
    base = Rule(action="allow", tool=literally)
    if subject.unclear:
        return None
    if subject.commands:
        return _for_command(base, subject.commands[0]) if len(subject.commands) == 1 and not subject.urls else None
    if subject.urls:
        hosts = tuple(sorted({_host(url) for url in subject.urls}))
        return None if any("*" in host or "@" in host for host in hosts) else structs.replace(base, host=hosts)
    if subject.paths:
        folders = tuple(sorted({_folder(path, around) for path in subject.paths}))
        is_pattern = any(letter in folder for folder in folders for letter in "*?[")
        return None if is_pattern else structs.replace(base, path=folders)
    return base


def _for_command(base: Rule, text: str) -> Rule | None:
    command = read_shell(text).simple
    if command is None:
        return None
    words = [word.text for word in command.words]
    whole = structs.replace(base, command=text.strip(), exact=True)
    count = 2 if program_of(words[0]) in _HAVE_SUBCOMMANDS else 1
    beginning, rest = words[:count], words[count:]
    if any(option_name(word) for word in beginning) or any(word.quoted for word in command.words[:count]):
        return whole
    # Of programs that run others only the whole command can be meant.
    if not compile_command(" ".join(beginning)).covers(read_shell(" ".join([*beginning, "x"]))):
        return whole
    options = tuple(sorted({name for word in rest if (name := option_name(word))}))
    return structs.replace(base, command=" ".join(beginning), options=options)


def _host(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('/')[0].split('?')[0].split('#')[0]}"


def _folder(path: str, around: Surroundings) -> str:
    real = os.path.realpath(os.path.join(around.real, path))  # noqa: PTH118
    folder = real if os.path.isdir(real) else os.path.dirname(real)  # noqa: PTH112, PTH120
    if folder == around.real:  # all of the workspace would be too much for one file
        folder = real
    inside = os.path.relpath(folder, around.real)
    return inside if not inside.startswith("..") else folder
