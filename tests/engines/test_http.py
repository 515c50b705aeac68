"""What is sent for a call: address, headers and key."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message
from dragoman.engines import AsyncHttpEngine, Connection, HttpEngine, engine
from dragoman.engines.factory import connection
from dragoman.errors import ConfigurationError
from dragoman.providers import ModelOptions
from dragoman.simulator import Simulator
from dragoman.transport import AsyncioTransport, HttpRequest, Response, SocketTransport, Transport

ASKED = Conversation("Be brief.").plus(Message.user("Hi"))


class Keeper(Transport):
    """Keeps the request that it is given, and sends nothing."""

    async def open(self, request: HttpRequest) -> Response:
        self.request = request
        raise ConfigurationError("kept")

    async def aclose(self) -> None:
        pass


def request_of(connection: Connection, options: ModelOptions | None = None, *, stream: bool = False) -> HttpRequest:
    keeper = Keeper()
    talker = HttpEngine(connection, keeper)
    with pytest.raises(ConfigurationError, match="kept"):
        list(talker.stream(ASKED, options=options)) if stream else talker.reply(ASKED, options=options)
    return keeper.request


def test_what_is_accepted_depends_on_what_is_wanted() -> None:
    there = connection("openai:gpt-4o", key="k")
    assert request_of(there).headers["accept"] == "application/json"
    assert request_of(there, stream=True).headers["accept"] == "text/event-stream"
    assert request_of(there) == request_of(there)


def test_other_headers_are_never_mixed_up() -> None:
    own = {"x-team": "a"}
    there = connection("anthropic:claude-sonnet-4-5", key="k", headers=own, options=ModelOptions(max_tokens=9))
    assert request_of(there).headers["x-team"] == "a"
    further = ModelOptions(max_tokens=9, extra_headers={"x-trace": "1", "X-Api-Key": "not this one"})
    assert request_of(there, further).headers["x-trace"] == "1"
    assert request_of(there, further).headers["x-api-key"] == "k"
    assert "x-trace" not in request_of(there).headers


def test_other_models_have_other_addresses() -> None:
    there = connection("gemini:gemini-2.5-flash", key="k", base_url="https://proxy.test/g?team=a")
    assert request_of(there).url == "https://proxy.test/g/v1beta/models/gemini-2.5-flash:generateContent?team=a"
    assert request_of(there, stream=True).url.endswith(":streamGenerateContent?alt=sse&team=a")
    assert request_of(there).url.endswith(":generateContent?team=a")


@pytest.mark.parametrize(
    ("make", "transport", "fitting"),
    [(HttpEngine, AsyncioTransport, "SocketTransport"), (AsyncHttpEngine, SocketTransport, "AsyncioTransport")],
)
def test_a_transport_of_the_other_colour_is_refused(make: Any, transport: Any, fitting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot use {transport.__name__}.*{fitting}"):
        make(connection("openai:gpt-4o", key="k"), transport())


def test_a_turn_leaves_nothing_to_the_collector() -> None:
    """Values that refer to each other are only freed when the collector runs, which costs more than the turn."""
    with (
        Simulator(lambda request: "Hello") as simulator,
        engine("openai:gpt-4o", base_url=f"{simulator.url}/v1", key="k") as model,
    ):
        for _ in range(3):
            model.run_inference(ASKED)
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                model.run_inference(ASKED)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            ours = [value for value in gc.garbage if type(value).__module__.startswith("dragoman.")]
            assert [value for value in ours if "simulator" not in type(value).__module__] == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
