"""Coverage-guided fuzzing of the decoders, with atheris where it installs (Linux; not among the pinned packages).

    .dev/env/bin/pip install atheris
    .dev/env/bin/python fuzz/decoders.py -max_total_time=60 [directory of inputs to begin with]

Whatever bytes a server sends, whole or in pieces, streamed or not: only ProviderErrors may come out, and the same bytes
in other pieces give the same message. The tests try the same with hypothesis, without coverage guidance.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["dragoman"]):
    from dragoman.conversation import Conversation, Message, ReplyEvent, fold
    from dragoman.errors import ProviderError
    from dragoman.providers import Call, codec_of, profile_of

    for dialect in ("openai_chat", "openai_responses", "anthropic", "gemini"):
        codec_of(dialect)  # loaded here, so that it is instrumented

MODELS = (
    ("openai", "gpt-4o"),
    ("openai-responses", "gpt-5-mini"),
    ("anthropic", "claude-sonnet-4-5"),
    ("gemini", "gemini-2.5-flash"),
    ("openrouter", "anthropic/claude-sonnet-4.5"),
)


def _calls() -> list[Call]:
    asked = Conversation().plus(Message.user("Hi"))
    return [
        Call(model=model, conversation=asked, profile=profile_of(provider, model), stream=stream)
        for provider, model in MODELS
        for stream in (False, True)
    ]


CALLS = [(call, codec_of(call.profile.dialect), codec_of(call.profile.dialect).encode(call)) for call in _calls()]  # type: ignore[arg-type]


def _outcome(which: int, pieces: list[bytes]) -> object:
    call, codec, encoded = CALLS[which]
    events: list[ReplyEvent] = []
    try:
        decoder = codec.decoder(call, encoded)
        for piece in pieces:
            decoder.feed(piece, events)
        decoder.finish(events)
    except ProviderError as error:
        return type(error)
    return fold(events)


def one_input(data: bytes) -> None:
    """Which decoder, where to cut, and the bytes."""
    if len(data) < 3:
        return
    which, cut, body = data[0] % len(CALLS), data[1], data[2:]
    at = cut % (len(body) + 1)
    whole, parts = _outcome(which, [body]), _outcome(which, [body[:at], body[at:]])
    if whole != parts:
        message = f"{CALLS[which][0].profile.provider}: {whole!r} whole, {parts!r} when cut at {at}"
        raise AssertionError(message)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
