"""Skills: instructions that a model loads when it needs them, after the open Agent Skills specification.

front_matter.py   the front matter of a SKILL.md (needs PyYAML)
skill.py          a skill, read leniently, and checked by the letter
store.py          SkillStore; skills in directories and in memory; the list for the system prompt; the tools
"""
