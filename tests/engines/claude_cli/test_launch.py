"""What the program is started with: kept to itself, with the right login, and nothing of ours that it need not know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.conversation import Conversation, Message, OneTool, ToolSpec
from dragoman.engines import ClaudeSettings, Secret
from dragoman.engines.claude_cli.launch import Account, Launch, launch_for
from dragoman.errors import ConfigurationError
from dragoman.providers import PROFILES, Adaptation, Call, ModelOptions, Reasoning, ResponseFormat

PROFILE = PROFILES["claude-local"]
ENVIRON = {
    "HOME": "/home/u",
    "PATH": "/bin",
    "OPENAI_API_KEY": "sk-openai",
    "GEMINI_API_KEY": "g-key",
    "DATABASE_URL": "postgres://secret",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CONFIG_DIR": "/home/u/.claude2",
    "ANTHROPIC_API_KEY": "sk-ant",
}


def launched(
    *,
    model: str = "sonnet",
    system: str | None = "Be brief.",
    tools: Any = (),
    options: ModelOptions | None = None,
    notes: list[Adaptation] | None = None,
    environ: dict[str, str] | None = None,
    key: str | Secret | None = None,
    base_url: str | None = None,
    headers: dict[str, str] | None = None,
    **settings: Any,
) -> Launch:
    call = Call(
        model=model,
        conversation=Conversation(system).plus(Message.user("a secret prompt")),
        profile=PROFILE,
        tools=tuple(tools),
        options=options or ModelOptions(),
    )
    secret = Secret(key) if isinstance(key, str) else key
    account = Account(key=secret, base_url=base_url, headers=headers or {}, environ=environ or ENVIRON)
    found = ClaudeSettings(find_program=lambda name: f"/opt/{name}", **settings)
    return launch_for(call, found, account, [] if notes is None else notes)


def test_it_is_kept_to_itself() -> None:
    arguments = launched().arguments
    assert arguments[0] == "/opt/claude"
    assert arguments[arguments.index("--tools") + 1] == ""
    for flag in (
        "-p",
        "--strict-mcp-config",
        "--setting-sources=",
        "--no-session-persistence",
        "--disable-slash-commands",
    ):
        assert flag in arguments
    assert arguments[arguments.index("--model") + 1] == "sonnet"


def test_prompts_are_no_arguments() -> None:
    launch = launched(tools=[ToolSpec("weather", "secret description")])
    assert not any("secret" in argument or "Be brief" in argument for argument in launch.arguments)
    assert launch.opening["systemPrompt"] == "Be brief."
    assert launched(system=None).opening["systemPrompt"] == ""
    assert launched(own_prompt=True).opening == {"subtype": "initialize", "appendSystemPrompt": "Be brief."}


def test_its_default_model() -> None:
    assert "--model" not in launched(model="default").arguments
    with pytest.raises(ConfigurationError):
        launched(model="--dangerously-skip-permissions")


def test_own_tools_are_asked_about() -> None:
    arguments = launched(own_tools=("Bash", "Read")).arguments
    assert arguments[arguments.index("--tools") + 1] == "Bash,Read"
    settings = msgspec.json.decode(arguments[arguments.index("--settings") + 1])
    assert settings == {"permissions": {"ask": ["Bash", "Read"]}}


def test_the_environment_holds_nothing_of_others() -> None:
    found = launched().environment
    assert found["HOME"] == "/home/u"
    assert found["CLAUDE_CONFIG_DIR"] == "/home/u/.claude2"
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "CLAUDECODE"):
        assert name not in found
    assert "CLAUDE_CODE_ENTRYPOINT" not in found
    assert found["DISABLE_TELEMETRY"] == "1"
    assert launched(environment={"DISABLE_TELEMETRY": "0", "X": "y"}).environment["DISABLE_TELEMETRY"] == "0"


def test_a_cloud_that_is_switched_on_gets_its_own() -> None:
    found = launched(environ={**ENVIRON, "CLAUDE_CODE_USE_BEDROCK": "1"}).environment
    assert found["AWS_SECRET_ACCESS_KEY"] == "aws"
    assert "OPENAI_API_KEY" not in found


def test_whose_key_it_uses() -> None:
    assert launched().environment["ANTHROPIC_API_KEY"] == "sk-ant"  # as the program would in a terminal
    assert launched(key="given").environment["ANTHROPIC_API_KEY"] == "given"
    # A key of the environment does not travel to another address that somebody else names.
    elsewhere = launched(base_url="https://gateway.test")
    assert elsewhere.environment["ANTHROPIC_BASE_URL"] == "https://gateway.test"
    assert "ANTHROPIC_API_KEY" not in elsewhere.environment
    assert launched(base_url="https://api.anthropic.com").environment["ANTHROPIC_API_KEY"] == "sk-ant"
    with pytest.raises(ConfigurationError):
        launched(key=Secret("k", hosts=["api.anthropic.com"]), base_url="https://gateway.test")


def test_options_become_variables_and_flags() -> None:
    options = ModelOptions(max_tokens=777, extra_headers={"x-team": "a"}, extra_body={"metadata": {"a": 1}})
    found = launched(options=options, headers={"x-app": "b"}).environment
    assert found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "777"
    assert found["ANTHROPIC_CUSTOM_HEADERS"] == "x-app: b\nx-team: a"
    assert found["CLAUDE_CODE_EXTRA_BODY"] == '{"metadata":{"a":1}}'
    assert found["CLAUDE_CODE_MAX_RETRIES"] == "2"


EFFORTS = {
    "high": (Reasoning(effort="high"), ["--effort", "high"]),
    "none": (Reasoning(effort="none"), ["--thinking", "disabled"]),
    "budget": (Reasoning(budget=2000), ["--max-thinking-tokens", "2000"]),
    "nothing": (Reasoning(), []),
}


@pytest.mark.parametrize(("reasoning", "flags"), EFFORTS.values(), ids=EFFORTS.keys())
def test_reasoning(reasoning: Reasoning, flags: list[str]) -> None:
    assert set(flags) <= set(launched(options=ModelOptions(reasoning=reasoning)).arguments)


@pytest.mark.parametrize(
    "options",
    [
        ModelOptions(temperature=0.5),
        ModelOptions(stop=("x",)),
        ModelOptions(seed=1),
        ModelOptions(tool_choice="required"),
        ModelOptions(tool_choice=OneTool("weather")),
        ModelOptions(parallel_tool_calls=False),
        ModelOptions(reasoning=Reasoning(effort="minimal")),
        ModelOptions(server_tools=(Raw(b"{}"),)),
    ],
)
def test_what_it_cannot_do_is_never_dropped_silently(options: ModelOptions) -> None:
    with pytest.raises(ConfigurationError):
        launched(options=options, tools=[ToolSpec("weather")])
    notes: list[Adaptation] = []
    launched(options=msgspec.structs.replace(options, adapt=True), tools=[ToolSpec("weather")], notes=notes)
    assert notes


def test_no_tools_are_offered_where_none_may_be_called() -> None:
    launch = launched(options=ModelOptions(tool_choice="none"), tools=[ToolSpec("weather")])
    assert launch.tools == ()
    assert "sdkMcpServers" not in launch.opening


def test_schemas_short_and_long() -> None:
    short = launched(options=ModelOptions(response_format=ResponseFormat(schema=Raw(b'{"type":"object"}'))))
    assert short.arguments[short.arguments.index("--json-schema") + 1] == '{"type":"object"}'
    big = Raw(msgspec.json.encode({"type": "object", "description": "x" * 200_000}))
    long = launched(options=ModelOptions(response_format=ResponseFormat(schema=big)))
    assert "--json-schema" not in long.arguments
    assert bytes(long.opening["jsonSchema"]) == bytes(big)  # type: ignore[arg-type]


def test_odd_names_are_mapped() -> None:
    assert launched(tools=[ToolSpec("get weather!")]).names == {"mcp__dragoman__get_weather_": "get weather!"}


def test_programs_started_alike_have_the_same_key() -> None:
    spec = ToolSpec("weather")
    assert launched(tools=[spec]).key == launched(tools=[spec]).key
    others = [
        launched(),
        launched(tools=[spec], system="Other."),
        launched(tools=[spec], model="opus"),
        launched(tools=[spec], key="another"),
        launched(tools=[spec], options=ModelOptions(max_tokens=1)),
    ]
    keys = {launched(tools=[spec]).key, *[each.key for each in others]}
    assert len(keys) == 6
    assert not any("sk-ant" in key for key in keys)
