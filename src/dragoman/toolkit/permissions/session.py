"""What a person has answered, for the rest of the session.

Owns: remembered answers, bound to a tool as it is now and its exact arguments, or to a rule.
Must not know: who is asked and when.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from .conditions import CompiledRule
from .judgement import Verdict
from .subject import Subject

__all__ = ["Session"]

_MOST: Final = 10_000
"""Answers that are kept; beyond them the oldest are asked again."""


class Session:
    """Remembered answers. Safe to share between threads; readers take no lock."""

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._answers: dict[tuple[str, str], Verdict] = {}
        self.rules: tuple[CompiledRule, ...] = ()
        """Rules that a person has agreed to; replaced as a whole."""

    def remember(self, subject: Subject, verdict: Verdict) -> None:
        """This answer holds for the same call from now on."""
        with self._lock:
            answers = {**self._answers, _key(subject): verdict}
            while len(answers) > _MOST:
                answers.pop(next(iter(answers)))
            self._answers = answers

    def add(self, rule: CompiledRule) -> None:
        """This rule holds from now on."""
        with self._lock:
            if rule not in self.rules:
                self.rules = (*self.rules, rule)

    def answer_to(self, subject: Subject) -> Verdict | None:
        answers: Mapping[tuple[str, str], Verdict] = self._answers
        return answers.get(_key(subject))

    def forget(self) -> None:
        """Ask again about everything."""
        with self._lock:
            self._answers = {}
            self.rules = ()


def _key(subject: Subject) -> tuple[str, str]:
    # A tool that has changed since, as a server may change one after it was approved, is asked about again.
    return subject.fingerprint, subject.tool_version
