"""The server: start, many clients at once, close without leaks."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading

import pytest

from dragoman.simulator import Reply, Request, Simulator, Stall
from tests.simulator.raw_client import DIALECTS, ask, body_of, parse, path_of, read_to_end, request_bytes, said, send

BODY = body_of("openai_chat")
PATH = path_of("openai_chat", stream=False)


def connect(simulator: Simulator) -> socket.socket:
    return socket.create_connection(("127.0.0.1", simulator.port), timeout=20)


def loops() -> set[threading.Thread]:
    """The threads with a loop; one that another test has left may be among them until it is collected."""
    return {thread for thread in threading.enumerate() if thread.name == "dragoman-loop"}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208


def test_no_thread_and_no_descriptor_is_left_open() -> None:
    with Simulator():  # whatever asyncio opens once and for all
        pass
    before, others = open_files(), loops()
    for _ in range(5):
        with Simulator(lambda request: Reply("Hello", faults=[Stall()])) as simulator:
            assert len(loops() - others) == 1
            clients = [connect(simulator) for _ in range(3)]
            clients[0].sendall(request_bytes(PATH, BODY))
            clients[1].sendall(b"POST / HTTP/1.1\r\nhalf a reque")
            assert simulator.wait_for_requests(1)
        assert loops() <= others
        assert simulator.open_connections == 0
        for client in clients:
            client.close()
    assert open_files() == before


def test_new_connections_are_closed_too() -> None:
    for _ in range(50):
        with Simulator() as simulator:
            clients = [socket.create_connection(("127.0.0.1", simulator.port)) for _ in range(3)]
        assert not simulator.open_connections
        for client in clients:
            client.close()
    gc.collect()  # a warning of an open socket fails the test


def test_close_twice_and_start_again() -> None:
    simulator = Simulator(["one", "two"])
    simulator.close()
    simulator.start()
    with pytest.raises(RuntimeError, match="running already"):
        simulator.start()
    port = simulator.port
    assert ask(simulator, "anthropic").status == 200
    simulator.close()
    simulator.close()
    with simulator:
        assert simulator.port == port
        assert ask(simulator, "anthropic").status == 200


def test_blocking_script_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def script(request: Request) -> str:
        release.wait()
        return "late"

    simulator = Simulator(script).start()
    with connect(simulator) as client:
        client.sendall(request_bytes(PATH, BODY))
        assert simulator.wait_for_requests(1)
        monkeypatch.setattr("dragoman.simulator.server._CLOSE_SECONDS", 0.01)
        with pytest.raises(RuntimeError, match="script's function blocks"):
            simulator.close()
        monkeypatch.undo()
        release.set()
        simulator.close()


def test_small_writes_are_not_delayed() -> None:
    """Without TCP_NODELAY every second write waits for the client's system, which takes its time: 40 ms."""
    with Simulator() as simulator, connect(simulator) as sock:
        sock.sendall(request_bytes(PATH, BODY, headers={"connection": "keep-alive"}))
        assert read_one(sock)
        (connection,) = simulator._connections
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_base_urls() -> None:
    with Simulator() as simulator:
        url = simulator.url
        assert simulator.base_url("openai") == f"{url}/v1"
        assert simulator.base_url("openai_responses") == f"{url}/v1"
        assert simulator.base_url("openai-compatible") == f"{url}/v1"
        assert simulator.base_url("anthropic") == simulator.base_url("claude") == simulator.base_url("gemini") == url
        assert simulator.base_url("groq") == f"{url}/openai/v1"
        for provider in ("groq", "fireworks", "zai", "ollama"):
            path = simulator.base_url(provider).removeprefix(url)
            assert send(simulator, f"{path}/chat/completions", BODY).status == 200
        with pytest.raises(ValueError, match="no provider or dialect 'nobody'"):
            simulator.base_url("nobody")


# --- connections -----------------------------------------------------------------------------------------------------


def read_one(sock: socket.socket) -> bytes:
    """One response with a content length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += sock.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += sock.recv(65536)
    return body


def test_connection_is_reused_and_requests_may_be_pipelined() -> None:
    bodies = [body_of("openai_chat", f"question {number}") for number in range(3)]
    with Simulator() as simulator:
        with connect(simulator) as sock:
            sock.sendall(request_bytes(PATH, bodies[0], headers={"connection": "keep-alive"}))
            assert b"question 0" in read_one(sock)
            assert simulator.open_connections == 1
            sock.sendall(request_bytes(PATH, bodies[1], headers={"connection": None}) + request_bytes(PATH, bodies[2]))
            received, _ = read_to_end(sock)
            assert received.index(b"question 1") < received.index(b"question 2")
        assert simulator.wait_until_idle()
        assert len(simulator.requests) == 3


def test_chunked_request_after_100_continue() -> None:
    with Simulator() as simulator, connect(simulator) as sock:
        headers = {"transfer-encoding": "chunked", "content-length": None, "expect": "100-continue"}
        sock.sendall(request_bytes(PATH, None, headers=headers))
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        body = b'{"model":"m","messages":[{"role":"user","content":"in chunks"}]}'
        for start in range(0, len(body), 10):
            sock.sendall(b"%x\r\n%b\r\n" % (len(body[start : start + 10]), body[start : start + 10]))
        sock.sendall(b"0\r\n\r\n")
        assert "in chunks" in said("openai_chat", parse(*read_to_end(sock)), stream=False).text


NO_CHUNK = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"


@pytest.mark.parametrize("data", [b"nonsense\r\n\r\n", NO_CHUNK])
def test_invalid_http_is_refused(data: bytes) -> None:
    with Simulator() as simulator:
        with connect(simulator) as sock:
            sock.sendall(data)
            assert parse(*read_to_end(sock)).status == 400
        assert simulator.requests == ()
        assert simulator.wait_until_idle()


def test_client_may_disconnect_in_mid_stream() -> None:
    endless = Reply("text " * 2_000_000, delta=100_000)
    with Simulator(lambda request: endless) as simulator:
        for _ in range(3):
            with connect(simulator) as sock:
                sock.sendall(request_bytes(path_of("openai_chat", stream=True), body_of("openai_chat", stream=True)))
                assert sock.recv(1000)
        assert simulator.wait_until_idle(timeout=20)
        assert simulator.errors == ()


def test_slow_client_gets_everything() -> None:
    """The server waits for it, and does not buffer the whole reply."""
    text = "text " * 1_000_000
    with Simulator([Reply(text, delta=10_000)]) as simulator, connect(simulator) as sock:
        sock.sendall(request_bytes(path_of("openai_chat", stream=True), body_of("openai_chat", stream=True)))
        assert simulator.wait_for_requests(1)
        assert ask(simulator, "openai_chat").status == 500  # others are served while it does not read
        assert said("openai_chat", parse(*read_to_end(sock)), stream=True).text == text


# --- many at once ----------------------------------------------------------------------------------------------------


def test_many_clients_at_once() -> None:
    """All connections are open at once, in all dialects, and each client gets its own reply."""
    count = 240
    everybody = asyncio.Event()
    waiting = 0

    async def script(request: Request) -> Reply:
        nonlocal waiting
        waiting += 1
        if waiting == count:
            everybody.set()
        await everybody.wait()
        return Reply(f"For {request.last_user_text}: " + "word " * 20)

    async def client(number: int) -> None:
        dialect = DIALECTS[number % 4]
        reader, writer = await asyncio.open_connection("127.0.0.1", simulator.port)
        body = body_of(dialect, f"client {number}", stream=True)
        writer.write(request_bytes(path_of(dialect, stream=True), body))
        answer = parse(await reader.read(), "close")
        writer.close()
        await writer.wait_closed()
        assert said(dialect, answer, stream=True).text.startswith(f"For client {number}: word")

    async def run() -> None:
        await asyncio.gather(*(client(number) for number in range(count)))

    with Simulator(script) as simulator:
        asyncio.run(run())
        assert simulator.wait_until_idle()
        assert len(simulator.requests) == count
        assert sorted(request.number for request in simulator.requests) == list(range(count))
        assert not simulator.errors
