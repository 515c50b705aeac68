"""The plugin for clients and workers of Temporal, and TemporalConversation for callers.

Watching is by query, a step at a time: a query costs a worker a millisecond, while an update would be written into the
history of the workflow.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from uuid import uuid4

from msgspec import structs
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from dragoman.chat import Prompt, make_message
from dragoman.conversation import Conversation, Message, ToolCall, message_from_json
from dragoman.errors import (
    ConfigurationError,
    ConversationError,
    DragomanError,
    SnapshotSealError,
    StoreConflictError,
    StoreUnavailableError,
)
from dragoman.loop import Limits
from dragoman.providers import ModelOptions, without_secrets
from dragoman.stores import AesGcmSealing
from dragoman.tools import Approval, PendingApproval, approve, deny

from .agents import Activities, Agent
from .payloads import (
    Answers,
    ConversationStart,
    DragomanFailureConverter,
    DragomanPayloadConverter,
    SealedFailureConverter,
    SealingCodec,
    Seen,
    TurnOutcome,
    write_conversation,
)
from .workflow import ConversationWorkflow

TASK_QUEUE: Final = "dragoman"
_NO_OPTIONS: Final = ModelOptions()
_NO_LIMITS: Final = Limits()
_INFINITE: Final = 1e300
"""JSON has no infinity."""
_REFUSALS: Final = frozenset(
    {RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED}
)


class DragomanPlugin(SimplePlugin):
    """Pass it to `Client.connect(plugins=[…])`; workers of that client have it, too.

    agents    the agents of workers, by name; callers need none
    sealing   encrypts everything that the server stores; all clients and workers need the same keys
    """

    def __init__(self, agents: Mapping[str, Agent] | None = None, *, sealing: AesGcmSealing | None = None) -> None:
        activities = Activities(agents or {})
        workers = 0

        @asynccontextmanager
        async def closing() -> AsyncGenerator[None]:
            nonlocal workers
            workers += 1
            try:
                yield
            finally:
                workers -= 1
                for agent in activities.agents.values() if not workers else ():
                    await agent.aclose()

        def convert(given: DataConverter | None) -> DataConverter:
            given, forms = given or DataConverter.default, (DefaultPayloadConverter, DragomanPayloadConverter)
            if given.payload_converter_class not in forms or (sealing is not None and given.payload_codec is not None):
                message = "The client has its own data converter, which ours would replace."
                raise ConfigurationError(message, hint="Leave it out; ours supports everything that Temporal's does.")
            changes: dict[str, Any] = {"failure_converter_class": DragomanFailureConverter}
            if sealing is not None:
                changes = {"failure_converter_class": SealedFailureConverter, "payload_codec": SealingCodec(sealing)}
            return dataclasses.replace(given, payload_converter_class=DragomanPayloadConverter, **changes)

        super().__init__(  # pyright: ignore[reportUnknownMemberType] -- Callable without its types there
            "dragoman",
            data_converter=convert,
            activities=[activities.facts, activities.ask_model, activities.run_tool],
            workflows=[ConversationWorkflow],
            workflow_runner=_let_through,
            workflow_failure_exception_types=[DragomanError],
            run_context=closing,
        )


def _let_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    """The sandbox for users' workflows, which does not reload dragoman for each of them."""
    if isinstance(runner, SandboxedWorkflowRunner):
        restrictions = runner.restrictions.with_passthrough_modules("dragoman", "msgspec")
        return dataclasses.replace(runner, restrictions=restrictions)
    return runner or SandboxedWorkflowRunner()


# --- for callers ------------------------------------------------------------------------------------------------------


class TemporalConversation:
    """A conversation that is a workflow, for any program that can reach the server; see ConversationWorkflow."""

    def __init__(self, client: Client, id: str) -> None:
        self.id: str = id
        """The id of the workflow."""
        self.handle: WorkflowHandle[ConversationWorkflow, Conversation] = client.get_workflow_handle_for(
            ConversationWorkflow.run, id
        )

    @classmethod
    async def start(
        cls,
        client: Client,
        *,
        agent: str,
        id: str | None = None,
        task_queue: str = TASK_QUEUE,
        conversation: Conversation | None = None,
        options: ModelOptions = _NO_OPTIONS,
        limits: Limits = _NO_LIMITS,
        longest_history: int | None = None,
    ) -> TemporalConversation:
        """Start a workflow for a new conversation, or to continue one. An id that is in use is an error."""
        if options != without_secrets(options):
            message = "Headers and tokens are secrets, and these options would be in the history of the workflow."
            raise ConfigurationError(message, hint="Put them into the options of the agent, on the worker.")
        start = ConversationStart(
            agent=agent,
            conversation=write_conversation(conversation or Conversation()),
            options=options,
            limits=_writable(limits),
            longest_history=longest_history,
        )
        found = cls(client, id or uuid4().hex)
        with _our_errors(found.id):
            await client.start_workflow(ConversationWorkflow.run, start, id=found.id, task_queue=task_queue)
        return found

    # --- turns ---

    async def say(self, prompt: Prompt, *, key: str | None = None) -> TurnOutcome:
        """Send a prompt and wait for the outcome of the turn.

        A second call with the same `key`, for example after a lost connection, returns the outcome of the first.
        """
        return await self._update("say", make_message(prompt), key)

    async def approve(self, *calls: ToolCall | PendingApproval, reason: str = "") -> TurnOutcome:
        """Let these calls run, and wait for the outcome of the turn."""
        return await self.resume(*[approve(_call_of(each), reason=reason) for each in calls])

    async def deny(self, *calls: ToolCall | PendingApproval, reason: str = "") -> TurnOutcome:
        """Refuse these calls; the model reads the reason."""
        return await self.resume(*[deny(_call_of(each), reason=reason) for each in calls])

    async def resume(self, *answers: Approval, key: str | None = None) -> TurnOutcome:
        """Continue the turn, with decisions of both kinds."""
        return await self._update("resume", Answers(answers), key)

    async def _update(self, name: str, argument: Message | Answers, key: str | None) -> TurnOutcome:
        with _our_errors(self.id):
            return await self.handle.execute_update(  # pyright: ignore[reportUnknownMemberType] -- of another overload
                name, argument, id=key, result_type=TurnOutcome
            )

    async def add(self, prompt: Prompt) -> None:
        """Add a message without calling the model; a running turn includes it in its next model call."""
        with _our_errors(self.id):
            await self.handle.signal(ConversationWorkflow.add, make_message(prompt))

    async def cancel(self) -> None:
        """End the running turn, whose outcome is then `cancelled`; the conversation stays."""
        with _our_errors(self.id):
            await self.handle.signal(ConversationWorkflow.stop)

    async def close(self) -> Conversation:
        """End the conversation after the running turn, and return it."""
        with _our_errors(self.id):
            await self.handle.signal(ConversationWorkflow.close)
            return await self.handle.result()

    # --- queries ---

    async def conversation(self) -> Conversation:
        """The conversation so far."""
        with _our_errors(self.id):
            return await self.handle.query("conversation", result_type=Conversation)

    async def standing(self) -> TurnOutcome:
        """The state: how the last turn ended, the latest answer, pending calls."""
        with _our_errors(self.id):
            return await self.handle.query(ConversationWorkflow.standing)

    async def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person, with the reason."""
        return (await self.standing()).pending

    async def watch(self, position: int = 0, *, every: float = 0.5) -> AsyncGenerator[Message, None]:
        """The messages from this position on, as they are added, until the conversation ends.

        A reply appears when it is complete, results when all tools of a step have ended.
        """
        while True:
            try:
                with _our_errors(self.id):
                    seen: Seen = await self.handle.query(ConversationWorkflow.seen, position)
                    running = seen.messages or (await self.handle.describe()).close_time is None
            except ConversationError:
                return
            for raw in seen.messages:
                yield message_from_json(bytes(raw))
            position = seen.position
            if not running:
                return
            if not seen.messages:
                await asyncio.sleep(every)


def _call_of(given: ToolCall | PendingApproval) -> ToolCall:
    return given.call if isinstance(given, PendingApproval) else given


def _writable(limits: Limits) -> Limits:
    given = structs.asdict(limits).items()
    return structs.replace(limits, **{name: min(value, _INFINITE) for name, value in given if value is not None})


@contextmanager
def _our_errors(id: str) -> Generator[None]:
    """Convert Temporal's errors about this conversation to ours."""
    try:
        yield
    except (WorkflowUpdateFailedError, WorkflowFailureError) as error:
        cause = error.cause
        if isinstance(cause, DragomanError):
            raise cause from None
        if isinstance(cause, ActivityError):  # an unexpected one, for example in the code of an engine
            raise ConversationError(f"The turn of {id!r} failed: {cause.cause}") from error
        raise _gone(id) from error
    except KeyError as error:  # Temporal raises it for an unknown encoding
        if SealingCodec.ENCODING.decode() not in str(error):
            raise
        message = f"The conversation {id!r} is sealed, and this program has no key."
        raise SnapshotSealError(message, hint="Pass it: DragomanPlugin(sealing=AesGcmSealing(key)).") from error
    except WorkflowAlreadyStartedError as error:
        message = f"A conversation {id!r} exists already."
        raise StoreConflictError(
            message, hint="Use it: TemporalConversation(client, id); or choose another id."
        ) from error
    except WorkflowQueryFailedError as error:
        raise ConversationError(f"The conversation {id!r} cannot be read: {error.message}.") from error
    except RPCTimeoutOrCancelledError as error:
        if isinstance(error.__cause__, asyncio.CancelledError):  # the caller was cancelled, for example by a timeout
            raise error.__cause__ from None
        raise _unavailable(error.__cause__ or error) from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise _gone(id) from error
        if error.status in _REFUSALS:
            raise ConfigurationError(f"Temporal's server refuses the request: {error.message}.") from error
        raise _unavailable(error) from error


def _unavailable(error: BaseException) -> StoreUnavailableError:
    message = f"Temporal's server, or a worker for this conversation, does not respond: {error}."
    return StoreUnavailableError(message, hint="Try again; with a `key`, no message is added twice.")


def _gone(id: str) -> ConversationError:
    message = f"There is no conversation {id!r} on the server, or it has ended."
    return ConversationError(
        message, hint="Check its id and the namespace, or start it again with the messages that you have."
    )
