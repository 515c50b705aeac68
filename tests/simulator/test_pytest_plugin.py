"""The fixture for users' tests."""

from __future__ import annotations

import pytest


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
