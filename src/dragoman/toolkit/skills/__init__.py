"""Skills: instructions that a model loads when it needs them, after the open Agent Skills specification.

skill.py          a skill, read leniently
front_matter.py   the front matter of a SKILL.md
yaml_subset.py    the part of YAML that it is written in; yaml_scalars.py its scalars
validation.py     is it a good skill, by the letter
store.py          SkillStore, and one in memory
directory.py      skills in directories
prompt.py         the list for the system prompt
tools.py          the tools `Skill` and `LoadSkillSupporting`
"""

from .directory import DirectorySkillStore, SkillLimits, skill_directories
from .prompt import skills_prompt
from .skill import Skill, SkillSummary, SupportingFile
from .store import MemorySkillStore, SkillStore
from .tools import load_skill_supporting_tool, skill_tool, skill_tools
from .validation import validate_skill

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
