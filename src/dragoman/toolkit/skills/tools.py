"""What the model is told about skills before it loads one, and the tools that load them."""

from __future__ import annotations

import html
from typing import Final

from dragoman.errors import SkillError, ToolExecutionError
from dragoman.toolkit.decorator import ready
from dragoman.tools.definition import AnyTool

from .skill import SkillSummary
from .store import SkillStore, shorten

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


def skill_tools(store: SkillStore) -> list[AnyTool]:
    """The tools `Skill` and `LoadSkillSupporting`, for the skills of this store."""
    return [skill_tool(store), load_skill_supporting_tool(store)]


def skill_tool(store: SkillStore) -> AnyTool:
    """The tool `Skill`."""

    @ready(name="Skill", needs=["name"], read_only=True, idempotent=True)
    def skill(*, name: str = "") -> str:
        """Load the instructions of a skill. Do this before you begin a task that its description fits.

        Args:
            name: The skill's name, from the list of available skills.
        """
        try:
            found = store.load(name)
        except SkillError as error:
            raise ToolExecutionError(error.message) from error
        body = found.body or "[The skill has no instructions.]"
        if not found.files:
            return body
        listed = "\n".join(f"- {path}" for path in found.files)
        return f"{body}\n\n[Files of this skill, to be loaded with LoadSkillSupporting:]\n{listed}"

    return skill


def load_skill_supporting_tool(store: SkillStore) -> AnyTool:
    """The tool `LoadSkillSupporting`."""

    @ready(name="LoadSkillSupporting", needs=["name", "path"], read_only=True, idempotent=True)
    def load_skill_supporting(*, name: str = "", path: str = "") -> str:
        """Load a file that belongs to a skill, such as references/guide.md.

        Args:
            name: The skill's name.
            path: The file, relative to the skill's directory.
        """
        try:
            file = store.load_supporting(name, path)
        except SkillError as error:
            raise ToolExecutionError(error.message) from error
        text = file.text
        if text is None:
            raise ToolExecutionError(f"supporting file is not text: {shorten(path)} ({len(file.data)} bytes)")
        return text

    return load_skill_supporting
