"""Agents, and the activities that call their models and run their tools.

Keys and code exist only on workers; a workflow knows an agent's name.
Must not know: workflows.

Retries: the agent's RetryPolicy decides here about a failed model call, and Temporal waits and repeats it, perhaps on
another worker; the engine itself makes one attempt. A failed tool is handled by the executor. Temporal repeats tool
calls whose worker was lost: an idempotent tool is called again. For any other it is unknown whether it did its work, so
the second attempt does not call it but lets a person decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Final, Unpack

import msgspec
from msgspec import Raw
from temporalio import activity
from temporalio.exceptions import ApplicationError

from dragoman._checks import check_names, overlay, suggest
from dragoman._stepping import exhaust
from dragoman._stop import Stop, chance, stoppable
from dragoman.chat import ChatOptions, find_engine, make_executor
from dragoman.conversation import Conversation, Text, conversation_from_json, message_from_json
from dragoman.engines import AsyncEngine, Models, Reply
from dragoman.errors import ConfigurationError, DragomanError, ProviderError, ToolNotFoundError
from dragoman.loop import (
    UNCERTAIN,
    DropToolResults,
    LoopSettings,
    RunContext,
    RunMeter,
    Spent,
    Summarise,
    instruct,
    offered_tools,
    outcome_to_json,
    reply_to_json,
    settings_of,
    step_options,
    tools_of,
    warn_of_unknown_window,
)
from dragoman.tools import AnyTools, Outcome, PendingApproval, ToolExecutor, ToolRun, Used
from dragoman.transport import GiveUp, RetryPolicy, decide

from .payloads import LARGEST, NOTHING, AgentFacts, Ask, Do, application_error

_ONE_ATTEMPT: Final = RetryPolicy(max_attempts=1)
_LIVES: Final = 5
"""How many workers may be lost over an idempotent tool before a person is asked."""
_LONGEST: Final = 1e8
_ELSEWHERE: Final = {
    "conversation": "TemporalConversation.start(conversation=…)",
    "id": "TemporalConversation.start(id=…)",
    "hooks": "a workflow of your own with begin_turn(hooks=…)",
    "answer": "options=ModelOptions(response_format=…)",
    "stateless": "nothing: every conversation is a workflow of its own",
}


class Agent:
    """A model and its tools, on a worker. Options are those of a chat client.

    heartbeat   seconds without a heartbeat after which a worker is considered lost
    timeout     the most seconds for one call of the model or a tool, whatever other limits allow
    """

    def __init__(
        self,
        model: AsyncEngine | Models[AsyncEngine],
        tools: AnyTools = (),
        *,
        heartbeat: float = 10.0,
        timeout: float = 3600.0,
        **options: Unpack[ChatOptions],
    ) -> None:
        known = [name for name in ChatOptions.__annotations__ if name not in _ELSEWHERE]
        check_names(options, known, "An agent", _ELSEWHERE)
        policies = tuple(options.get("context", ()))
        for policy in policies:
            if not isinstance(policy, DropToolResults | Summarise):
                message = f"A {type(policy).__name__} cannot run inside a workflow."
                raise ConfigurationError(message, hint="Use DropToolResults or Summarise.")
        if not (0 < heartbeat < _LONGEST and 0 < timeout < _LONGEST):
            message = "An agent's heartbeat and timeout must be positive, and short enough for Temporal."
            raise ConfigurationError(message, hint="They are in seconds; a day is 86400.")
        self._model: AsyncEngine | Models[AsyncEngine] = model
        self._tools: AnyTools = tools
        self._options: ChatOptions = {**options, "context": policies}
        self._heartbeat: float = heartbeat
        self._timeout: float = timeout
        self._retry: RetryPolicy = options.get("retry", RetryPolicy())

    @cached_property
    def engine(self) -> AsyncEngine:
        """The engine, created on first use: if it has no key, the caller gets the error."""
        listed = (self._model,) if isinstance(self._model, str | AsyncEngine) else self._model
        is_named = any(isinstance(each, str) for each in listed)
        given = {**self._options, "retry": _ONE_ATTEMPT} if is_named else self._options
        return find_engine(self._model, None, given, AsyncEngine)

    @cached_property
    def executor(self) -> ToolExecutor:
        """Runs the tools."""
        return make_executor(self._tools, self._options)

    @cached_property
    def settings(self) -> LoopSettings:
        """The settings of a turn, as a chat client has them."""
        settings = settings_of(self._options, self.engine.options, self.executor.config)
        warn_of_unknown_window(settings.context, self.engine)
        return settings

    def moment(self, conversation: Conversation) -> RunContext[object]:
        """The RunContext for functions that return instructions or tools."""
        return RunContext(deps=self.settings.deps, conversation=conversation, model=self.engine.name)

    @property
    def facts(self) -> AgentFacts:
        """What a workflow needs to know."""
        settings, executor, config = self.settings, self.executor, self.executor.config
        tools = executor.searched(executor.tools).by_name
        # Permissions, middleware and a function that returns tools may need the conversation for any call.
        of_moment = executor.tools.function is not None
        always = of_moment or "permission" in self._options or "middleware" in self._options
        return AgentFacts(
            limits=settings.limits,
            on_limit=settings.on_limit,
            system=settings.system,
            context=tuple([(type(each).__name__, Raw(msgspec.json.encode(each))) for each in settings.context]),
            context_window=self.engine.context_window if settings.context else None,
            tools={name: always or tool.takes_context for name, tool in tools.items()},
            agents=frozenset([name for name, tool in tools.items() if tool.agent is not None]),
            tools_of_moment=of_moment,
            max_parallel_tools=config.max_parallel_tools,
            tool_error_handling=config.tool_error_handling,
            run_timeout=config.run_timeout,
            heartbeat=self._heartbeat,
            timeout=self._timeout,
        )

    def judge(self, error: ProviderError, attempt: int) -> float | None:
        """The delay before a failed model call is repeated, in seconds; None: it is not."""
        verdict = decide(
            error, {}, self._retry, attempt, elapsed=0.0, delivered=False, random=chance(), now=time.time()
        )
        return None if isinstance(verdict, GiveUp) else verdict.after

    async def aclose(self) -> None:
        """Close connections and threads; the next use opens them again."""
        made = self.__dict__
        if "executor" in made:
            made.pop("executor").close()
        if "engine" in made:
            engine: AsyncEngine = made.pop("engine")
            if isinstance(self._model, str):
                await engine.aclose()


def _priced(reply: Reply) -> Reply:
    """The reply with its cost, because a workflow reads no table of prices."""
    message, cost = reply.message, reply.cost
    if message.usage is None or cost is None:
        return reply
    usage = msgspec.structs.replace(message.usage, charged=cost)
    return msgspec.structs.replace(reply, message=msgspec.structs.replace(message, usage=usage))


class Activities:
    """The activities of a worker with these agents."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self.agents: dict[str, Agent] = dict(agents)

    def _agent(self, name: str) -> Agent:
        if name not in self.agents:
            hint = suggest(name, self.agents) if self.agents else "Pass it to the worker: DragomanPlugin(agents={…})."
            raise ConfigurationError(f"This worker has no agent {name!r}.", hint=hint)
        return self.agents[name]

    @activity.defn(name="dragoman.facts")
    async def facts(self, agent: str) -> AgentFacts:
        """What a workflow needs to know of an agent."""
        with _for_good():
            return self._agent(agent).facts

    @activity.defn(name="dragoman.model")
    async def ask_model(self, ask: Ask) -> Raw:
        """The model's reply."""
        agent = self._agent(ask.agent)
        # As this worker has them, also if the turn began with those of another version.
        conversation = agent.settings.instructed(conversation_from_json(bytes(ask.conversation)))
        options = overlay(ask.options, agent.settings.options)
        if ask.tools:
            with _for_good():
                moment, functions = agent.moment(conversation), agent.settings.instructions
                conversation = await instruct(conversation, functions, moment, _wait) if functions else conversation
                tools = await tools_of(agent.executor.tools, moment, _wait)
            specs = offered_tools(agent.executor, conversation, agent.engine.profile, options, tools)
            options = step_options(options, agent.executor.config, specs, first=ask.first)
        else:
            specs, options = (), msgspec.structs.replace(options, tool_choice="auto", response_format=None)
        stop = Stop(None if ask.seconds is None else time.monotonic() + ask.seconds)
        try:
            with _for_good(), _heartbeats():
                reply = await stoppable(agent.engine.reply(conversation, tools=specs, options=options), stop)
        except ProviderError as error:
            again = agent.judge(error, activity.info().attempt)
            if again is None:
                raise
            raise application_error(error, retry_in=again) from None
        return Raw(reply_to_json(_priced(reply)).encode())

    @activity.defn(name="dragoman.tool")
    async def run_tool(self, do: Do) -> Raw:
        """The outcome of a tool call; it may wait for a person."""
        agent = self._agent(do.agent)
        executor, conversation = agent.executor, Conversation()
        (call,) = message_from_json(bytes(do.message)).tool_calls
        if do.conversation != NOTHING:
            conversation = conversation_from_json(bytes(do.conversation))
        with _for_good():
            tools = await tools_of(executor.tools, agent.moment(conversation), _wait)
        run = ToolRun(
            conversation=conversation,
            deps=agent.settings.deps,
            approvals=() if do.approval is None else (do.approval,),
            deadline=None if do.seconds is None else time.monotonic() + do.seconds,
            pauses=False,
            meter=RunMeter(do.limits, Spent(), time.monotonic),
        )
        run.counts.update(do.counts)
        batch = executor.batch((call,), run, tools)
        tool = batch.tools.by_name.get(call.name)
        if tool is None and do.known:
            message = f"This worker has no tool {call.name!r}, which agent {do.agent!r} had when the turn began."
            hint = "Run workers of both versions until the turns of the old one have ended, or try again."
            raise ToolNotFoundError(message, tool_name=call.name, call_id=call.id, hint=hint)
        lives = _LIVES if tool is None or tool.options.idempotent else 1
        if activity.info().attempt > lives:
            return _write(PendingApproval(call=call, reason=UNCERTAIN), run.meter.used)
        with _heartbeats():
            await exhaust(executor.aevents(batch))
        return _write(batch.outcomes[0], run.meter.used)


async def _wait(given: Awaitable[object]) -> object:
    return await given


def _write(outcome: Outcome | PendingApproval, used: Used) -> Raw:
    """The outcome as JSON; a result that the server would refuse is replaced by an error."""
    data = outcome_to_json(outcome, used).encode()
    if len(data) <= LARGEST or isinstance(outcome, PendingApproval):
        return Raw(data)
    text = Text(f"The tool did its work, but its result of {len(data):,} bytes is too large to be passed on.")
    changes = {"content": (text,), "structured": None, "is_error": True, "error_type": "execution"}
    return _write(Outcome(msgspec.structs.replace(outcome.result, **changes)), used)


@contextmanager
def _for_good() -> Generator[None]:
    """An unexpected error would occur again and again: it is not retried, and the caller gets it."""
    try:
        yield
    except DragomanError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ApplicationError(f"{kind} on the worker: {error}", type=kind, non_retryable=True) from error


@contextmanager
def _heartbeats() -> Generator[None]:
    """Send heartbeats while the block runs; Temporal's response says whether the call was cancelled."""
    timeout = activity.info().heartbeat_timeout
    if timeout is None:
        yield
        return
    loop, every = asyncio.get_running_loop(), timeout.total_seconds() / 3

    def beat() -> None:
        nonlocal timer
        activity.heartbeat()
        timer = loop.call_later(every, beat)

    timer = loop.call_later(every, beat)  # a short call needs none
    try:
        yield
    finally:
        timer.cancel()
