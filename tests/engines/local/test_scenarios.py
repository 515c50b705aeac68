"""The scenarios of the chat client with a local model whose words are scripted: the same conversations come of them.

Three of the twelve do not apply: a reply of this model holds one call, and what looks like a call of a tool that is
not offered is a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dragoman.conversation import Text, ToolCall, ToolResult
from dragoman.engines.local.prompt import write_call
from dragoman.simulator import Reply, Request, Simulator, Stall
from tests.chat import scenarios
from tests.chat.scenarios import SCENARIOS, check, script
from tests.chat.talking import WAYS, Stage
from tests.engines.local.running import Stand
from tests.engines.talking import MODELS, ONCE

OTHERS = [MODELS["openai_chat"], MODELS["anthropic"], MODELS["gemini"], MODELS["bedrock"]]
NOT_HERE = {"parallel tools", "unknown tool", "approval and resume in a new process"}

_FAILED = re.compile(r"The function (\w+) failed:\n(.*)\n\n", re.DOTALL)


def in_its_words(said: Callable[[Request], Any], way: str) -> Callable[[Request], Any]:
    """A script whose calls are written as a local model writes them, while one is asked. A long stream has no end."""

    def worded(request: Request) -> Any:
        reply = said(request)
        if not isinstance(reply, Reply) or request.tools or request.dialect != "openai_chat":
            return reply
        texts = [write_call(block.name, block.arguments) if isinstance(block, ToolCall) else _text(block)
                 for block in reply.blocks]  # fmt: skip
        endless = "stream" in way and len("".join(texts)) > 1000  # or it might come all at once
        faults = [Stall()] if endless else []
        return Reply("\n".join(texts), delta=reply.delta, usage=reply.usage, faults=faults)

    return worded


def _text(block: Any) -> str:
    assert isinstance(block, Text)
    return block.text


class Seen:
    """The simulator, with the results of tools that stand in texts."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    @property
    def requests(self) -> list[Request]:
        return [replace(request, tool_results=self._results(request)) for request in self._simulator.requests]

    def _results(self, request: Request) -> tuple[ToolResult, ...]:
        found = _FAILED.findall(request.last_user_text)
        failed = tuple([ToolResult("", name, (Text(text),), is_error=True) for name, text in found])
        return request.tool_results or failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)


class LocalStage(Stage):
    """A stage on which `local` is the model that stands in for one."""

    def __init__(self, simulator: Simulator, model: str, way: str) -> None:
        super().__init__(Seen(simulator), model, way)  # type: ignore[arg-type]

    def engine_options(self, model: str) -> dict[str, Any]:
        if model == self.model:
            return {"retry": ONCE}  # with the usual timeouts: a busy machine takes its time
        return super().engine_options(model)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - NOT_HERE))
def test_scenario(name: str, way: str, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = SCENARIOS[name]
    model = stand.play(in_its_words(script(scenario.replies), way))
    monkeypatch.setattr(scenarios, "MODELS", {model: model for model in [model, *OTHERS]})
    check(scenario, LocalStage(stand.simulator, model, way))
