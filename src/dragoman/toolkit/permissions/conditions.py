"""Rules, compiled: does one speak of a call?

Owns: the two questions that are asked of a rule: does it cover a call (to allow it), is it touched by one (to deny it
or to ask about it).
Must not know: which rule wins.

They are not the same. To allow, all parts of the call must certainly be meant, and what the rule does not mention must
be harmless. To deny, it is enough that some part may be meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final, cast

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .commands import CommandPattern, compile_command, option_name
from .hosts import HostPattern, compile_host, hosts_in
from .match import Match
from .paths import PathPattern, Place, Places, Surroundings, compile_path
from .rules import Rule, texts
from .shell import Word, mentioned, read_shell
from .subject import COMMAND_NAMES, Subject

__all__ = ["CompiledRule", "compile_rule"]

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
        rule = self.rule
        if not any(fnmatchcase(subject.tool, name) for name in texts(rule.tool)):
            return False
        if not (self.commands or self.paths or self.hosts or rule.arguments):
            return True
        if subject.unclear or not all(_equals(subject.arguments, name, wanted) for name, wanted in _wanted(rule)):
            return False
        # Only a text that is given to the letter may stand for a command, an address or a place elsewhere: a pattern
        # such as "git *" would fit "git status; rm -rf /" as well.
        literal = {value for value in rule.arguments.values() if isinstance(value, str)}
        return (
            self._covers_commands(subject, literal)
            and self._covers_paths(subject, literal, places or Places(self.around))
            and self._covers_hosts(subject, literal)
        )

    def _covers_commands(self, subject: Subject, literal: set[str]) -> bool:
        if not self.commands:
            return all(command in literal for command in subject.commands)
        if subject.surrounds or not subject.commands:
            return False
        return all(any(pattern.covers(read_shell(text)) for pattern in self.commands) for text in subject.commands)

    def _covers_paths(self, subject: Subject, literal: set[str], places: Places) -> bool:
        if not self.paths:
            rest = [path for path in subject.paths if path not in literal]
            return all(self.inside.covers(places.of(path)) for path in rest)
        found = [places.of(path) for path in subject.paths]
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
        command = read_shell(text).simple
        if command is None:
            return ["\0"]  # which no pattern covers
        words = [word.text for word in command.words]
        lengths = [len(pattern.words) for pattern in self.commands if pattern.covers(read_shell(text))]
        rest = words[max(lengths, default=1) :]
        return [word.partition("=")[2] if "=" in word else word for word in rest if not _is_bare_option(word)]

    def _covers_hosts(self, subject: Subject, literal: set[str]) -> bool:
        if not self.hosts:
            return all(url in literal for url in subject.urls)
        if not subject.urls:
            return False
        return all(any(pattern.covers(url) for pattern in self.hosts) for url in subject.urls)

    # --- to deny, or to ask ---

    def touches(self, subject: Subject, places: Places | None = None) -> Match:
        """Whether some part of the call is meant, or may be."""
        if not any(fnmatchcase(subject.tool.casefold(), name.casefold()) for name in texts(self.rule.tool)):
            return Match.NO
        found = [_may_equal(subject.arguments, name, wanted) for name, wanted in _wanted(self.rule)]
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
    if rule.action == "allow":
        for name, value in rule.arguments.items():
            if name in COMMAND_NAMES and isinstance(value, str) and any(letter in value for letter in "*?["):
                message = (
                    f"The rule {rule.label!r} allows commands by a pattern of letters, which anything could follow."
                )
                raise ConfigurationError(message, hint=f"Say command = {value.partition('*')[0].strip()!r} instead.")
    return CompiledRule(
        rule=rule,
        around=around,
        commands=tuple(compile_command(each, options=options, exact=rule.exact) for each in texts(rule.command)),
        paths=tuple(compile_path(each, around) for each in texts(rule.path)),
        hosts=tuple(compile_host(each) for each in texts(rule.host)),
        inside=compile_path(".", around),
    )


def _wanted(rule: Rule) -> Iterable[tuple[str, object]]:
    return rule.arguments.items()


def _equals(arguments: Mapping[str, object], name: str, wanted: object) -> bool:
    """Whether the argument, or each of a list, is what is wanted."""
    if name not in arguments:
        return False
    value = arguments[name]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return bool(items) and all(_is(item, wanted) for item in items)
    return _is(value, wanted)


def _may_equal(arguments: Mapping[str, object], name: str, wanted: object) -> Match:
    """Whether the argument, or one of a list, is what is wanted."""
    if name not in arguments:
        return Match.NO
    value = arguments[name]
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    if any(_is(item, wanted) for item in items):
        return Match.YES
    return Match.MAYBE if any(isinstance(item, list | dict) for item in items) else Match.NO


def _is(value: object, wanted: object) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return fnmatchcase(value, wanted)
    # 1 and True are equal in Python, and are not the same to anybody else.
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


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
