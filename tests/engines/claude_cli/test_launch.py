"""What the program is started with: kept to itself, with the right login, and nothing of ours that it need not know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.chat import ChatClient
from dragoman.conversation import Conversation, Message, OneTool, ToolSpec
from dragoman.engines import ClaudeEngine, ClaudeSettings, Secret, async_engine, engine
from dragoman.engines.claude_cli.launch import Account, Launch, launch_for
from dragoman.errors import ConfigurationError, InvalidBaseURLError
from dragoman.providers import PROFILES, Adaptation, Call, ModelOptions, Reasoning, ResponseFormat, check

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
    account: dict[str, Any] | None = None,
    **settings: Any,
) -> Launch:
    call = Call(
        model=model,
        conversation=Conversation(system).plus(Message.user("a secret prompt")),
        profile=PROFILE,
        tools=tuple(tools),
        options=options or ModelOptions(),
    )
    who = Account(**{"environ": ENVIRON, **(account or {})})
    return launch_for(call, "/opt/claude", ClaudeSettings(**settings), who, [] if notes is None else notes)


def after(launch: Launch, flag: str) -> str:
    return launch.arguments[launch.arguments.index(flag) + 1]


def test_the_program_is_isolated_by_default() -> None:
    launch = launched(tools=[ToolSpec("weather", "secret description")])
    assert launch.arguments[0] == "/opt/claude"
    assert (after(launch, "--tools"), after(launch, "--model")) == ("", "sonnet")
    flags = {"-p", "--strict-mcp-config", "--setting-sources=", "--no-session-persistence", "--disable-slash-commands"}
    assert flags <= set(launch.arguments)
    assert not any("secret" in argument or "Be brief" in argument for argument in launch.arguments)
    assert launch.opening["systemPrompt"] == "Be brief."
    assert launched(system=None).opening["systemPrompt"] == ""
    assert launched(own_prompt=True).opening == {"subtype": "initialize", "appendSystemPrompt": "Be brief."}
    assert "--model" not in launched(model="default").arguments
    with pytest.raises(ConfigurationError):
        launched(model="--dangerously-skip-permissions")


def test_own_tools_are_asked_about() -> None:
    launch = launched(own_tools=("Bash", "Read"))
    assert after(launch, "--tools") == "Bash,Read"
    assert msgspec.json.decode(after(launch, "--settings")) == {"permissions": {"ask": ["Bash", "Read"]}}


def test_secrets_of_others_are_not_in_the_environment() -> None:
    found = launched().environment
    wanted = {"HOME": "/home/u", "CLAUDE_CONFIG_DIR": "/home/u/.claude2", "DISABLE_TELEMETRY": "1"}
    assert wanted.items() <= found.items()
    others = {"OPENAI_API_KEY", "GEMINI_API_KEY", "DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "CLAUDECODE"}
    assert not found.keys() & {*others, "CLAUDE_CODE_ENTRYPOINT"}
    assert launched(environment={"DISABLE_TELEMETRY": "0", "X": "y"}).environment["DISABLE_TELEMETRY"] == "0"
    # A cloud that is switched on gets its own.
    bedrock = launched(account={"environ": {**ENVIRON, "CLAUDE_CODE_USE_BEDROCK": "1"}}).environment
    assert bedrock["AWS_SECRET_ACCESS_KEY"] == "aws"
    assert "OPENAI_API_KEY" not in bedrock


def test_which_key_is_passed_on() -> None:
    def key(**account: Any) -> str | None:
        return launched(account=account).environment.get("ANTHROPIC_API_KEY")

    assert key() == "sk-ant"  # as the program would in a terminal
    assert key(key=Secret("given")) == "given"
    # A key of the environment does not travel to another address that somebody else names.
    assert key(base_url="https://gateway.test") is None
    assert key(base_url="https://api.anthropic.com") == "sk-ant"
    with pytest.raises(ConfigurationError):
        key(key=Secret("k", hosts=["api.anthropic.com"]), base_url="https://gateway.test")


def test_options_become_variables_and_flags() -> None:
    options = ModelOptions(max_tokens=777, extra_headers={"x-team": "a"}, extra_body={"metadata": {"a": 1}})
    account = {"headers": {"x-app": "b"}, "base_url": "https://gateway.test"}
    wanted = {
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "777",
        "ANTHROPIC_CUSTOM_HEADERS": "x-app: b\nx-team: a",
        "ANTHROPIC_BASE_URL": "https://gateway.test",
        "CLAUDE_CODE_EXTRA_BODY": '{"metadata":{"a":1}}',
        "CLAUDE_CODE_MAX_RETRIES": "2",
    }
    assert wanted.items() <= launched(options=options, account=account).environment.items()


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
def test_unsupported_options_are_refused_or_reported(options: ModelOptions) -> None:
    with pytest.raises(ConfigurationError):
        launched(options=options, tools=[ToolSpec("weather")])
    notes: list[Adaptation] = []
    launched(options=msgspec.structs.replace(options, adapt=True), tools=[ToolSpec("weather")], notes=notes)
    assert notes


def test_long_descriptions_are_reported() -> None:
    notes: list[Adaptation] = []
    launched(tools=[ToolSpec("short", "d" * 2048), ToolSpec("long", "d" * 2049)], notes=notes)
    assert [note.what for note in notes] == ["description of tool 'long'"]


def test_tools_and_schemas() -> None:
    none = launched(options=ModelOptions(tool_choice="none"), tools=[ToolSpec("weather")])
    assert none.tools == ()
    assert "sdkMcpServers" not in none.opening
    assert launched(tools=[ToolSpec("get weather!")]).names == {"mcp__dragoman__get_weather_": "get weather!"}
    short = launched(options=ModelOptions(response_format=ResponseFormat(schema=Raw(b'{"type":"object"}'))))
    assert after(short, "--json-schema") == '{"type":"object"}'
    big = Raw(msgspec.json.encode({"type": "object", "description": "x" * 200_000}))
    long = launched(options=ModelOptions(response_format=ResponseFormat(schema=big)))
    assert "--json-schema" not in long.arguments
    assert bytes(long.opening["jsonSchema"]) == bytes(big)  # type: ignore[arg-type]


def test_the_key_depends_on_everything_in_the_launch() -> None:
    spec = ToolSpec("weather")
    assert launched(tools=[spec]).key == launched(tools=[spec]).key
    others = [
        launched(),
        launched(tools=[spec], system="Other."),
        launched(tools=[spec], model="opus"),
        launched(tools=[spec], account={"key": Secret("another")}),
        launched(tools=[spec], options=ModelOptions(max_tokens=1)),
    ]
    keys = {launched(tools=[spec]).key, *[each.key for each in others]}
    assert len(keys) == 6
    assert not any("sk-ant" in key for key in keys)


# --- by name ----------------------------------------------------------------------------------------------------------


def test_engines_by_name() -> None:
    with engine("claude-local:sonnet") as made:
        assert isinstance(made, ClaudeEngine)
        assert (made.name, made.profile.provider) == ("claude-local:sonnet", "claude-local")
        (tool,) = made.prepare_tools([ToolSpec("weather", "The weather.")])  # type: ignore[misc]
        assert (tool["name"], tool["inputSchema"]["type"]) == ("weather", "object")
        assert made.features.supports_tools
    with ChatClient("claude-local:") as client:
        assert client.model == "claude-local:default"
    assert repr(async_engine("claude-local/opus")) == "<AsyncClaudeEngine claude-local:opus>"
    with pytest.raises(InvalidBaseURLError):
        engine("claude-local:sonnet", base_url="http://elsewhere.test")
    with pytest.raises(ConfigurationError, match="colour"):
        engine("claude-local:sonnet", profile={"colour": "red"})
    assert engine("claude-local:sonnet", profile={"context_window": 5}).profile.context_window == 5
    with ChatClient("claude-local:sonnet", find_program=lambda _: None) as client:
        with pytest.raises(ConfigurationError, match="no executable program `claude`"):
            client.chat("Hello")
        assert client.history == ()


def test_tools_are_checked_without_the_program() -> None:
    report = check([ToolSpec("get weather!"), ToolSpec("long", "d" * 5000, strict=True)], "claude-local:")
    odd, long = [[(found.severity, found.about) for found in tool.findings] for tool in report.tools]
    assert odd == [("rewrite", "name")]
    assert long == [("rewrite", "description"), ("rewrite", "strict")]
