"""The audit line of a decision.

Owns: its fields, and what is kept out of it. Arguments are the user's data and may hold secrets: only a hash of them is
written, the same on every door, so that lines about one call can be found without knowing it.
"""

from __future__ import annotations

import logging
import re
from typing import Final

import msgspec

from .judgement import Verdict
from .subject import Subject

__all__ = ["AUDIT", "audit"]

AUDIT: Final = logging.getLogger("dragoman.audit")
_SHOWN_DIGITS: Final = 16
_LONGEST: Final = 300
_WORD: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)


def audit(logger: logging.Logger, subject: Subject, verdict: Verdict, *, door: str) -> None:
    """Write one line of key=value pairs; the same fields are on the record as `permission`.

    Where the program has set up no logging at all nothing is written, not even Python's last resort on stderr.
    """
    level = logging.WARNING if verdict.action == "deny" else logging.INFO
    if not logger.isEnabledFor(level) or not logger.hasHandlers():
        return
    fields = {
        "tool": subject.tool,
        "arguments": subject.fingerprint[:_SHOWN_DIGITS],
        "decision": verdict.action,
        "by": verdict.source,
        "rule": verdict.rule or "-",
        "reason": verdict.reason or "-",
        "door": door,
    }
    line = " ".join([f"{key}={_word(value)}" for key, value in fields.items()])
    # As an argument rather than as the format: a percent sign in a rule is no place to put something.
    logger.log(level, "%s", line, extra={"permission": fields})


def _word(text: str) -> str:
    """A text that cannot be taken for more than one value, nor for more than one line."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    if _WORD.fullmatch(cut):
        return cut
    quoted = msgspec.json.encode(cut.encode("utf-8", "replace").decode()).decode()
    return "".join([each if each.isprintable() else f"\\u{ord(each):04x}" for each in quoted])
