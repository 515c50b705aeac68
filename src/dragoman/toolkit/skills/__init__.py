"""Skills: instructions that a model loads when it needs them, after the open Agent Skills specification.

front_matter.py   the front matter of a SKILL.md (needs PyYAML)
skill.py          a skill, read leniently, and checked by the letter
store.py          SkillStore; skills in directories and in memory; the list for the system prompt; the tools
"""

from .skill import Skill, SkillSummary, SupportingFile, validate_skill
from .store import (
    DirectorySkillStore,
    MemorySkillStore,
    SkillLimits,
    SkillStore,
    load_skill_supporting_tool,
    skill_directories,
    skill_tool,
    skill_tools,
    skills_prompt,
)

__all__ = [
    "DirectorySkillStore",
    "MemorySkillStore",
    "Skill",
    "SkillLimits",
    "SkillStore",
    "SkillSummary",
    "SupportingFile",
    "load_skill_supporting_tool",
    "skill_directories",
    "skill_tool",
    "skill_tools",
    "skills_prompt",
    "validate_skill",
]
