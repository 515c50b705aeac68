"""From `local:…` to a file and what is known of it.

Owns: telling names from paths; whether and how a model thinks aloud, which its own chat template says.
Must not know: how a file is fetched or run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from .gguf import read_gguf
from .progress import OnProgress
from .shelf import pull
from .table import LocalModel, model_named

__all__ = ["Chosen", "Thinks", "choose"]

Thinks: TypeAlias = Literal["never", "maybe", "always"]
"""Whether a model thinks before it answers: between tags that it writes, or from the start of every reply."""

_PATH: Final = re.compile(r"[/\\~]|^\.|\.gguf$", re.IGNORECASE)
USUAL_CONTEXT: Final = 8192


class Chosen(Struct, frozen=True, kw_only=True):
    """A model that was asked for. Its file may not be here yet."""

    name: str
    """What stands behind `local:`."""
    context: int
    """Tokens that it is run with, where nobody says otherwise."""
    thinks: Thinks = "never"
    row: LocalModel | None = None
    file: Path | None = None

    def locate(self, progress: OnProgress | None, get: Callable[[str, OnProgress | None], Path] = pull) -> Path:
        """Its file, fetched if it is not here."""
        if self.file is not None:
            return self.file
        assert self.row is not None
        return get(self.row.name, progress)


def choose(name: str) -> Chosen:
    """The model that a name or a path means; an empty name means the default. Raises LocalModelError."""
    if not _PATH.search(name):
        row = model_named(name)
        return Chosen(name=row.name, row=row, context=USUAL_CONTEXT)
    file = read_gguf(Path(name).expanduser().absolute())
    template = file.chat_template or ""
    context = min(USUAL_CONTEXT, file.context_length or USUAL_CONTEXT)
    return Chosen(name=name, file=file.path, context=context, thinks=_thinks(template))


def _thinks(template: str) -> Thinks:
    if "<think>" not in template and "</think>" not in template:
        return "never"
    # Some templates begin the model's reply with the opening tag; those that also close it there switch thinking off.
    beginning = template.rpartition("add_generation_prompt")[2]
    return "always" if "<think>" in beginning and "</think>" not in beginning else "maybe"
