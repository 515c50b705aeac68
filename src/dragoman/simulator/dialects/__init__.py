"""The four dialects, from the server's side: one package each, put together in one table.

Owns: the table.
Must not know: how a dialect works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import anthropic, gemini, openai_chat, openai_responses
from .dialect import Answer, Dialect, Frame, Refusal, UnwritableReplyError

__all__ = ["DIALECTS", "Answer", "Dialect", "Frame", "Refusal", "UnwritableReplyError"]

DIALECTS: Final[Mapping[str, Dialect]] = {
    package.DIALECT.name: package.DIALECT for package in (anthropic, gemini, openai_chat, openai_responses)
}
