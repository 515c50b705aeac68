"""Chains of models: which one answers, which failures fall back, and what is never done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dragoman import ChatClient, Conversation, Message, ModelOptions, Orchestrator, ToolCall
from dragoman.conversation import Failed, ReplyStarted, TextDelta, TextStarted, Thinking, fold
from dragoman.engines import (
    AsyncFallbackEngine,
    AsyncScriptedEngine,
    Fallback,
    FallbackEngine,
    ReplyCall,
    ScriptedEngine,
    async_engine,
    engine,
    fallback,
)
from dragoman.engines.health import Health
from dragoman.errors import (
    ConfigurationError,
    ContentFilteredError,
    ContextTooLongError,
    InvalidRequestError,
    LossyConversionError,
    MissingKeyError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from dragoman.simulator import FAULTS, Reply, Request, Simulator, Status
from dragoman.transport import RetryPolicy, Timeouts
from tests.chat.talking import WAYS, PlainTalk
from tests.engines.talking import ASKED, Outcome, ask_on_loop, ask_plain, close_both

TEXT = "Here is the wéather you asked for, in some detail. "
CALL = ToolCall("call_1", "weather", '{"city": "Paris", "days": 3}')
MODELS = ("anthropic:claude-sonnet-4-5", "openai:gpt-4o", "gemini:gemini-2.5-flash")
DIALECTS = ("anthropic", "openai_chat", "gemini")
BUDGET = 4
_numbers = count()

COLOURS: dict[str, tuple[Callable[..., Any], Callable[..., Outcome]]] = {
    "plain": (engine, ask_plain),
    "async": (async_engine, ask_on_loop),
}
every_colour = pytest.mark.parametrize("colour", COLOURS.values(), ids=COLOURS.keys())
every_script = pytest.mark.parametrize(
    ("scripted", "make", "ask"),
    [(ScriptedEngine, engine, ask_plain), (AsyncScriptedEngine, async_engine, ask_on_loop)],
    ids=["plain", "async"],
)


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(longest_pause=10.0) as simulator:
        yield simulator


def _make(make: Callable[..., Any], simulator: Simulator, *, silent: int | None = None, **policy: Any) -> Any:
    """A chain of three models at the simulator, without any history of failures."""
    key = f"test-key-{next(_numbers)}"
    engines = [
        make(
            model,
            key=key,
            base_url=simulator.base_url(model.partition(":")[0]),
            retry=RetryPolicy(max_attempts=1 if at == silent else 2, first_wait=0.0, longest_advice=0.5),
            timeouts=Timeouts(read=0.2 if at == silent else 30.0),
        )
        for at, model in enumerate(MODELS)
    ]
    kind: Any = FallbackEngine if make is engine else AsyncFallbackEngine
    return kind(engines, Fallback(**policy), owned=engines)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@every_colour
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_at_every_place_gives_one_answer_or_one_error(
    fault: str, colour: tuple[Any, Any], stream: bool, simulator: Simulator
) -> None:
    make, ask = colour
    effect = FAULTS[fault].effect(streamed=stream)
    for place in range(len(MODELS)):

        def answer(request: Request, place: int = place) -> Reply | Status:
            at = DIALECTS.index(request.dialect or "")
            return Status(503) if at < place else _faulty(fault) if at == place else Reply(f"{at} answers.")

        simulator.play(answer)
        before = len(simulator.requests)
        chain = _make(make, simulator, silent=place if effect == "silence" else None, attempts=BUDGET)
        outcome = ask(lambda chain=chain: chain, ASKED, stream=stream)
        asked = [DIALECTS.index(request.dialect or "") for request in simulator.requests[before:]]
        _judge(outcome, place, asked, effect, stream=stream)


def _faulty(fault: str) -> Reply:
    return Reply(TEXT, CALL, faults=[FAULTS[fault]])


def _judge(outcome: Outcome, place: int, asked: list[int], effect: str, *, stream: bool) -> None:
    assert asked == sorted(asked), "a model was asked again after another one"
    assert len(asked) <= BUDGET, "more attempts than the budget"
    started = sum(isinstance(event, ReplyStarted) for event in outcome.events)
    if outcome.error is None:
        assert outcome.reply is not None
        attempts, message = outcome.reply.attempts, outcome.reply.message
        answered = DIALECTS.index({"openai": "openai_chat"}.get(message.provider or "", message.provider or ""))
        assert answered == asked[-1]
        assert MODELS[answered] == attempts[-1].model
        assert not message.interrupted
        if answered == place:
            assert effect in ("none", "unclear")
            if effect == "none":
                assert message.text == TEXT
                assert [call.name for call in message.tool_calls] == [CALL.name]
        else:
            assert answered == place + 1, "the next one answers"
            assert effect != "none"
            assert (message.text, message.tool_calls) == (f"{answered} answers.", ())
        assert not stream or started == 1
    else:
        attempts = outcome.error.attempts
        assert effect != "none"
        assert asked[-1] == place, "nobody else is asked after an error that ends the call"
        began = any(not isinstance(event, ReplyStarted | Failed) for event in outcome.events)
        ends = fallback.failure_of(outcome.error) not in Fallback().on
        assert place == len(MODELS) - 1 or began or ends
        assert not stream or isinstance(outcome.events[-1], Failed)
        assert place == 0 or MODELS[0] in outcome.error.hint, "the hint names every model"
    # The ledger has every attempt on every model.
    assert [MODELS.index(each.model) for each in attempts if each.number] == asked
    assert [each.number for each in attempts if each.number] == [number + 1 for number in range(len(asked))]
    if stream and outcome.reply is not None:
        told = "".join(event.text for event in outcome.events if isinstance(event, TextDelta))
        assert told == outcome.reply.message.text
        assert outcome.error is not None or fold(outcome.events) == outcome.reply.message


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, "cut_close"])
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_runs_once_whichever_model_answers(way: str, cut: str | None, simulator: Simulator) -> None:
    """The first model calls a tool and is then down, or breaks off in the middle of the call."""
    ran: list[str] = []

    def weather(city: str, days: int) -> str:
        ran.append(f"{city} {days}")
        return "sunny"

    def answer(request: Request) -> Reply | Status:
        if request.dialect == "anthropic":
            faults = [] if cut is None else [FAULTS[cut]]
            return Status(503) if ran else Reply(CALL, faults=faults)
        return Reply("Sunny.") if ran else Reply(CALL)

    simulator.play(answer)
    kind, streamed = WAYS[way]
    chain = _make(engine if kind is PlainTalk else async_engine, simulator)
    talk = kind(chain, [weather], streamed=streamed)
    if streamed and cut is not None:  # a part of the call was delivered: the turn fails, and nothing has run
        with pytest.raises(ProviderError):
            talk.chat("Weather?")
        assert ran == []
    else:
        assert talk.chat("Weather?").text == "Sunny."
        assert ran == ["Paris 3"]
    close_both(talk, chain)


# --- which failures fall back -----------------------------------------------------------------------------------------


def _error(kind: type[ProviderError], **fields: Any) -> ProviderError:
    return kind("No.", **fields)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@every_script
def test_which_failures_fall_back_can_be_changed(scripted: Any, make: Any, ask: Any, stream: bool) -> None:
    for error, policy, answers in (
        (_error(OverloadedError), Fallback(), True),
        (_error(ContentFilteredError), Fallback(), False),
        (_error(ContentFilteredError), Fallback(on=Fallback().on | {"content_filtered"}), True),
        (_error(OverloadedError), Fallback(on=frozenset({"rate_limit"})), False),
        (_error(InvalidRequestError), Fallback(), False),
    ):
        second = scripted(["Here."], name="b:two")
        made = make([scripted([error], name="a:one"), second], fallback=policy)
        outcome = ask(lambda made=made: made, ASKED, stream=stream)
        assert len(second.calls) == answers
        if answers:
            assert (outcome.error, outcome.reply.message.provider) == (None, "b")
            assert [(each.number, each.model) for each in outcome.reply.attempts] == [(1, "a:one"), (2, "b:two")]
        else:
            assert outcome.error is error


def test_a_conversation_that_is_too_long_goes_to_a_larger_window_only() -> None:
    def model(name: str, window: int | None, *replies: Any) -> ScriptedEngine:
        made = ScriptedEngine(replies, name=name)
        made.profile = made.profile.with_changes(context_window=window)
        return made

    small, smaller, unknown, large = (
        model("a:small", 100, _error(ContextTooLongError)),
        model("b:smaller", 100),
        model("c:unknown", None, _error(ContextTooLongError)),
        model("d:large", 200, "It fits."),
    )
    reply = engine([small, smaller, unknown, large]).reply(ASKED)
    assert reply.message.text == "It fits."
    passed = [(each.model, each.outcome) for each in reply.attempts if not each.number]
    assert passed == [("b:smaller", "skipped: its window of 100 tokens is no larger")]
    small, smaller = model("a:small", 100, _error(ContextTooLongError)), model("b:smaller", 50)
    with pytest.raises(ContextTooLongError, match="b:smaller was skipped"):
        engine([small, smaller]).reply(ASKED)


def test_an_unsupported_option_is_an_error_of_the_first_model_and_skips_a_later_one() -> None:
    claude = engine("anthropic:claude-sonnet-4-5", key="k")
    third = ScriptedEngine(["Here.", "Here."], name="c:three")
    with pytest.raises(ConfigurationError, match="seed"):
        engine([claude, third]).reply(ASKED, options=ModelOptions(seed=7))
    first = ScriptedEngine([_error(OverloadedError)], name="a:one")
    reply = engine([first, claude, third]).reply(ASKED, options=ModelOptions(seed=7))
    assert reply.message.provider == "c"
    assert "seed" in reply.attempts[1].outcome


def _thought_by(provider: str) -> Conversation:
    return Conversation().plus(
        Message.user("Hi"), Message.assistant(Thinking("Hm.", provider), "Ho."), Message.user("And?")
    )


def test_a_strict_model_that_would_lose_something_is_skipped() -> None:
    thought = _thought_by("openai")
    claude, gemini = [engine(model, key="k", strict=True) for model in (MODELS[0], MODELS[2])]
    assert claude.losses(thought)
    assert engine([claude, ScriptedEngine(["Yes."])]).reply(thought).message.text == "Yes."
    with pytest.raises(LossyConversionError):
        engine([claude, gemini]).reply(thought)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_in_a_chain(simulator: Simulator, stream: bool) -> None:
    strict = [engine(model, key="k", strict=True) for model in (MODELS[0], MODELS[2])]
    outer = engine([engine(strict), ScriptedEngine(["Yes."])])
    assert ask_plain(lambda: outer, _thought_by("openai"), stream=stream).reply.message.text == "Yes."  # type: ignore[union-attr]
    simulator.play(lambda _request: Status(503))
    with _make(engine, simulator) as inner, pytest.raises(OverloadedError) as caught:
        engine([inner, ScriptedEngine([])], fallback=Fallback(attempts=2, on=())).reply(ASKED)
    assert "of 2 attempts of all models made" in caught.value.attempts[0].outcome


def test_the_reply_has_the_losses_of_the_model_that_answered(simulator: Simulator) -> None:
    simulator.play(lambda request: Status(503) if request.dialect == "anthropic" else Reply("Yes."))
    with _make(engine, simulator) as chain:
        reply = chain.reply(_thought_by("anthropic"))
    assert [loss.what for loss in reply.losses] == ["thinking"]


# --- the budget -------------------------------------------------------------------------------------------------------


def test_the_budget_reserves_an_attempt_for_each_model(simulator: Simulator) -> None:
    simulator.play(lambda _request: Status(503))
    patient = RetryPolicy(max_attempts=10, first_wait=0.0)
    for attempts, shares in ((6, [4, 1, 1]), (2, [1, 1, 0]), (14, [10, 3, 1])):
        key = f"budget-{attempts}"
        engines = [
            engine(model, key=key, base_url=simulator.base_url(model.partition(":")[0]), retry=patient)
            for model in MODELS
        ]
        chain = FallbackEngine(engines, Fallback(attempts=attempts, failures=100), owned=engines)
        with chain, pytest.raises(OverloadedError) as caught:
            chain.reply(ASKED)
        made = [each.model for each in caught.value.attempts if each.number]
        assert [made.count(model) for model in MODELS] == shares
        assert attempts != 2 or "all 2 attempts are used up" in str(caught.value)


def test_no_long_wait_for_a_model_while_there_is_another(simulator: Simulator) -> None:
    busy = Status(429, headers={"retry-after": "30"})
    simulator.play(lambda request: busy if request.dialect == "anthropic" else Reply("Here."))
    key, base_url = "wait", simulator.base_url("anthropic")
    with engine(MODELS[0], key=key, base_url=base_url) as first:
        chain: Any = engine([first, ScriptedEngine(["Here.", "Here."], name="b:two")])
        reply = chain.reply(ASKED)
        assert [each.outcome for each in reply.attempts] == ["status 429; another model need not wait 30 s", "ok"]
        assert chain.health[0].state == "open", "until the time that the provider named"
        assert 0 < chain.health[0].open_for <= 30
        assert chain.reply(ASKED).attempts[0].outcome.startswith("skipped: its breaker is open for ")


# --- breakers and order -----------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_open_breaker_is_probed_once_a_period_and_shared_by_engines(simulator: Simulator) -> None:
    simulator.play(lambda request: Status(503) if request.dialect == "anthropic" else Reply("Here."))
    clock, key = Clock(), "shared-memory"

    def turn() -> list[str]:
        """A program that creates its engines for every turn."""
        before = len(simulator.requests)
        engines = [
            engine(
                model, key=key, base_url=simulator.base_url(model.partition(":")[0]), retry=RetryPolicy(first_wait=0)
            )
            for model in MODELS[:2]
        ]
        chain = FallbackEngine(engines, owned=engines, clock=clock)
        with chain:
            assert chain.reply(ASKED).message.text == "Here."
        return [request.dialect or "" for request in simulator.requests[before:]]

    down, well = "anthropic", "openai_chat"
    assert turn() == [down, down, down, well]
    assert [turn() for _ in range(3)] == [[well]] * 3
    for period in (10, 20, 40, 80, 160, 300, 300):
        clock.now += period - 0.1
        assert turn() == [well]
        clock.now += 0.2
        assert turn() == [down, well], "one probe, and no attempt after it"
    clock.now += 300
    simulator.play(lambda _request: Reply("Here."))
    assert [turn(), turn()] == [[down], [down]], "it is back"


@every_script
def test_if_all_breakers_are_open_the_one_that_closes_first_is_tried(scripted: Any, make: Any, ask: Any) -> None:
    del make
    kind = FallbackEngine if scripted is ScriptedEngine else AsyncFallbackEngine
    first = scripted([_error(OverloadedError, retry_after=60.0), "never"], name="a:one")
    second = scripted([_error(RateLimitError, retry_after=20.0), "Back."], name="b:two")
    chain = kind([first, second], clock=Clock())
    assert isinstance(ask(lambda: chain, ASKED, stream=False).error, RateLimitError)
    assert [each.open_for for each in chain.health] == [60.0, 20.0]
    outcome = ask(lambda: chain, ASKED, stream=True)
    assert outcome.reply.message.text == "Back."
    assert [each.state for each in chain.health] == ["open", "closed"]


def test_an_abandoned_probe_lets_the_next_call_try() -> None:
    clock = Clock()
    first = ScriptedEngine([_error(OverloadedError, retry_after=5.0), "Back again."], name="a:one", piece=3)
    chain = FallbackEngine([first, ScriptedEngine(["Here."] * 3, name="b:two")], clock=clock)
    assert chain.reply(ASKED).message.text == "Here."
    clock.now = 6.0
    probing = chain.call(ASKED, (), None, stream=True)
    with chain.stream(ASKED):
        pass  # no request was sent
    with chain.stream(ASKED) as stream:
        next(iter(stream))
    assert stream.message.provider == "a"
    assert chain.health[0].state == "closed", "it had begun to answer"
    del probing


def test_order_by_cost_and_by_latency() -> None:
    clock = Clock()

    def slow(seconds: float) -> Callable[..., str]:
        def answer(_call: object) -> str:
            clock.now += seconds
            return "Here."

        return answer

    engines = [ScriptedEngine([slow(each)] * 20, name=f"p:{each}") for each in (3, 1, 2)]
    chain = FallbackEngine(engines, Fallback(order="latency"), clock=clock)
    asked = [str(chain.reply(ASKED).message.model) for _ in range(5)]
    assert asked == ["3", "1", "2", "1", "1"], "models without a measurement come first"
    clock.now += 3600
    assert chain.reply(ASKED).message.model == "3", "an old measurement is forgotten"
    names = ["p:unknown", "anthropic:claude-opus-4-1", "openai:gpt-5-nano", "local:"]
    chain = FallbackEngine([ScriptedEngine([], name=name) for name in names], Fallback(order="cost"))
    assert [each.name for each in chain.in_order(stream=False)] == names[::-1]
    assert not chain.priced, "a cost limit could not be checked"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "answer", "fail", "drop", "wait", "advice"]), st.integers(0, 30))))
def test_the_breaker_behaves_like_a_simple_one(steps: list[tuple[str, int]]) -> None:
    """Any calls of any number of callers, compared with a breaker that is as simple as possible."""
    health, calls = Health(), list[str]()
    now, failures, opened, until = 0.0, 0, 0, None
    for what, number in steps:
        if what == "wait":
            now += number
        elif what == "begin":
            kind = health.begin(now)
            assert kind == ("normal" if until is None else "probe" if now >= until else None)
            if kind is not None:
                calls.append(kind)
            if kind == "probe":
                until = now + min(80.0, 10.0 * 2 ** (opened - 1))
        elif calls:
            probe = calls.pop(number % len(calls)) == "probe"
            if what == "answer":
                health.answered()
                failures, opened, until = 0, 0, None
            elif what == "drop":
                health.dropped(now, probe=probe)
                until = min(until, now) if probe and until is not None else until
            else:
                advice = float(number) if what == "advice" else None
                health.failed(now, Fallback(longest_open=80.0), probe=probe, advice=advice)
                if until is None or probe:
                    failures += 1
                    if probe or advice is not None or failures >= 3:
                        opened += 1
                        period = min(80.0, 10.0 * 2 ** (opened - 1))
                        until = now + (period if advice is None else min(advice, 80.0))
        view = health.view("m", now)
        assert view.open_for == pytest.approx(0.0 if until is None else max(0.0, until - now))
        assert (view.state == "closed") == (until is None)
        assert view.failures == failures
        assert view.open_for <= 80.0


# --- from names -------------------------------------------------------------------------------------------------------


def test_a_list_of_models_wherever_a_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{provider}_API_KEY", "k")
    names = list(MODELS[:2])
    chain = engine(names, retry=RetryPolicy(max_attempts=1), fallback=Fallback(attempts=2))
    assert isinstance(chain, FallbackEngine)
    assert (chain.name, chain.profile.provider) == (names[0], "anthropic")
    assert chain.fallback.attempts == 2
    assert [each.connection.retry.max_attempts for each in chain.engines] == [1, 1]  # type: ignore[attr-defined]
    assert isinstance(async_engine(names), AsyncFallbackEngine)
    assert engine(names[:1]).name == names[0]
    made = ScriptedEngine([])
    assert engine([made]) is made
    with ChatClient(names, options=ModelOptions(max_tokens=5)) as client, Orchestrator(names) as orchestrator:
        assert isinstance(client.engine, FallbackEngine)
        assert isinstance(orchestrator.engine, FallbackEngine)
        assert client.model == names[0]
        client.switch([made, *names], retry=RetryPolicy(max_attempts=2))
        assert [each.name for each in client.engine.engines] == ["scripted:model", *names]  # type: ignore[attr-defined]
        client.switch([made, ScriptedEngine([], name="b:two")])
        assert client.model == "scripted:model"


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        ([], {}, "empty"),
        (MODELS[:2], {"key": "k"}, "'key' belongs to one provider"),
        (MODELS[:2], {"key": {"anthropic": "k", "openai": "k"}, "base_url": "https://a.example"}, "'base_url' belongs"),
        (MODELS[:2], {"key": {"anthropic": "k", "openai": "k"}, "headers": {"x": "y"}}, "'headers' belongs"),
        (
            ["openai:gpt-4o", "openai:gpt-5"],
            {"key": "k", "profile": {"tools": False}},
            "'profile' belongs to one model",
        ),
        ([ScriptedEngine([])], {"retry": RetryPolicy()}, "'retry' is given together with engines"),
        ([AsyncScriptedEngine([])], {}, "is async"),
        ([None], {}, "not None"),
        (7, {}, "not int"),
        (["openai:gpt-4o", "antropic:claude"], {"key": "k"}, "antropic"),
    ],
)
def test_invalid_chains_are_refused(models: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        engine(models, **options)


def test_keys_by_provider_go_to_their_provider_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    chain: Any = engine(MODELS[:2], key={"claude": "one", "openai": "two"})
    assert [each.connection.key.reveal() for each in chain.engines] == ["one", "two"]
    same: Any = engine(["openai:gpt-4o", "openai:gpt-5"], key="one", base_url="https://proxy.example")
    assert [each.connection.key.reveal() for each in same.engines] == ["one", "one"]
    with pytest.raises(MissingKeyError, match="openai"):
        engine(MODELS[:2], key={"anthropic": "one"})
    vertex = ["vertex:claude-sonnet-4-5", "vertex:gemini-2.5-flash"]
    for key in ({"vertex": "one"}, {"vertex": "two", "vertex-claude": "one"}, "one"):
        both: Any = engine(vertex, key=key, project="p")
        assert both.engines[0].connection.key.reveal() == "one"
    for models in (MODELS[:2], MODELS[0]):
        with pytest.raises(ConfigurationError, match="a key for 'antropic', but no model of that provider.*anthropic"):
            engine(models, key={"claude": "one", "antropic": "two"})


def test_a_region_goes_to_the_models_that_are_in_a_cloud() -> None:
    models = ["bedrock:amazon.nova-lite-v1:0", "anthropic:claude-sonnet-4-5"]
    chain: Any = engine(models, key={"bedrock": "one", "anthropic": "two"}, region="eu-west-1")
    assert [each.connection.base_url for each in chain.engines] == [
        "https://bedrock-runtime.eu-west-1.amazonaws.com",
        "https://api.anthropic.com",
    ]
    clouds = ["bedrock:amazon.nova-lite-v1:0", "vertex:gemini-2.5-flash"]
    chain = engine(clouds, key={"bedrock": "one", "vertex": "two"}, region="us-east1", project="p")
    assert [each.connection.base_url for each in chain.engines] == [
        "https://bedrock-runtime.us-east1.amazonaws.com",
        "https://us-east1-aiplatform.googleapis.com/v1beta1/projects/p/locations/us-east1",
    ]
    with pytest.raises(ConfigurationError, match="has no project"):
        engine(["bedrock:amazon.nova-lite-v1:0", "anthropic:claude-sonnet-4-5"], key=None, region="eu-x-1", project="p")
    for models in (MODELS[:2], "claude-local:", "local:", ["claude-local:", "local:"]):
        with pytest.raises(ConfigurationError, match="has no region"):
            engine(models, key=None, region="eu-west-1")


def test_a_chain_closes_only_the_engines_that_it_created() -> None:
    class Noticing(ScriptedEngine):
        closed = False

        def close(self) -> None:
            self.closed = True

    given_, owned = Noticing([]), Noticing([], name="b:two")
    with FallbackEngine([given_, owned], owned=[owned]):
        pass
    assert (given_.closed, owned.closed) == (False, True)
    with ChatClient([given_, Noticing([], name="c:three")]):
        pass
    with ChatClient([given_]):
        pass
    assert not given_.closed


def test_options_of_an_engine_and_of_a_call_are_merged() -> None:
    class Own(ScriptedEngine):
        def __init__(self, options: ModelOptions, *replies: Any, name: str) -> None:
            super().__init__(replies, name=name)
            self.options = options

    cold = Own(ModelOptions(temperature=0.1), _error(OverloadedError), name="a:one")
    hot = Own(ModelOptions(temperature=0.9), "Here.", name="b:two")
    with ChatClient([cold, hot], options=ModelOptions(max_tokens=7)) as client:
        client.chat("Hi")
    asked = [each.calls[0].options for each in (cold, hot)]
    assert [(each.temperature, each.max_tokens) for each in asked if each is not None] == [(0.1, 7), (0.9, 7)]


class _Begins(ReplyCall):
    """Begins to answer, and then refuses the conversation."""

    async def advance(self) -> None:
        if self.message.blocks:
            raise ConfigurationError("It cannot go on.")
        self.take([ReplyStarted("own", "two"), TextStarted(0, ""), TextDelta(0, "", "Once")])


class _BeginningEngine(ScriptedEngine):
    def call(self, *_asked: object, **_how: object) -> ReplyCall:
        return _Begins()


def test_no_fallback_after_a_part_of_an_answer_was_delivered() -> None:
    busy = [OverloadedError("Busy.", provider="p", model="m")] * 2
    chain = FallbackEngine([ScriptedEngine(busy), _BeginningEngine([]), ScriptedEngine(["The third answers."])])
    asked = Conversation().plus(Message.user("x"))
    assert chain.reply(asked).message.text == "The third answers."
    with pytest.raises(ConfigurationError, match="It cannot go on"), chain.stream(asked) as stream:
        for _ in stream:
            pass
