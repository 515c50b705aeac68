"""Files at providers, against the simulator: uploaded once, referred to, renewed, lost, deleted, moved."""

from __future__ import annotations

import asyncio
import gc
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import ChatClient, Conversation, Media, Message
from dragoman.conversation import conversation_from_json, conversation_to_json
from dragoman.engines import Fallback, HttpEngine, async_engine, engine
from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidRequestError,
    LossyConversionError,
    MalformedDataError,
    ProtocolError,
    ProviderError,
)
from dragoman.files import AsyncFiles, AsyncFilesEngine, FileList, Files, FilesEngine
from dragoman.providers import Prices
from dragoman.simulator import Request, Simulator, Status
from dragoman.transport import RetryPolicy
from tests.chat.talking import AsyncTalk, PlainTalk
from tests.engines.talking import close_both

LARGE = bytes(2 << 20)
PDF = Media.from_bytes(LARGE, "application/pdf", name="report.pdf")
MODELS = ["openai:gpt-5", "openai-responses:gpt-5", "anthropic:claude-sonnet-4-5", "gemini:gemini-2.5-flash"]
every_dialect = pytest.mark.parametrize("model", MODELS)


def at(simulator: Simulator, model: str) -> dict[str, Any]:
    return {"key": "any", "base_url": simulator.base_url(model.partition(":")[0])}


def ask(
    kind: Any, simulator: Simulator, model: str, prompts: list[Any], *, stream: bool = False, **options: Any
) -> list[str]:
    """What a client over a FilesEngine is answered."""
    make, wrap = (engine, FilesEngine) if kind is PlainTalk else (async_engine, AsyncFilesEngine)
    wrapped: Any = wrap(make(model, **at(simulator, model)), **options)  # type: ignore[operator]
    talk = kind(wrapped, streamed=stream)
    try:
        return [talk.chat(Message.user(*prompt)).text for prompt in prompts]
    finally:
        close_both(talk, wrapped)


every_colour = pytest.mark.parametrize("kind", [PlainTalk, AsyncTalk])


def turns(simulator: Simulator) -> list[Request]:
    return [request for request in simulator.requests if request.user_texts]


def uploads(simulator: Simulator) -> list[Request]:
    return [request for request in simulator.requests if len(request.raw) > len(LARGE)]


@every_colour
@every_dialect
def test_large_file_is_uploaded_once(kind: Any, model: str, tmp_path: Path) -> None:
    with Simulator() as simulator:
        said = ask(kind, simulator, model, [("What is in it?", PDF), ("And what not?",)], kept=tmp_path / "files.json")
        assert said == ["You said: What is in it?", "You said: And what not?"]
        assert len(uploads(simulator)) == (0 if "gemini" in model else 1)
        assert all(b"sim000000" in request.raw and len(request.raw) < 2_000 for request in turns(simulator))
        before = len(simulator.requests)
        ask(kind, simulator, model, [("Once more.", PDF)], kept=tmp_path / "files.json")  # as a later process would
        assert len(simulator.requests) == before + 1
    assert (tmp_path / "files.json").stat().st_mode & 0o777 == 0o600
    if "claude" in model:
        assert {request.headers["anthropic-beta"] for request in simulator.requests} == {"files-api-2025-04-14"}


@every_colour
@every_dialect
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_lost_file_is_uploaded_again(kind: Any, model: str, stream: bool, tmp_path: Path) -> None:
    kept = tmp_path / "files.json"
    with Simulator() as simulator:
        ask(kind, simulator, model, [("?", PDF)], kept=kept)
    with Simulator() as other:  # which knows nothing of it
        base_url = other.base_url(model.partition(":")[0])
        known = FileList(kept).all()[0]
        FileList(kept).add(replace(known, base_url=base_url))
        assert ask(kind, other, model, [("?", PDF)], kept=kept, stream=stream) == ["You said: ?"]
        assert [request.user_texts for request in turns(other)] == [("?",), ("?",)]
        # Another refusal is no reason to upload anything.
        other.play(lambda _request: Status(400, "No profile for this file."))
        before = len(other.requests)
        with pytest.raises(InvalidRequestError):
            ask(kind, other, model, [("?", PDF)], kept=kept, stream=stream)
        assert len(other.requests) == before + 1


@every_dialect
def test_small_media_are_inline_and_expired_files_are_renewed(model: str) -> None:
    small = Media.from_bytes(b"%PDF", "application/pdf", name="small.pdf")
    with Simulator() as simulator, Files(model, **at(simulator, model)) as files:
        talk = Conversation().plus(Message.user("?", small, PDF))
        placed = files.place(talk)
        assert placed.messages[0].blocks[1] == small
        assert placed.messages[0].blocks[2].stored is not None  # type: ignore[union-attr]
        assert files.place(talk).messages[0] is placed.messages[0]
        assert conversation_from_json(conversation_to_json(placed)) == placed
        (known,) = files.kept
        soon = datetime.now(UTC) + timedelta(seconds=30)
        kept = FileList()
        kept.add(replace(known, expires=soon))
        with Files(model, kept=kept, **at(simulator, model)) as later:
            renewed = later.place(talk).messages[0].blocks[2]
        assert renewed != placed.messages[0].blocks[2]


def test_message_never_refers_to_files_of_another_account() -> None:
    small, model = Media.from_bytes(b"%PDF", "application/pdf"), "anthropic:claude-sonnet-4-5"
    talk = Conversation().plus(Message.user("?", small))
    with Simulator() as simulator, engine(model, **at(simulator, model)) as made:
        assert isinstance(made, HttpEngine)

        def place() -> object:
            with Files(made, inline_up_to=0) as files:
                return files.place(talk).messages[0].blocks[1].stored  # type: ignore[union-attr]

        placed = set[object]()
        for _ in range(5):  # each is freed, and the next one may have its place in memory
            placed.add(place())
            gc.collect()
    assert len(placed) == 5


def test_concurrent_uploads_of_one_content_are_one_upload(tmp_path: Path) -> None:
    model, kept = "anthropic:claude-sonnet-4-5", tmp_path / "files.json"
    different = [Media.from_bytes(b"%%PDF %d" % number, "application/pdf") for number in range(20)]
    with Simulator() as simulator:
        with Files(model, kept=kept, **at(simulator, model)) as files, ThreadPoolExecutor(8) as threads:
            found = list(threads.map(files.upload, [PDF] * 8 + different))
        assert len(simulator.requests) == len(set(found)) == len(FileList(kept).all()) == 21

        async def on_loop() -> None:
            async with AsyncFiles(model, **at(simulator, model)) as others:
                await asyncio.gather(*[others.upload(PDF) for _ in range(8)])

        asyncio.run(on_loop())
        assert len(simulator.requests) == 22
    assert [file.name for file in tmp_path.iterdir()] == ["files.json"]


@every_dialect
def test_deleting_twice_is_harmless(model: str, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF of a file")
    with Simulator() as simulator, Files(model, **at(simulator, model)) as files:
        media = files.upload(Media.from_path(tmp_path / "a.pdf"))
        assert files.upload(Media.from_path(tmp_path / "a.pdf")) == media
        (stored,) = files.kept
        files.delete(media)
        assert files.kept == []
        files.delete(stored)
        with pytest.raises(ConfigurationError, match="was not uploaded from here"):
            files.delete(media)

        async def on_loop() -> None:
            async with AsyncFiles(model, **at(simulator, model)) as others:
                again = await others.upload(PDF)
                assert (await others.place(Conversation().plus(Message.user(PDF)))).messages[0].blocks == (again,)
                await others.delete(again)

        asyncio.run(on_loop())


def test_moved_conversation_keeps_its_bytes_and_reports_lost_references(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Simulator() as simulator:
        claude, gemini = "anthropic:claude-sonnet-4-5", "gemini:gemini-2.5-flash"
        with FilesEngine(engine(claude, **at(simulator, claude))) as wrapped, ChatClient(wrapped) as client:
            client.chat(Message.user("?", PDF))
            talk = client.conversation
        with ChatClient(gemini, conversation=talk, **at(simulator, gemini)) as client:
            client.chat("And you?")
        assert len(simulator.requests[-1].raw) > len(LARGE)  # inline, since nobody wraps this engine
        with Files(claude, **at(simulator, claude)) as files:
            reference = files.upload(PDF)
        referring = Conversation().plus(Message.user("?", reference))
        for model in [name for name in MODELS if name != claude]:
            with engine(model, **at(simulator, model)) as other:
                (loss,) = other.losses(referring)
                assert loss.why == "it is stored at anthropic, and only models there can read it"
                with caplog.at_level(logging.WARNING):
                    other.reply(referring)
            with engine(model, strict=True, **at(simulator, model)) as strict, pytest.raises(LossyConversionError):
                strict.reply(referring)
        assert "stored at anthropic" in caplog.text
        # Both APIs of one service read the same files.
        with Files("openai:gpt-5", **at(simulator, "openai:")) as files:
            shared = Conversation().plus(Message.user("?", files.upload(PDF)))
        with engine("openai-responses:gpt-5", **at(simulator, "openai-responses:")) as responses:
            assert responses.losses(shared) == ()
            responses.reply(shared)


@every_colour
@every_dialect
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_failed_upload_is_the_error_of_the_turn(kind: Any, model: str, stream: bool) -> None:
    with Simulator(api_key="another") as simulator, pytest.raises(AuthenticationError):
        ask(kind, simulator, model, [("?", PDF)], stream=stream)
    assert len(simulator.requests) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_files_engine_in_a_chain(stream: bool) -> None:
    model, free = "anthropic:claude-sonnet-4-5", Prices(input=0, output=0)
    asked = Conversation().plus(Message.user("?", PDF))
    busy, answering = Simulator(lambda _request: Status(529)), Simulator()
    with busy, answering:
        patient = RetryPolicy(first_wait=0, max_attempts=9)
        inner = engine(model, prices=free, retry=patient, **at(busy, model))
        wrapped = FilesEngine(inner)
        assert (wrapped.place, wrapped.known_prices) == (inner.place, free)
        assert wrapped.context_window == inner.context_window
        other = engine("openai:gpt-5", **at(answering, "openai:"))
        policy = Fallback(attempts=4, failures=9)
        with wrapped, other, engine([wrapped, other], fallback=policy) as chain:
            if stream:
                with chain.stream(asked) as events:
                    list(events)
                    reply = events.reply
            else:
                reply = chain.reply(asked)
        assert len(turns(busy)) == 3  # one attempt of the four is left for the other model
    assert [(each.number, each.model) for each in reply.attempts] == [
        *[(number, model) for number in (1, 2, 3)],
        (4, "openai:gpt-5"),
    ]
    with Simulator() as simulator, FilesEngine(engine(model, **at(simulator, model))) as wrapped:
        assert wrapped.count(asked).source == "provider"


def test_unsupported_files_are_refused(tmp_path: Path) -> None:
    with Simulator() as simulator:
        for model, media, says in (
            ("openai:gpt-5", Media.from_bytes(LARGE, "image/png"), "takes no image/png by reference"),
            ("anthropic:claude-sonnet-4-5", Media.from_bytes(LARGE, "video/mp4"), "takes no video/mp4 by reference"),
            ("gemini:gemini-2.5-flash", Media.from_url("https://example.org/a.png"), "with their bytes"),
        ):
            with Files(model, **at(simulator, model)) as files, pytest.raises(ConfigurationError, match=says):
                files.upload(media)
        for model in ("groq:x", "local:", "claude-local:"):
            with pytest.raises(ConfigurationError, match="no files"):
                Files(model, key="k")
        assert simulator.requests == ()
        # A picture goes inline to an API that takes none by reference, however large it is.
        with Files("openai:gpt-5", **at(simulator, "openai:")) as files:
            picture = Conversation().plus(Message.user(Media.from_bytes(LARGE, "image/png")))
            assert files.place(picture) is picture
    (tmp_path / "broken.json").write_text("[]")
    with pytest.raises(MalformedDataError, match="uploaded again"):
        FileList(tmp_path / "broken.json").all()
    with Simulator(faults=[Status(200, body="no JSON")]) as broken:
        for model in MODELS:
            with Files(model, **at(broken, model)) as files, pytest.raises(ProtocolError):
                files.upload(PDF)


def test_failed_upload_reports_its_attempts() -> None:
    large = Media.from_bytes(bytes(2 << 20), "application/pdf", name="report.pdf")
    nobody = {"key": "any", "base_url": "http://127.0.0.1:9", "retry": RetryPolicy(max_attempts=2, first_wait=0.0)}
    with (
        FilesEngine(engine("anthropic:claude-sonnet-4-5", **nobody)) as talker,
        pytest.raises(ProviderError) as caught,
    ):
        talker.reply(Conversation().plus(Message.user("hi", large)))
    assert len(caught.value.attempts) == 2
