"""What was not said is as the engine and the tools' config have it."""

from __future__ import annotations

from dragoman.engines.scripted import ScriptedEngine
from dragoman.loop.hooks import LoopHooks
from dragoman.loop.limits import Limits
from dragoman.loop.orchestrator import Orchestrator
from dragoman.loop.settings import LoopOptions, LoopSettings, settings_of
from dragoman.providers.options import ModelOptions
from dragoman.tools.run import ToolConfig

OF_THE_ENGINE = ModelOptions(temperature=0.5)


def test_nothing_given() -> None:
    settings = settings_of({}, OF_THE_ENGINE, ToolConfig(max_iterations=7))
    assert settings == LoopSettings(options=OF_THE_ENGINE, limits=Limits(steps=7))


def test_everything_given() -> None:
    hook, wanted, limits = LoopHooks(), ModelOptions(seed=1), Limits(tool_calls=3)
    given: LoopOptions = {
        "options": wanted,
        "limits": limits,
        "on_limit": "return",
        "repeat_tool_choice": True,
        "hooks": iter([hook]),
        "context": iter(()),
        "deps": "mine",
    }
    assert set(given) == set(LoopOptions.__annotations__)
    settings = settings_of(given, OF_THE_ENGINE, ToolConfig(max_iterations=7))
    assert settings == LoopSettings(
        options=wanted, limits=limits, on_limit="return", repeat_tool_choice=True, hooks=(hook,), deps="mine"
    )
    assert settings.limits.steps == limits.steps, "limits that are given say everything"


def test_an_orchestrator_has_them() -> None:
    engine, config = ScriptedEngine([]), ToolConfig(max_iterations=7)
    with Orchestrator(engine, config=config) as loop:
        assert loop.settings == settings_of({}, engine.options, config)
