"""Generated keys: cached, renewed in time with one call for all, and again if a provider refuses one."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from dragoman._stepping import step
from dragoman._stop import Stop, stopping
from dragoman.engines import AwsKeys, Credential, Secret, Token, engine
from dragoman.engines.factory import connection
from dragoman.errors import AuthenticationError, ConfigurationError, StoppedError
from dragoman.simulator import Request, Simulator, Status
from tests.chat.talking import AsyncTalk, PlainTalk
from tests.engines.talking import ASKED, ONCE, Talk, every_way

MODEL = "anthropic:claude-sonnet-4-5"


class Maker:
    """Generates the keys `key-1`, `key-2` …, which are valid for `life` seconds of a fake clock."""

    def __init__(self, life: float | None = None) -> None:
        self.now = 1000.0
        self.life = life
        self.count = 0

    def __call__(self) -> Token:
        self.count += 1
        return Token(f"key-{self.count}", None if self.life is None else self.now + self.life)

    def credential(self) -> Credential:
        return Credential(self, clock=lambda: self.now)


@dataclass
class WithoutHash:
    """Generates keys, and has no hash."""

    def __call__(self) -> str:
        return "key"


def value_of(credential: Credential) -> str:
    made = step(credential.made(blocking=True))
    assert isinstance(made, Token)
    assert isinstance(made.value, Secret)
    return made.value.reveal()


@pytest.mark.parametrize(("life", "renewed_after"), [(3600.0, 3300.0), (100.0, 80.0)])
def test_a_key_is_cached_and_renewed_before_it_expires(life: float, renewed_after: float) -> None:
    maker = Maker(life)
    credential = maker.credential()
    assert [value_of(credential), value_of(credential)] == ["key-1", "key-1"]
    maker.now += renewed_after - 1
    assert value_of(credential) == "key-1"
    maker.now += 1
    assert value_of(credential) == "key-2"
    assert maker.count == 2


def test_two_credentials_never_share_a_place() -> None:
    """Breakers and lines outlive engines, and a freed object leaves its address to the next."""

    def place() -> tuple[object, ...]:
        return connection(MODEL, key=Maker()).place

    assert len({place() for _ in range(50)}) == 50
    maker = Maker()
    assert connection(MODEL, key=maker).place == connection(MODEL, key=maker).place
    assert Credential(maker) != Credential(maker, hosts=["one.test"])
    assert len({connection(MODEL, key=WithoutHash()).place for _ in range(2)}) == 1


def test_a_key_without_expiry_is_cached_until_it_is_refused() -> None:
    maker = Maker()
    credential = maker.credential()
    made = step(credential.made(blocking=True))
    maker.now += 1e9
    assert value_of(credential) == "key-1"
    credential.discard(made)
    assert value_of(credential) == "key-2"
    credential.discard(made)  # it was replaced already
    assert value_of(credential) == "key-2"


def test_the_old_key_is_used_while_it_is_valid_if_a_renewal_fails(caplog: pytest.LogCaptureFixture) -> None:
    maker, broken = Maker(3600.0), False

    def source() -> Token:
        if broken:
            raise OSError("no route")
        return maker()

    credential = Credential(source, clock=lambda: maker.now)
    assert value_of(credential) == "key-1"
    broken = True
    maker.now += 3400
    assert value_of(credential) == "key-1"
    assert "could not be renewed" in caplog.text
    maker.now += 300
    with pytest.raises(AuthenticationError, match="could not be generated: OSError: no route"):
        value_of(credential)
    broken = False
    assert value_of(credential) == "key-2"


@pytest.mark.parametrize("given", [None, "", 3, b"key"])
def test_invalid_keys_are_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="function that returns the key returned"):
        value_of(Credential(lambda: given))


def test_generated_keys_are_not_printed() -> None:
    shown = [repr(one) for one in (Token("secret-1"), AwsKeys("id", "secret-2"), Credential(lambda: "secret-3"))]
    assert not [text for text in shown if "secret" in text.replace("Secret", "")]


# --- one renewal ------------------------------------------------------------------------------------------------------


def test_threads_share_one_renewal() -> None:
    begun, go_on, made = threading.Event(), threading.Event(), list[str]()
    count = 0

    def source() -> str:
        nonlocal count
        count += 1
        begun.set()
        assert go_on.wait(20)
        return f"key-{count}"

    credential = Credential(source)
    threads = [threading.Thread(target=lambda: made.append(value_of(credential))) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert (made, count) == (["key-1"] * 20, 1)


def test_tasks_share_one_renewal_and_can_be_cancelled() -> None:
    count = 0

    async def source() -> str:
        nonlocal count
        count += 1
        if count == 1:
            await asyncio.sleep(20)
        await asyncio.sleep(0.01)
        return f"key-{count}"

    async def main() -> None:
        credential = Credential(source)
        first = asyncio.create_task(credential.made(blocking=False))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(credential.made(blocking=False)) for _ in range(20)]
        await asyncio.sleep(0.01)
        others[3].cancel()
        first.cancel()  # another task renews the key instead
        found = await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 20)
        assert isinstance(found[3], asyncio.CancelledError)
        tokens = {one.value.reveal() for one in found if isinstance(one, Token) and isinstance(one.value, Secret)}
        assert (tokens, count) == ({"key-2"}, 2)

    asyncio.run(main())


def test_an_error_reaches_every_waiting_task() -> None:
    async def source() -> str:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    async def main() -> None:
        credential = Credential(source)
        found = await asyncio.gather(*[credential.made(blocking=False) for _ in range(5)], return_exceptions=True)
        assert [type(one) for one in found] == [AuthenticationError] * 5

    asyncio.run(main())


def test_a_waiting_sync_call_can_be_stopped() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def source() -> str:
        begun.set()
        assert go_on.wait(20)
        return "key"

    credential = Credential(source)
    maker = threading.Thread(target=lambda: value_of(credential))
    maker.start()
    assert begun.wait(20)
    stop = Stop()
    threading.Timer(0.05, stop.cancel).start()
    with stopping(stop), pytest.raises(StoppedError):
        value_of(credential)
    go_on.set()
    maker.join(20)
    assert value_of(credential) == "key"


# --- through engines and clients --------------------------------------------------------------------------------------


@every_way
def test_a_refused_key_is_renewed_once(way: Talk) -> None:
    maker = Maker()
    with Simulator(["Hello."], api_key="key-2") as simulator:
        outcome = way(simulator, MODEL, key=maker)  # by a policy of one attempt: the provider has not failed
        assert [request.api_key for request in simulator.requests] == ["key-1", "key-2"]
    assert outcome.error is None
    assert outcome.reply is not None
    assert [(one.number, one.status) for one in outcome.reply.attempts] == [(1, 401), (2, 200)]
    maker.count = 10
    with Simulator(["Hello."], api_key="key-2") as simulator:
        outcome = way(simulator, MODEL, key=maker)
        assert [request.api_key for request in simulator.requests] == ["key-11", "key-12"]
    assert type(outcome.error) is AuthenticationError
    assert "key-12" not in str(outcome.error)


@every_way
def test_an_exception_of_the_function_is_an_error_of_the_call(way: Talk) -> None:
    def source() -> str:
        raise RuntimeError("the vault is closed")

    with Simulator() as simulator:
        outcome = way(simulator, MODEL, key=source)
        assert simulator.requests == ()
    assert type(outcome.error) is AuthenticationError
    assert "the vault is closed" in str(outcome.error)
    assert outcome.error.provider == "anthropic"


@every_way
def test_async_functions_need_an_async_program(way: Talk) -> None:
    async def source() -> str:
        await asyncio.sleep(0)
        return "key"

    with Simulator(api_key="key") as simulator:
        outcome = way(simulator, MODEL, key=source)
    if outcome.error is not None:
        assert type(outcome.error) is ConfigurationError
        assert "AsyncChatClient" in str(outcome.error)
    else:
        assert "async" in way.__name__ or outcome.reply is not None


class Rotating:
    """A provider whose keys are valid for three requests, and the function that generates them."""

    def __init__(self) -> None:
        self.good = ""
        self.made = 0
        self.lock = threading.Lock()

    def make(self) -> Token:
        with self.lock:
            self.made += 1
            self.good = f"key-{self.made}"
            return Token(self.good, time.time() + 3600)

    def answer(self, request: Request) -> Any:
        if request.api_key != self.good:
            return Status(401)
        if len(request.user_texts) % 3 == 0:
            self.good = "another"  # this one is answered, and the next is refused
        return f"Answer {len(request.user_texts)}"


@pytest.mark.parametrize("kind", [PlainTalk, AsyncTalk])
def test_keys_are_renewed_between_turns_without_a_lost_request(kind: Any) -> None:
    rotating = Rotating()
    with Simulator(rotating.answer) as simulator:
        options = {"key": rotating.make, "base_url": simulator.base_url("anthropic"), "retry": ONCE}
        talk, answers = kind(MODEL, streamed=False, **options), list[str]()
        for number in range(10):
            talk.streamed = bool(number % 2)
            answers.append(talk.chat(f"Question {number}").text)
        talk.close()
        assert answers == [f"Answer {number}" for number in range(1, 11)]
        assert simulator.errors == ()
        assert len(simulator.requests) == 10 + rotating.made - 1
    assert rotating.made == 4


def test_a_fixed_key_is_not_renewed() -> None:
    with Simulator(api_key="right") as simulator:
        base_url = simulator.base_url("anthropic")
        with engine(MODEL, key="wrong", base_url=base_url) as talker, pytest.raises(AuthenticationError):
            talker.run_inference(ASKED)
        assert len(simulator.requests) == 1
