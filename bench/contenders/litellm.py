"""litellm: `completion` and `acompletion`."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it is fetched from elsewhere when imported

import litellm

from bench.contenders import chat_shaped
from bench.contenders.common import BASES, KEY, MODELS

DIALECTS = ("openai_chat", "anthropic", "gemini")

litellm.telemetry = False
litellm.suppress_debug_info = True

_PREFIXES = {"openai_chat": "openai", "anthropic": "anthropic", "gemini": "gemini"}


def _given(root: str, dialect: str) -> dict[str, Any]:
    base = f"{root}/v1beta" if dialect == "gemini" else root + BASES[dialect]
    return {"model": f"{_PREFIXES[dialect]}/{MODELS[dialect]}", "api_key": KEY, "api_base": base}


class Plain(chat_shaped.Plain):
    def __init__(self, root: str, dialect: str) -> None:
        self.create = partial(litellm.completion, **_given(root, dialect))


class OnLoop(chat_shaped.OnLoop):
    def __init__(self, root: str, dialect: str) -> None:
        self.create = partial(litellm.acompletion, **_given(root, dialect))
