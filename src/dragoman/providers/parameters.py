"""Options against profiles: what a model cannot take is an error or a reported adaptation, never dropped.

Owns: that rule, once for all dialects.
Must not know: how a dialect writes a parameter.
"""

from __future__ import annotations

import msgspec

from dragoman.conversation import OneTool
from dragoman.errors import ConfigurationError

from .codec import Adaptation, Call
from .options import ModelOptions

__all__ = ["effective_options", "refuse_or_adapt"]

_DEFAULTS = ModelOptions()
# Not sent to the model as parameters of their own.
_NOT_PARAMETERS = frozenset(["adapt", "extra_body", "extra_headers", "server_tools", "tool_choice", "cache"])


def refuse_or_adapt(call: Call, adaptations: list[Adaptation], what: str, why: str, hint: str) -> None:
    """Report that something was left out or changed; or raise, unless the caller said `adapt=True`."""
    if not call.options.adapt:
        message = f"{call.profile.provider}:{call.model} cannot take {what}: {why}."
        raise ConfigurationError(message, hint=f"{hint} Or say adapt=True to go on without it.")
    adaptations.append(Adaptation(what, why))


def effective_options(call: Call, adaptations: list[Adaptation]) -> ModelOptions:
    """The options without what the profile says the model does not take; each one refused or reported."""
    options, profile = call.options, call.profile
    changes: dict[str, object] = {}
    for name in sorted(profile.unsupported):  # in the same order in every process
        if name in _NOT_PARAMETERS or getattr(options, name) == getattr(_DEFAULTS, name):
            continue
        refuse_or_adapt(call, adaptations, name, "this model does not support it", f"Leave {name} out.")
        changes[name] = getattr(_DEFAULTS, name)
    if options.reasoning is not None and profile.reasoning == "none":
        if options.reasoning.effort != "none":  # not to reason is what such a model does anyway
            refuse_or_adapt(call, adaptations, "reasoning", "this model does not reason", "Leave reasoning out.")
        changes["reasoning"] = None
    if options.parallel_tool_calls is False and not profile.parallel_tool_calls:
        why = "this model cannot be held to one call at a time"
        refuse_or_adapt(call, adaptations, "parallel_tool_calls=False", why, "Leave it out.")
        changes["parallel_tool_calls"] = None
    wanted = "tool" if isinstance(options.tool_choice, OneTool) else options.tool_choice
    if (call.tools or options.server_tools) and wanted not in profile.tool_choices:
        hint = f"Use one of: {', '.join(sorted(profile.tool_choices))}."
        refuse_or_adapt(call, adaptations, f"tool_choice={wanted!r}", "this model does not support it", hint)
        changes["tool_choice"] = "auto"
    if options.max_tokens is None and profile.default_max_tokens is not None:
        changes["max_tokens"] = profile.default_max_tokens
    return msgspec.structs.replace(options, **changes) if changes else options
