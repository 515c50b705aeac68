"""`Skill` and `LoadSkillSupporting`: skills as tools, for every provider alike.

Owns: the two tools and their words.
Must not know: where skills come from.
"""

from __future__ import annotations

from dragoman.errors import SkillError, ToolExecutionError
from dragoman.toolkit.defining import ready
from dragoman.tools.definition import AnyTool

from .skill import Skill
from .store import SkillStore, shown

__all__ = ["load_skill_supporting_tool", "skill_tool", "skill_tools"]


def skill_tools(store: SkillStore) -> list[AnyTool]:
    """The tools `Skill` and `LoadSkillSupporting`, for the skills of this store."""
    return [skill_tool(store), load_skill_supporting_tool(store)]


def skill_tool(store: SkillStore) -> AnyTool:
    """The tool `Skill`."""

    @ready(name="Skill", filled=["name"], read_only=True, idempotent=True)
    def skill(name: str) -> str:
        """Load the instructions of a skill. Do this before you begin a task that its description fits.

        Args:
            name: The skill's name, from the list of available skills.
        """
        try:
            return _instructions(store.load(name))
        except SkillError as error:
            raise ToolExecutionError(error.message) from error

    return skill


def load_skill_supporting_tool(store: SkillStore) -> AnyTool:
    """The tool `LoadSkillSupporting`."""

    @ready(name="LoadSkillSupporting", filled=["name", "path"], read_only=True, idempotent=True)
    def load_skill_supporting(name: str, path: str) -> str:
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
            message = f"supporting file is not text: {shown(path)} ({len(file.data)} bytes)"
            raise ToolExecutionError(message)
        return text

    return load_skill_supporting


def _instructions(skill: Skill) -> str:
    body = skill.body or "[The skill has no instructions.]"
    if not skill.files:
        return body
    listed = "\n".join(f"- {path}" for path in skill.files)
    return f"{body}\n\n[Files of this skill, to be loaded with LoadSkillSupporting:]\n{listed}"
