"""One set of tools, one policy, three doors: what is denied at one is denied at all, for the same reason."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest
from mcp import Client

from dragoman.chat import ChatClient
from dragoman.conversation import ToolCall
from dragoman.mcp import McpServer
from dragoman.simulator import Reply, Simulator
from dragoman.toolkit import PermissionChecker, PermissionPolicy, Rule, toolkit
from dragoman.tools import ToolExecutor
from tests.engines.claude_cli.stages import claude_script, install_stand_in

REASON = "nothing is deleted here"
POLICY = PermissionPolicy(
    rules=(
        Rule(action="deny", tool="Bash", command="rm", reason=REASON, name="no-rm"),
        Rule(action="allow", tool="Bash", command="ls"),
    )
)
COMMAND = '{"command": "ls && rm -rf precious"}'


def _chat(checker: PermissionChecker, workspace: Path, door: str) -> str:
    model = "claude-local:claude-sonnet-4-5" if door == "claude" else "anthropic:claude-sonnet-4-5"
    said = [Reply(ToolCall("c1", "Bash", COMMAND)), "I may not."]
    with Simulator(claude_script(said) if door == "claude" else said) as simulator:
        options = {"key": "k", "base_url": simulator.base_url("anthropic"), "permission": checker.at(door)}
        with ChatClient(model, toolkit(workspace), **options) as client:  # type: ignore[arg-type]
            client.chat("Tidy up.")
            (result,) = client.history[2].tool_results
    assert result.error_type == "denied"
    return result.text


def _mcp(checker: PermissionChecker, workspace: Path) -> str:
    async def main() -> str:
        with ToolExecutor(toolkit(workspace), permission=checker.at("mcp")) as executor:
            server = McpServer(executor=executor)
            async with Client(server.sdk()) as client:
                result = await client.call_tool("Bash", {"command": "ls && rm -rf precious"})
        assert result.is_error
        return "".join(getattr(part, "text", "") for part in result.content)

    return asyncio.run(main())


def test_a_command_is_denied_at_every_door_with_the_same_reason_and_audit_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    workspace = tmp_path / "work"
    (workspace / "precious").mkdir(parents=True)
    checker = PermissionChecker(POLICY, workspace=workspace)
    monkeypatch.setenv("PATH", f"{install_stand_in(tmp_path / 'programs').parent}:/usr/bin:/bin")
    texts = [_chat(checker, workspace, "api"), _mcp(checker, workspace), _chat(checker, workspace, "claude")]
    assert (workspace / "precious").exists()
    assert all(REASON in text for text in texts)
    assert len(set(texts)) == 1
    lines = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
    assert [line.rpartition(" door=")[2] for line in lines] == ["api", "mcp", "claude"]
    (line,) = {line.rpartition(" door=")[0] for line in lines}
    assert re.fullmatch(rf'tool=Bash arguments=[0-9a-f]{{16}} decision=deny by=rule rule=no-rm reason="{REASON}"', line)
