"""The first errors that everybody meets say what happened and the shortest way out."""

from __future__ import annotations

import socket

import pytest

from dragoman import Conversation, Message, engine, errors
from dragoman.simulator import Fault, Simulator, Status
from dragoman.simulator.plan import Plan
from dragoman.transport import RetryPolicy, Timeouts

ASKED = Conversation().plus(Message.user("Hello"))
ONCE = RetryPolicy(max_attempts=1)
QUICK = Timeouts(connect=0.5, read=5.0, total=10.0)

MODELS = {
    "openai": ("openai:gpt-4o", "OPENAI_API_KEY"),
    "openai-responses": ("openai-responses:gpt-5-mini", "OPENAI_API_KEY"),
    "anthropic": ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
    "gemini": ("gemini:gemini-2.5-flash", "GEMINI_API_KEY or GOOGLE_API_KEY"),
}

UNKNOWN_MODEL = {
    "openai": b'{"error": {"message": "The model `gpt-4oo` does not exist", "code": "model_not_found"}}',
    "openai-responses": b'{"error": {"message": "The model `gpt-4oo` does not exist", "code": "model_not_found"}}',
    "anthropic": b'{"type": "error", "error": {"type": "not_found_error", "message": "model: gpt-4oo"}}',
    "gemini": b'{"error": {"code": 404, "message": "models/gpt-4oo is not found", "status": "NOT_FOUND"}}',
}


class Body(Fault, frozen=True):
    """A reply of this status and with these bytes."""

    status: int = 404
    body: bytes = b""

    def apply(self, plan: Plan) -> None:
        plan.status, plan.replaced, plan.streamed = self.status, self.body, False


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def dead_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ask(model: str, **options: object) -> errors.DragomanError:
    """The error that somebody gets who asks this model."""
    with (
        pytest.raises(errors.DragomanError) as caught,
        engine(model, retry=ONCE, timeouts=QUICK, **options) as asked,  # type: ignore[arg-type]
    ):
        asked.reply(ASKED)
    return caught.value


@pytest.mark.parametrize("provider", MODELS)
def test_wrong_key(provider: str) -> None:
    model, variable = MODELS[provider]
    with Simulator([Status(401)]) as simulator:
        error = ask(model, key="sk-wrong-0123456789", base_url=simulator.base_url(provider))
    assert isinstance(error, errors.AuthenticationError)
    assert error.message.startswith(f"{model} refused the request (401): ")
    assert variable in error.hint
    assert f"right one for {provider}" in error.hint
    assert "sk-wrong" not in str(error)


@pytest.mark.parametrize("provider", MODELS)
def test_wrong_model_name(provider: str) -> None:
    with Simulator([Body(404, UNKNOWN_MODEL[provider])]) as simulator:
        error = ask(f"{provider}:gpt-4oo", key="any", base_url=simulator.base_url(provider))
    assert isinstance(error, errors.ModelNotFoundError)
    assert f"{provider}:gpt-4oo refused the request (404)" in error.message
    assert f"spelling of 'gpt-4oo' against the list of {provider}'s models" in error.hint


def test_server_down(dead_port: int) -> None:
    error = ask("ollama:qwen3", base_url=f"http://127.0.0.1:{dead_port}/v1")
    assert isinstance(error, errors.ConnectionFailedError)
    assert error.message == "Nothing answers at 127.0.0.1: the connection was refused."
    assert "Start the server on this machine (Ollama: `ollama serve`)" in error.hint
    assert "port in the base URL" in error.hint


def test_proxy_wrong_or_no_address(dead_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[errors.DragomanError] = []
    for address in (f"http://me:hunter2@127.0.0.1:{dead_port}", "ftp://proxy"):
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, address)
        found.append(ask("openai:gpt-4o", key="any"))
    dead, odd = found
    assert isinstance(dead, errors.ConnectionFailedError)
    assert "The proxy on the way to api.openai.com could not be used" in dead.message
    assert "HTTPS_PROXY" in dead.hint
    assert "NO_PROXY" in dead.hint
    assert "hunter2" not in str(dead)
    assert isinstance(odd, errors.ConfigurationError)
    assert "proxy" in odd.message
    assert "http://host:port" in odd.hint


@pytest.mark.parametrize("body", [b"<html>Not Found</html>", b'{"detail": "Not Found"}', b""])
def test_base_url_with_a_wrong_path(body: bytes) -> None:
    with Simulator([Body(404, body)]) as simulator:
        error = ask("openai-compatible:m", base_url=simulator.base_url("openai").removesuffix("/v1"))
    assert isinstance(error, errors.InvalidRequestError)
    assert "(404)" in error.message
    assert "path of the base URL" in error.hint
    assert "/v1" in error.hint


def test_base_url_with_https_for_a_plain_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        error = ask("ollama:qwen3", base_url=f"https://127.0.0.1:{server.getsockname()[1]}/v1")
    assert "write http:// in the base URL" in error.hint
