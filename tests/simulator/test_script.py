"""Which reply comes next: lists, functions, files; the command `dragoman simulate`; the fixture for users' tests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.request import Request as UrlRequest, urlopen

import pytest

from dragoman.conversation import ToolCall
from dragoman.errors import ConfigurationError
from dragoman.simulator import FAULTS, Reply, Request, Simulator, echo, main
from dragoman.simulator.answerer import load_script
from dragoman.simulator.command import _EPILOG
from tests.processes import started
from tests.simulator.raw_client import DIALECTS, ask, said


def text(simulator: Simulator, prompt: str = "Hi", **options: Any) -> str:
    return said("openai_chat", ask(simulator, "openai_chat", prompt, **options), stream=False).text


def test_list_is_played_in_order() -> None:
    with Simulator(["one", Reply("two")]) as simulator:
        assert text(simulator) == "one"
        assert text(simulator) == "two"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_exhausted_script_is_an_error(dialect: str, stream: bool) -> None:
    with Simulator(["one"]) as simulator:
        ask(simulator, dialect, stream=stream)
        answer = ask(simulator, dialect, stream=stream)
        assert answer.status == 500
        assert answer.headers["x-should-retry"] == "false"
        message = answer.json["error"]["message"]
        assert "script is exhausted: it has 1 replies, and this is request 2" in message
        assert [str(error) for error in simulator.errors] == [message]


def test_async_function_as_script() -> None:
    async def script(request: Request) -> Reply:
        await asyncio.sleep(0.01)
        said_so = f"{request.number} {request.dialect} {request.model} {request.stream} {request.last_user_text}"
        return Reply(said_so, ToolCall("c", "f"))

    with Simulator(script) as simulator:
        assert text(simulator, "Hello") == "0 openai_chat any-model False Hello"
        found = said("gemini", ask(simulator, "gemini", "Yes", stream=True), stream=True)
        assert (found.text, found.calls) == ("1 gemini any-model True Yes", [("c", "f", {})])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_failing_function_is_reported(dialect: str) -> None:
    def script(request: Request) -> str:
        raise LookupError("nothing here")

    with Simulator(script) as simulator:
        answer = ask(simulator, dialect)
        assert answer.status == 500
        assert "script failed: LookupError: nothing here" in answer.json["error"]["message"]
        assert isinstance(simulator.errors[0], LookupError)


def test_invalid_scripts_are_refused() -> None:
    with Simulator(lambda request: 42) as simulator:
        assert "not int" in ask(simulator, "gemini").json["error"]["message"]
    with pytest.raises(TypeError, match="not int"):
        Simulator(42)
    with pytest.raises(TypeError, match="not float"):
        Simulator(["one", 2.0])


def test_play_replaces_the_script_and_the_default_is_echo() -> None:
    with Simulator([]) as simulator:
        simulator.play(["new"])
        assert text(simulator) == "new"
        simulator.play(None)
        assert text(simulator, "Good day") == "You said: Good day" == echo(simulator.requests[-1])


def test_script_in_the_help_works(tmp_path: Path) -> None:
    found = re.search(r"\n  from dragoman.*?\n  \]\n", _EPILOG, re.DOTALL)
    assert found is not None
    file = tmp_path / "script.py"
    file.write_text(dedent(found[0]), encoding="utf-8")
    with Simulator(load_script(file)) as simulator:
        assert said("gemini", ask(simulator, "gemini"), stream=False).text == "Hello!"
        assert said("anthropic", ask(simulator, "anthropic"), stream=False).calls == [
            ("c1", "weather", {"city": "Paris"})
        ]
        assert said("openai_chat", ask(simulator, "openai_chat"), stream=False).stop == "length"
        assert not ask(simulator, "anthropic").complete
        assert ask(simulator, "anthropic").headers["retry-after"] == "2"


@pytest.mark.parametrize(
    ("text", "problem"), [("[", "never closed"), ('["Hello!"]', "no name `script`"), (None, "No such file")]
)
def test_unusable_script_file_is_refused(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "script.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=problem):
        load_script(file)


def test_the_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-faults"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FAULTS)


def test_wrong_arguments_of_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--script", str(tmp_path / "missing.py")]) == 1
    assert "missing.py" in capsys.readouterr().err
    with Simulator() as simulator:
        assert main(["--port", str(simulator.port)]) == 1
    with pytest.raises(SystemExit):
        main(["--fault", "none"])


def test_command_runs_until_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    until = threading.Event()
    until.set()
    assert main(["--fault", "delay"], until=until) == 0
    assert "anthropic  base URL http://127.0.0.1:" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("def script(request):\n    return request.last_user_text.upper()\n")
    command = [sys.executable, "-m", "dragoman", "simulate", "--script", "script.py"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(command, cwd=tmp_path, env=environ, **pipes) as process:
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        assert url is not None
        body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
        request = UrlRequest(f"{url[0]}/v1/chat/completions", body, {"content-type": "application/json"})
        with urlopen(request, timeout=60) as response:
            assert json.load(response)["choices"][0]["message"]["content"] == "HI"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors == ""
    assert process.returncode == 0


def test_the_fixture(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest('pytest_plugins = ["dragoman.simulator.pytest_plugin"]')
    pytester.makepyfile(
        """
        import json
        from urllib.request import Request, urlopen

        def ask(simulator, text):
            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
            url = simulator.base_url("openai") + "/chat/completions"
            with urlopen(Request(url, body)) as response:
                return json.load(response)["choices"][0]["message"]["content"]

        def test_echo(simulator):
            assert ask(simulator, "Hi") == "You said: Hi"

        def test_script(simulator):
            simulator.play(["Hello!"])
            assert ask(simulator, "Hi") == "Hello!"
            assert [request.last_user_text for request in simulator.requests] == ["Hi"]
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=2)
