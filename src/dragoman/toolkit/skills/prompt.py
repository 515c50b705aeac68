"""What the model is told about skills before it loads one.

Owns: the list in the system prompt: short, and in a form that no skill can break out of.
Must not know: where skills come from.
"""

from __future__ import annotations

import html
from typing import Final

from .skill import SkillSummary
from .store import SkillStore

__all__ = ["skills_prompt"]

_INTRODUCTION: Final = (
    "Skills are instructions for certain tasks. Before you begin a task that one of these describes, load it with the "
    "tool Skill, and the files that it refers to with LoadSkillSupporting. Their authors wrote the descriptions."
)
_LONGEST_DESCRIPTION: Final = 1024


def skills_prompt(store: SkillStore, *, max_characters: int = 20_000) -> str:
    """The list of skills for a system prompt; empty if there are none. What does not fit is counted at its end."""
    skills = store.list()
    if not skills:
        return ""
    lines = ["<available_skills>"]
    length, left_out = len(_INTRODUCTION) + 40, 0
    for skill in skills:
        line = _line(skill)
        if length + len(line) > max_characters:
            left_out += 1
            continue
        lines.append(line)
        length += len(line) + 1
    if left_out:
        lines.append(f"<left_out>{left_out}</left_out>")
    return "\n".join([_INTRODUCTION, *lines, "</available_skills>"])


def _line(skill: SkillSummary) -> str:
    return f'<skill name="{_harmless(skill.name)}">{_harmless(skill.description[:_LONGEST_DESCRIPTION])}</skill>'


def _harmless(text: str) -> str:
    """The text on one line, without tags, and without letters that nobody sees."""
    one_line = " ".join(text.split())
    return html.escape("".join([letter if letter.isprintable() else " " for letter in one_line]))
