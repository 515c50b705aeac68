"""Recording and replaying, in both colours, and what never gets onto a tape."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError, ConnectionFailedError
from dragoman.transport import AsyncioTransport, HttpRequest, SocketTransport, Tape
from dragoman.transport.tape import NotOnTapeError, SecretFoundError
from tests.transport.colours import Client
from tests.transport.server import Exchange, Server, closed_port

KEY = "sk-proj-" + "aB3dE5fG7hJ9kL1m" * 3


@pytest.fixture(params=["plain", "async"])
def play(request: pytest.FixtureRequest) -> Callable[[Tape], Client]:
    """A client on a tape, in either colour."""

    def client(tape: Tape) -> Client:
        plain = request.param == "plain"
        return Client(tape.transport(SocketTransport if plain else AsyncioTransport), plain=plain)

    return client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tapes" / "test.jsonl"


Play = Callable[[Tape], Client]


async def answer(exchange: Exchange) -> None:
    await exchange.start(headers={"content-type": "text/event-stream", "request-id": "r1", "set-cookie": "secret=1"})
    for piece in (b"data: 1\n\n", b"data: \xc3", b"\xa9\n\n", b"\xff\xfe"):
        await exchange.chunk(piece)
        await exchange.wait_for("on")
    await exchange.end()


async def count(exchange: Exchange) -> None:
    await exchange.reply(str(len(exchange.server.requests)).encode())


def noted(text: str, *secrets: str) -> None:
    """Have a tape look at a request with this text."""
    tape = Tape("nowhere.jsonl", mode="record", secrets=secrets)
    tape.note(HttpRequest(url="http://127.0.0.1/", body=text.encode()))


def lines(path: Path) -> list[dict[str, Any]]:
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == {"dragoman_tape": 1}
    return [json.loads(line) for line in rest]


class TestRoundTrip:
    def test_a_recording_is_replayed_piece_by_piece(self, play: Play, path: Path) -> None:
        headers = {"x-api-key": KEY, "Authorization": f"Bearer {KEY}", "cookie": "a=b", "user-agent": "me"}
        with Server({"*": answer}) as server:
            server.open_gate("on")
            with (
                play(Tape(path)) as client,
                client.open(f"{server.url}/v1/m?alt=sse&key={KEY}", headers=headers) as reply,
            ):
                pieces = reply.pieces()
        assert b"".join(pieces) == b"data: 1\n\ndata: \xc3\xa9\n\n\xff\xfe"
        written = path.read_text(encoding="utf-8").lower()
        assert not any(word in written for word in ("authorization", "api-key", "cookie", "user-agent", KEY.lower()))
        tape = Tape(path)
        assert not tape.recording
        [exchange] = tape.exchanges
        assert tape.unplayed == (exchange,)
        # Another host and other headers: they do not matter, and nobody listens there.
        with play(tape) as client, client.open(f"http://127.0.0.1:{closed_port()}/v1/m?alt=sse&key=other") as reply:
            assert reply.status == 200
            assert dict(reply.headers) == {"content-type": "text/event-stream", "request-id": "r1"}
            assert reply.pieces() == pieces
            assert reply.piece() is None
        assert tape.unplayed == ()

    def test_the_file_is_for_people_and_answers_equal_requests_in_their_order(self, play: Play, path: Path) -> None:
        given = {"body": b'{"model": "m"}', "headers": {"Accept": "a", "x-mine": "1"}}
        with Server({"*": count}) as server, play(Tape(path)) as client:
            for number in (b"1", b"2", b"3"):
                assert client.open(f"{server.url}/v1/m?a=b", **given).read() == number
        request = {"method": "POST", "host": "127.0.0.1", "path": "/v1/m?a=b", "headers": {"accept": "a"}}
        said = {**request, "body": '{"model": "m"}', "status": 200}
        assert lines(path) == [{**said, "pieces": [number]} for number in "123"]
        with play(Tape(path)) as client:
            for number in (b"1", b"2", b"3"):
                assert client.open("http://h/v1/m?a=b", **given).read() == number
            with pytest.raises(NotOnTapeError, match="test.jsonl. It was recorded 3 times and requested once more"):
                client.open("http://h/v1/m?a=b", **given)

    @pytest.mark.parametrize("broken", [False, True])
    def test_an_incomplete_response_is_replayed_as_such(self, play: Play, path: Path, broken: bool) -> None:
        async def cut(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ndata: 1\n\n")
            await exchange.wait_for("on")
            exchange.hang_up()

        with Server({"*": cut}) as server, play(Tape(path, mode="record")) as client, client.open(server.url) as reply:
            assert reply.piece() == b"data: 1\n\n"
            server.open_gate("on")
            if broken:
                with pytest.raises(ConnectionFailedError):
                    reply.piece()
        for read_on in (False, True):
            with play(Tape(path)) as client, client.open("http://h/") as reply:
                assert reply.piece() == b"data: 1\n\n"
                if read_on:
                    with pytest.raises(ConnectionFailedError, match="the recording was stopped here"):
                        reply.piece()


class TestModes:
    def test_auto_records_once_and_record_starts_anew(self, play: Play, path: Path) -> None:
        with pytest.raises(NotOnTapeError, match="no tape test.jsonl"):
            Tape(path, mode="replay")
        with Server({"*": count}) as server:
            for mode, number in (("auto", b"1"), ("auto", b"1"), ("record", b"2"), ("replay", b"2")):
                with play(Tape(path, mode=mode)) as client:  # type: ignore[arg-type]
                    assert client.open(server.url).read() == number
            assert len(server.requests) == 2
            assert len(lines(path)) == 1

    def test_wrong_arguments_and_other_files_are_refused(self, path: Path, tmp_path: Path) -> None:
        for wrong in ({"mode": "recrod"}, {"secrets": KEY}, {"ignore": "id"}):
            with pytest.raises(ConfigurationError, match=next(iter(wrong))):
                Tape(path, **wrong)  # type: ignore[arg-type]
        for content in (b"", b"{}\n", b'{"dragoman_tape":2}\n', b'{"dragoman_tape":1}\n{"request"'):
            (tmp_path / "file").write_bytes(content)
            with pytest.raises(ConfigurationError):
                Tape(tmp_path / "file")


class TestSameness:
    @pytest.mark.parametrize(
        ("recorded", "asked", "options", "same"),
        [
            (b'{"a": 1, "b": [1, 2]}', b'{"b":[1,2],"a":1}', {}, True),
            (b'{"a": 1}', b'{"a": 2}', {}, False),
            (b'{"id": 1, "l": [{"id": 2, "x": 1}]}', b'{"l":[{"x":1,"id":"other"}]}', {"ignore": ["id"]}, True),
            (b'{"user": "Alice"}', b'{"user": "Alice"}', {"replace": {"Alice": "NAME"}}, True),
            (b"\xff plain", b"\xff plain", {}, True),
            (b"\xff plain", b"\xfe plain", {}, False),
        ],
    )
    def test_which_requests_are_equal(
        self, play: Play, path: Path, recorded: bytes, asked: bytes, options: dict[str, Any], same: bool
    ) -> None:
        with Server({"*": count}) as server, play(Tape(path, **options)) as client:
            client.open(f"{server.url}/v1/chat", body=recorded).read()
        assert "Alice" not in path.read_text(encoding="utf-8")
        with play(Tape(path, **options)) as client:
            if same:
                assert client.open("http://h/v1/chat", body=asked).read() == b"1"
            else:
                with pytest.raises(NotOnTapeError):
                    client.open("http://h/v1/chat", body=asked)

    def test_a_miss_shows_the_most_similar_request(self, play: Play, path: Path) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
        with Server({"*": count}) as server, play(Tape(path)) as client:
            client.open(f"{server.url}/v1/chat", body=json.dumps(body).encode()).read()
            client.open(f"{server.url}/v1/chat", body=b'{"model": "other"}').read()
        body["messages"] = [{"role": "user", "content": "What is the weather in Rome?"}]
        with play(Tape(path)) as client:
            with pytest.raises(NotOnTapeError) as caught:
                client.open("http://h/v1/chat", body=json.dumps(body).encode())
            text = str(caught.value)
            assert "POST /v1/chat is not on the tape test.jsonl" in text
            assert '-   "content": "What is the weather in Paris?"' in text
            assert '+   "content": "What is the weather in Rome?"' in text
            assert "mode='record'" in text
            with pytest.raises(NotOnTapeError, match="It has: POST /v1/chat"):
                client.open("http://h/v1/models", method="GET")


class TestSecrets:
    @pytest.mark.parametrize(
        ("place", "target", "fields"),
        [
            ("body of a request", "/", {"body": json.dumps({"text": f"my key is {KEY}"}).encode()}),
            ("headers of a request", "/", {"headers": {"openai-beta": KEY}}),
            ("address of a request", f"/v1/{KEY}", {}),
            ("address of a request", f"/v1?a={KEY}", {}),
        ],
    )
    def test_a_request_with_a_key_is_refused_before_it_is_sent(
        self, play: Play, path: Path, place: str, target: str, fields: dict[str, Any]
    ) -> None:
        with Server({"*": count}) as server, play(Tape(path)) as client:
            with pytest.raises(SecretFoundError, match=place) as caught:
                client.open(server.url + target, **fields)
            assert KEY not in str(caught.value)
            assert server.requests == []
            assert not path.exists()

    def test_a_response_with_a_key_is_not_recorded(self, play: Play, path: Path) -> None:
        async def leak(exchange: Exchange) -> None:
            await exchange.start()
            await exchange.chunk(b"your key: " + KEY[:10].encode())  # in two parts
            await exchange.wait_for("on")
            await exchange.chunk(KEY[10:].encode())
            await exchange.end()

        with Server({"*": leak}) as server, play(Tape(path)) as client:
            reply = client.open(server.url)
            reply.piece()
            server.open_gate("on")
            with pytest.raises(SecretFoundError, match="body of a reply"):
                reply.read()
            assert not path.exists()

    def test_given_secrets_are_found_in_any_form(self, play: Play, path: Path) -> None:
        secret = 'hunter"2 é&/päss'
        forms = {
            "as it is": secret,
            "in json": json.dumps({"a": secret}),
            "in a url": "?a=hunter%222%20%C3%A9%26%2Fp%C3%A4ss",
            "in a login": base64.b64encode(f"someone:{secret}".encode()).decode(),
            "in a login of another length": base64.b64encode(f"someone1:{secret}".encode()).decode(),
            "in another login": base64.b64encode(f"someone22:{secret}".encode()).decode(),
        }
        with Server({"*": count}) as server, play(Tape(path, secrets=[secret])) as client:
            for form in forms.values():
                with pytest.raises(SecretFoundError, match="one of the given secrets"):
                    client.open(server.url, body=form.encode())
            client.open(server.url, body=b"harmless").read()

    SIGNS = (
        KEY,
        "AIza" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z",
        "Authorization: Bearer abcdefghijklmnop",
        "Basic dXNlcjpwYXNzd29yZA==",
        *("gsk_" + "a1" * 15, "ghp_" + "a1" * 18, "AKIAIOSFODNN7EXAMPLE", "ya29.a0AfH6SMBx-abcdefghijk"),
        "-----BEGIN RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        '{"api_key": "f3Kq9Zx81LmPw0RtYv5B"}',
        '{\\"apiKey\\": \\"f3Kq9Zx81LmPw0RtYv5B\\"}',
        *("token=f3Kq9Zx81LmPw0RtYv5B", "password: f3Kq9Zx81LmPw0RtYv5B", "postgres://user:hunter2@db.internal/x"),
    )
    HARMLESS = (
        '{"max_tokens": 4096, "token": "hello"}',
        '{"total_tokens": 12345678901234567890123}',
        '{"secret": "the_quick_brown_fox_jumps"}',
        *("sk-short", "task-force-is-a-harmless-word-with-hyphens", "a bearer of bad news"),
        *("Basic instructions follow", "basic authentication"),
        '{"id": "chatcmpl-9x8Fh2kLmPqRsTuVwXyZ", "call_id": "call_abcDEF123456789ghiJKL"}',
        '{"signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"}',
        '{"encrypted_content": "gAAAAABo1234567890abcdefghijklmnopqrstuvwxyz"}',
        *("https://example.test/a:b@c", "mailto:someone@example.test"),
    )

    def test_signs_of_a_key_and_harmless_texts(self) -> None:
        for text in self.SIGNS:
            with pytest.raises(SecretFoundError):
                noted(text)
        for text in self.HARMLESS:
            noted(text, "another secret")

    @given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
    def test_no_given_secret_passes(self, secret: str, before: str, after: str) -> None:
        for text in (f"{before}{secret}{after}", json.dumps({"a": f"{before}{secret}{after}"})):
            with pytest.raises(SecretFoundError):
                noted(text, secret)


class TestFixture:
    TEST = """
        from dragoman._stepping import step
        from dragoman.transport.protocol import HttpRequest
        from dragoman.transport.socket_transport import SocketTransport

        def test_it(dragoman_tape):
            transport = dragoman_tape.transport(SocketTransport)
            assert step(step(transport.open(HttpRequest(url="{url}"))).read()) == b"1"
            step(transport.aclose())

        def test_secrets_of_the_environment(dragoman_tape):
            import pytest
            from dragoman.transport.tape import SecretFoundError
            with pytest.raises(SecretFoundError):
                step(dragoman_tape.transport(SocketTransport).open(HttpRequest(url="{url}", body=b"correct horse")))
    """

    def test_first_it_records_then_it_replays(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.setenv("SOME_API_KEY", "correct horse")
        options = ("-p", "dragoman.transport.pytest_plugin", "-p", "no:cacheprovider")
        with Server({"*": count}) as server:
            pytester.makepyfile(self.TEST.format(url=server.url))
            pytester.runpytest_inprocess(*options).assert_outcomes(passed=2)
            assert len(server.requests) == 1
        [tape] = pytester.path.glob("tapes/*/*.jsonl")
        assert tape.stem == "test_it"
        # The server is gone.
        only = ("-k", "test_it")
        monkeypatch.setenv("CI", "1")
        pytester.runpytest_inprocess(*options, *only).assert_outcomes(passed=1)
        pytester.runpytest_inprocess(*options, *only, "--dragoman-tape=record").assert_outcomes(failed=1)
        tape.unlink()
        pytester.runpytest_inprocess(*options, *only).assert_outcomes(errors=1)
