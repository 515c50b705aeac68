from .bash import BashSettings as BashSettings
from .fetch import FetchSettings as FetchSettings
from .permissions.checker import PermissionChecker as PermissionChecker
from .permissions.judge import Verdict as Verdict
from .permissions.rules import PermissionPolicy as PermissionPolicy, Rule as Rule, policy_from as policy_from
from .ready import toolkit as toolkit
from .responder import (
    CallbackResponder as CallbackResponder,
    ConsoleResponder as ConsoleResponder,
    NullResponder as NullResponder,
    PermissionAnswer as PermissionAnswer,
    PermissionRequest as PermissionRequest,
    Responder as Responder,
)
from .skills.skill import Skill as Skill, SkillSummary as SkillSummary, SupportingFile as SupportingFile
from .skills.store import (
    DirectorySkillStore as DirectorySkillStore,
    MemorySkillStore as MemorySkillStore,
    SkillStore as SkillStore,
    skill_directories as skill_directories,
    skill_tools as skill_tools,
    skills_prompt as skills_prompt,
)
from .workspace import Workspace as Workspace
