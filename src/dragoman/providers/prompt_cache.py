"""How much of a prompt came from the provider's cache, and why not more.

A provider can reuse the beginning that a prompt has in common with an earlier one. An engine keeps its last calls,
which are immutable; they are compared when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from dragoman.conversation import Message, Text, ToolSpec, Usage

from .codec import Call
from .counting import CHARACTERS_PER_TOKEN, length_of_block, length_of_message, length_of_tool
from .options import ModelOptions
from .requests import takes_cache_marks


class CacheUse(Struct, frozen=True, kw_only=True):
    """How much of a prompt came from the provider's cache, how much could have, and why not more."""

    read: int | None
    """Tokens that the provider read from its cache; None if it does not report them."""
    written: int | None
    """Tokens that it wrote there, for later requests."""
    eligible: int | None
    """About how many tokens at the beginning are the same as in an earlier request of this engine. None if there was
    none."""
    changed: str | None = None
    """The first difference from that request: `tools.NAME`, `options.NAME`, `system` or `messages.3` (counted from 0).
    None if something was only added at the end."""
    why: str = ""
    """Why it was not more; empty if there is nothing to explain."""

    def __str__(self) -> str:
        read = "unknown" if self.read is None else f"{self.read:,}"
        eligible = "unknown" if self.eligible is None else f"about {self.eligible:,}"
        return f"read {read} of {eligible} tokens" + (f": {self.why}" if self.why else "")


# --- the first difference ---------------------------------------------------------------------------------------------

_AT_THE_BEGINNING: Final = ("server_tools", "response_format", "extra_body")
"""Options that come before everything else in a prompt, or may."""
_AFTER_THE_SYSTEM_PROMPT: Final = {"anthropic": ("tool_choice", "parallel_tool_calls", "reasoning")}
"""Options whose change invalidates all messages, by dialect."""


class _Shared(NamedTuple):
    length: int
    """Characters at the beginning that two prompts have in common."""
    changed: str | None = None
    what: str = ""
    """What is different after that, for `why`."""


def _compare(old: Call, new: Call) -> _Shared:
    """The first difference between two prompts, in the order in which providers read them."""
    if name := _changed_option(old.options, new.options, _AT_THE_BEGINNING):
        return _Shared(0, f"options.{name}", f"the option {name} changed")
    length = 0
    for index, spec in enumerate(new.tools):
        if index >= len(old.tools) or not (spec is old.tools[index] or spec == old.tools[index]):
            return _Shared(length, *_describe_change(old.tools, new.tools, index))
        length += length_of_tool(spec)
    if len(old.tools) > len(new.tools):
        return _Shared(length, *_describe_change(old.tools, new.tools, len(new.tools)))
    if old.conversation.system != new.conversation.system:
        same = _common(old.conversation.system or "", new.conversation.system or "")
        where = f" from character {same:,} on" if same else ""
        return _Shared(length + same, "system", f"the system prompt changed{where}")
    length += len(new.conversation.system or "")
    if name := _changed_option(old.options, new.options, _AFTER_THE_SYSTEM_PROMPT.get(new.profile.dialect, ())):
        why = f"the option {name} changed, and this provider then reads all messages again"
        return _Shared(length, f"options.{name}", why)
    for index, (before, now) in enumerate(zip(old.conversation.messages, new.conversation.messages, strict=False)):
        if before is not now and _sent(before) != _sent(now):
            where = f"message {index} changed"
            return _Shared(length + _shared_length(before, now), f"messages.{index}", where)
        length += length_of_message(now)
    return _Shared(length)


def _changed_option(old: ModelOptions, new: ModelOptions, names: Sequence[str]) -> str | None:
    if old is new:
        return None
    return next((name for name in names if getattr(old, name) != getattr(new, name)), None)


def _describe_change(old: Sequence[ToolSpec], new: Sequence[ToolSpec], index: int) -> tuple[str, str]:
    """Which tool makes two lists differ at this index, and how."""
    was, now = [spec.name for spec in old], [spec.name for spec in new]
    if index < len(was) and was[index] not in now:
        name, what = was[index], "was removed"
    elif index < len(now) and now[index] not in was:
        name, what = now[index], "was added"
    else:  # both lists have the names at this index
        name, what = now[index], "was changed" if now[index] == was[index] else "is at another place"
    return f"tools.{name}", f"the tool {name!r} {what}"


def _sent(message: Message) -> tuple[object, ...]:
    """The part of a message that is sent."""
    return message.role, message.blocks, message.native


def _shared_length(old: Message, new: Message) -> int:
    """Characters at the beginning that two messages have in common."""
    length = 0
    if old.role == new.role:
        for before, now in zip(old.blocks, new.blocks, strict=False):
            if before != now:
                if isinstance(before, Text) and isinstance(now, Text):
                    length += _common(before.text, now.text)
                break
            length += length_of_block(now)
    return length


def _common(old: str, new: str) -> int:
    """The length of the common beginning of two texts."""
    for index, (before, now) in enumerate(zip(old, new, strict=False)):
        if before != now:
            return index
    return min(len(old), len(new))


# --- the explanation --------------------------------------------------------------------------------------------------

_ENOUGH: Final = 0.75
"""The part of the eligible tokens that needs no explanation: they are estimated, and providers cache in steps."""
_LARGEST_MINIMUM: Final = 4096
"""Every provider caches prompts of so many tokens; below that it depends on the model."""


def explain_cache(calls: Sequence[Call], usage: Usage | None) -> CacheUse:
    """Explain the cache use of the last call, compared with the earlier call that has the most in common with it."""
    usage = usage or Usage()
    read, written = usage.cache_read, usage.cache_write
    if not calls:
        return CacheUse(read=read, written=written, eligible=None)
    *recent, prompt = calls
    if not recent:
        why = "" if read else "it was the first request of this engine, and caches are not shared between models"
        return CacheUse(read=read, written=written, eligible=None, why=why)
    newest_first = [_compare(old, prompt) for old in reversed(recent)]
    shared = max(newest_first, key=lambda found: found.length)
    whole = _length(prompt)
    tokens = whole / CHARACTERS_PER_TOKEN if usage.input is None else usage.input
    eligible = round(tokens * shared.length / whole) if whole else 0
    why = _explain(prompt, shared, eligible, read, written)
    return CacheUse(read=read, written=written, eligible=eligible, changed=shared.changed, why=why)


def _length(prompt: Call) -> int:
    parts = sum(map(length_of_tool, prompt.tools)) + sum(map(length_of_message, prompt.conversation.messages))
    return parts + len(prompt.conversation.system or "")


def _explain(prompt: Call, shared: _Shared, eligible: int, read: int | None, written: int | None) -> str:
    if shared.changed is not None and (not read or read * _ENOUGH <= eligible):
        return shared.what
    if read is None:
        return "the provider does not report what it read from its cache"
    if read >= eligible * _ENOUGH:
        return ""
    if takes_cache_marks(prompt.profile) and not prompt.options.cache and not written:
        return "the prompt is not marked for the cache: use ModelOptions(cache=True)"
    if eligible < _LARGEST_MINIMUM:
        return "nothing changed: it has expired, or is shorter than this model's cache takes (512 to 4,096 tokens)"
    return "nothing changed: it has expired, or the provider did not find it"
