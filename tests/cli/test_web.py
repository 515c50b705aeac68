"""`dragoman web` as a program: it serves the page, keeps what was said with the others, and ends in peace."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from urllib.parse import urlsplit

from tests.cli.running import Surroundings


def ask(port: int, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_it_serves_the_page_and_keeps_conversations(around: Surroundings) -> None:
    command = [sys.executable, "-m", "dragoman", "web", "--no-open", "-q", "-T", "calculator"]
    (around.work / "dragoman.toml").write_text('system_prompt = "Say everything in rhymes."\n')
    with around.talking(["Hello there."]) as simulator:
        with subprocess.Popen(
            command, env=around.env, cwd=around.work, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as program:
            try:
                assert program.stderr is not None
                found = re.search(r"http://\S+", program.stderr.readline())
                assert found is not None
                address = urlsplit(found[0])
                port = address.port or 0
                status, headers, _ = ask(port, "GET", f"/?{address.query}")
                assert status == 303
                known = {"cookie": headers["set-cookie"].partition(";")[0], "origin": f"http://127.0.0.1:{port}"}
                about = json.loads(ask(port, "GET", "/api/about", **known)[2])
                assert about["workspace"] == str(around.work)
                status, _, made = ask(port, "POST", "/api/conversations", {"text": "Hello?"}, **known)
                assert status == 202
                one = f"/api/conversations/{json.loads(made)['id']}"
                ask(port, "GET", f"{one}/events", **known)  # until it has ended
                said = json.loads(ask(port, "GET", one, **known)[2])
                assert [message["blocks"][0]["text"] for message in said["messages"]] == ["Hello?", "Hello there."]
                program.send_signal(signal.SIGINT)
                assert program.wait(60) == 0
            finally:
                program.kill()
        assert "calculator" in simulator.requests[0].tools
        assert "rhymes" not in str(simulator.requests[0].body), "nobody was asked"
    assert "Hello?" in around.here("history", "list").out


def test_beyond_loopback_it_needs_a_password(around: Surroundings) -> None:
    with around.talking():
        assert around.here("web", "--host", "0.0.0.0").ended(2, "nothing keeps people out")
        assert around.here("web", "--prot", "1").ended(2, "Did you mean --port?")
