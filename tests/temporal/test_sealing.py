"""What the server keeps, looked for in its database file: sealed, nothing is found; keys never are."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import WorkflowSerializationContext

from dragoman.errors import AuthenticationError, SnapshotCorruptError, SnapshotSealError
from dragoman.simulator import Reply, Request, Simulator, Status
from dragoman.stores import AesGcmSealing, generate_encryption_key
from dragoman.temporal import DragomanPlugin, SealingCodec, TemporalConversation
from tests.loops import on_loop
from tests.temporal.server import PROGRAM, TemporalServer
from tests.temporal.world import KEY, agents, answer, working

TEXT = "planted-text-of-a-user"
RESULT = "charged planted-text-of-a-user-a"
TOOL = '"charge"'
"""As the summary of an activity has it."""
REFUSAL = "planted-refusal-of-a-provider"

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Temporal's development server is not here")


def script(request: Request) -> Reply | str:
    if "refuse" in request.last_user_text:
        return Reply("", faults=[Status(401, message=REFUSAL)])
    return answer(request)


def forms_of(text: str) -> list[bytes]:
    """The text, and its base64 wherever it may begin."""
    raw = text.encode()
    return [raw, *[base64.b64encode(b"-" * shift + raw)[4:-4] for shift in range(3)]]


def kept_after_a_conversation(directory: Path, sealing: AesGcmSealing | None) -> dict[str, bool]:
    """Which of the planted texts the database holds, once the server has written everything down."""

    async def tell(server: TemporalServer, base_url: str) -> None:
        given = agents(base_url, directory / "traces")
        async with working(server.address, given, sealing=sealing) as client:
            talk = await TemporalConversation.start(client, agent="clerk", id="t")
            await talk.say(f"work {TEXT}")
            await talk.add(f"and {TEXT}")
            with pytest.raises(AuthenticationError, match=REFUSAL):
                await talk.say(f"refuse {TEXT}")
            assert len((await talk.conversation()).messages) == 7
            await talk.close()

    with Simulator(script, api_key=KEY) as simulator, TemporalServer(directory) as server:
        asyncio.run(tell(server, simulator.base_url("openai")))
        server.stop()
        data = b"".join(file.read_bytes() for file in directory.glob("temporal.db*"))
    assert b"dragoman.conversation" in data
    return {text: any(form in data for form in forms_of(text)) for text in (TEXT, RESULT, REFUSAL, TOOL, KEY)}


def test_sealed_nothing_is_found(tmp_path: Path) -> None:
    sealing = AesGcmSealing(generate_encryption_key())
    assert kept_after_a_conversation(tmp_path, sealing) == dict.fromkeys((TEXT, RESULT, REFUSAL, TOOL, KEY), False)


def test_open_everything_but_the_key_is_found(tmp_path: Path) -> None:
    assert kept_after_a_conversation(tmp_path, None) == {
        **dict.fromkeys((TEXT, RESULT, REFUSAL, TOOL), True),
        KEY: False,
    }


@on_loop
async def test_keys_change_and_without_them_nothing_is_read(
    server: TemporalServer, base_url: str, traces: Path
) -> None:
    old, new = generate_encryption_key(), generate_encryption_key()

    given = agents(base_url, traces)
    async with working(server.address, given, queue="keys", sealing=AesGcmSealing(old)) as client:
        talk = await TemporalConversation.start(client, agent="clerk", id="keys", task_queue="keys")
        assert (await talk.say("hello")).text == "You said: hello"
    async with working(server.address, given, queue="keys", sealing=AesGcmSealing(new, older=[old])) as client:
        assert (await TemporalConversation(client, "keys").say("again")).text == "You said: again"
        stranger = await Client.connect(server.address, plugins=[DragomanPlugin(sealing=AesGcmSealing(old))])
        with pytest.raises(SnapshotSealError, match="which was not given"):
            await TemporalConversation(stranger, "keys").conversation()
        keyless = await Client.connect(server.address, plugins=[DragomanPlugin()])
        with pytest.raises(SnapshotSealError, match="has no key"):
            await TemporalConversation(keyless, "keys").conversation()


@pytest.mark.slow
def test_a_worker_without_the_key_harms_nothing(server: TemporalServer, base_url: str, traces: Path) -> None:
    sealing = AesGcmSealing(generate_encryption_key())

    async def tell() -> str:
        client = await Client.connect(server.address, plugins=[DragomanPlugin(sealing=sealing)])
        talk = await TemporalConversation.start(client, agent="clerk", id="keyless", task_queue="keyless")
        turn = asyncio.create_task(talk.say("hello"))
        async with working(server.address, agents(base_url, traces), queue="keyless"):
            await asyncio.sleep(1)
            assert not turn.done()
        async with working(server.address, agents(base_url, traces), queue="keyless", sealing=sealing):
            return (await asyncio.wait_for(turn, 60)).text

    assert asyncio.run(tell()) == "You said: hello"


def test_a_payload_cannot_be_put_into_another_workflow() -> None:
    sealing = AesGcmSealing(generate_encryption_key())
    one, other = [
        SealingCodec(sealing).with_context(WorkflowSerializationContext(namespace="n", workflow_id=id)) for id in "ab"
    ]
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b"1")
    (sealed,) = asyncio.run(one.encode([payload]))
    assert asyncio.run(one.decode([sealed])) == [payload]
    with pytest.raises(SnapshotCorruptError):
        asyncio.run(other.decode([sealed]))
    with pytest.raises(SnapshotSealError, match="not sealed"):
        asyncio.run(one.decode([payload]))
