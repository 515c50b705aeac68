from .bash import BashSettings as BashSettings
from .fetch import FetchSettings as FetchSettings
from .permissions.checker import PermissionChecker as PermissionChecker
from .permissions.judge import Verdict as Verdict
from .permissions.rules import PermissionPolicy as PermissionPolicy
from .permissions.rules import Rule as Rule
from .permissions.rules import policy_from as policy_from
from .ready import toolkit as toolkit
from .responder import (
    CallbackResponder as CallbackResponder,
)
from .responder import (
    ConsoleResponder as ConsoleResponder,
)
from .responder import (
    NullResponder as NullResponder,
)
from .responder import (
    PermissionAnswer as PermissionAnswer,
)
from .responder import (
    PermissionRequest as PermissionRequest,
)
from .responder import (
    Responder as Responder,
)
from .search import GrepLimits as GrepLimits
from .skills.skill import (
    Skill as Skill,
)
from .skills.skill import (
    SkillSummary as SkillSummary,
)
from .skills.skill import (
    SupportingFile as SupportingFile,
)
from .skills.skill import (
    validate_skill as validate_skill,
)
from .skills.store import (
    DirectorySkillStore as DirectorySkillStore,
)
from .skills.store import (
    MemorySkillStore as MemorySkillStore,
)
from .skills.store import (
    SkillLimits as SkillLimits,
)
from .skills.store import (
    SkillStore as SkillStore,
)
from .skills.store import (
    skill_directories as skill_directories,
)
from .skills.store import (
    skill_tools as skill_tools,
)
from .skills.store import (
    skills_prompt as skills_prompt,
)
from .workspace import Workspace as Workspace
