"""What a reply says of itself beside its content, read from what its decoder kept when somebody asks.

Owns: the likelihood of tokens, what filters found, and the further answers of a reply that was asked for several.
Anything that is not as it should be is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Conversation, Message, ReplyEvent, Text, fold
from dragoman.errors import ProviderError

from .catalogue import Dialect, codec_of
from .codec import Call, Encoded, WireRequest
from .profile import Profile
from .wire import MALFORMED, as_items, as_object, as_objects, elements, integer, join_members, members, value_of

Fields = Mapping[str, Raw]


class TokenLogprob(Struct, frozen=True):
    """How likely a token was, as a natural logarithm, and which tokens might have stood in its place."""

    token: str
    logprob: float
    alternatives: tuple[TokenLogprob, ...] = ()


class SafetyRating(Struct, frozen=True, kw_only=True):
    """What a filter of the provider found in a prompt or an answer."""

    category: str
    """In the provider's words, as is the level."""
    source: Literal["prompt", "answer"]
    level: str | None = None
    score: float | None = None
    blocked: bool = False
    """Whether it was withheld for this."""


def logprobs_of(message: Message) -> tuple[TokenLogprob, ...]:
    """The tokens of a reply and how likely they were; none where `ModelOptions.logprobs` did not ask for them."""
    natives = [message.native, *[block.native for block in message.blocks if isinstance(block, Text)]]
    found: list[TokenLogprob] = []
    for native in natives:
        if native is not None and (read := _LOGPROBS.get(native.provider.partition(":")[0])) is not None:
            found += read(native.fields)
    return tuple(found)


def safety_of(message: Message) -> tuple[SafetyRating, ...]:
    """What the provider's filters found, the prompt's first; of several about the same the last one."""
    native = message.native
    read = _SAFETY.get(native.provider.partition(":")[0]) if native is not None else None
    found = read(native.fields) if native is not None and read is not None else ()
    latest = {(rating.source, rating.category): rating for rating in found}
    return tuple(sorted(latest.values(), key=lambda rating: rating.source != "prompt"))


def choices_of(message: Message) -> tuple[Message, ...]:
    """All answers of a reply, itself the first; the others report no usage of their own."""
    native = message.native
    if native is None or (dialect := native.provider.partition(":")[0]) not in _CHOICES:
        return (message,)
    further: dict[int, list[bytes]] = {}
    for raw in elements(native.fields.get(_CHOICES[dialect][0])):
        try:
            piece = members(raw)
        except MALFORMED:
            continue
        further.setdefault(integer(piece.get("index")) or 0, []).append(join_members({**piece, "index": b"0"}))
    return (message, *[_answer(message, dialect, native.fields, further[index]) for index in sorted(further)])


# --- the likelihood of tokens -----------------------------------------------------------------------------------------


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _token(one: Mapping[str, object], name: str, others: Iterable[Mapping[str, object]]) -> Iterator[TokenLogprob]:
    token, logprob = one.get("token"), _float(one.get(name))
    if isinstance(token, str) and logprob is not None:
        yield TokenLogprob(token, logprob, tuple([found for other in others for found in _token(other, name, ())]))


def _openai_tokens(listed: object) -> Iterator[TokenLogprob]:
    for one in as_objects(listed):
        yield from _token(one, "logprob", as_objects(one.get("top_logprobs")))


def _chat_logprobs(fields: Fields) -> Iterator[TokenLogprob]:
    found = as_object(as_object(value_of(fields.get("choice"))).get("logprobs"))
    yield from _openai_tokens(found.get("content"))
    yield from _openai_tokens(found.get("refusal"))


def _response_logprobs(fields: Fields) -> Iterator[TokenLogprob]:
    return _openai_tokens(value_of(fields.get("logprobs")))


def _gemini_logprobs(fields: Fields) -> Iterator[TokenLogprob]:
    found = as_object(value_of(fields.get("logprobsResult")))
    others = [as_objects(as_object(each).get("candidates")) for each in as_items(found.get("topCandidates"))]
    for place, one in enumerate(as_items(found.get("chosenCandidates"))):
        yield from _token(as_object(one), "logProbability", others[place] if place < len(others) else ())


_LOGPROBS: Final[dict[str, Callable[[Fields], Iterator[TokenLogprob]]]] = {
    "openai_chat": _chat_logprobs,
    "openai_responses": _response_logprobs,
    "gemini": _gemini_logprobs,
}


# --- what filters found -----------------------------------------------------------------------------------------------

_Source = Literal["prompt", "answer"]


def _rating(
    source: _Source, category: object, level: object = None, score: object = None, *, blocked: object = False
) -> Iterator[SafetyRating]:
    if isinstance(category, str) and category:
        word = level if isinstance(level, str) and level else None
        yield SafetyRating(category=category, source=source, level=word, score=_float(score), blocked=blocked is True)


def _filtered(source: _Source, results: object) -> Iterator[SafetyRating]:
    """Azure's results: what was looked for, and how bad it is or whether it is there at all."""
    for category, result in as_object(results).items():
        about = as_object(result)
        if "filtered" in about:
            level = about.get("severity") or ("detected" if about.get("detected") is True else None)
            yield from _rating(source, category, level, blocked=about["filtered"])


def _chat_safety(fields: Fields) -> Iterator[SafetyRating]:
    for prompt in as_objects(value_of(fields.get("prompt_filter_results"))):
        yield from _filtered("prompt", prompt.get("content_filter_results") or prompt.get("content_filter_result"))
    choice = as_object(value_of(fields.get("choice")))
    yield from _filtered("answer", choice.get("content_filter_results") or choice.get("content_filter_result"))


def _response_safety(fields: Fields) -> Iterator[SafetyRating]:
    for one in as_objects(value_of(fields.get("content_filters"))):
        source: _Source = "prompt" if one.get("source_type") == "prompt" else "answer"
        yield from _filtered(source, one.get("content_filter_results"))


def _gemini_safety(fields: Fields) -> Iterator[SafetyRating]:
    of_prompt = as_object(value_of(fields.get("promptFeedback"))).get("safetyRatings")
    sides: tuple[tuple[_Source, object], ...] = (
        ("prompt", of_prompt),
        ("answer", value_of(fields.get("safetyRatings"))),
    )
    for source, ratings in sides:
        for one in as_objects(ratings):
            level, score, blocked = one.get("probability"), one.get("probabilityScore"), one.get("blocked")
            yield from _rating(source, one.get("category"), level, score, blocked=blocked)


# Of each policy of a guardrail: the lists in which it says what it found.
_POLICIES: Final = {
    "topicPolicy": ("topics",),
    "contentPolicy": ("filters",),
    "wordPolicy": ("customWords", "managedWordLists"),
    "sensitiveInformationPolicy": ("piiEntities", "regexes"),
    "contextualGroundingPolicy": ("filters",),
}


def _bedrock_safety(fields: Fields) -> Iterator[SafetyRating]:
    guardrail = as_object(as_object(value_of(fields.get("trace"))).get("guardrail"))
    for one in as_object(guardrail.get("inputAssessment")).values():
        yield from _assessed("prompt", as_object(one))
    for listed in as_object(guardrail.get("outputAssessments")).values():
        for one in as_objects(listed):
            yield from _assessed("answer", one)


def _assessed(source: _Source, assessment: dict[str, object]) -> Iterator[SafetyRating]:
    for policy, lists in _POLICIES.items():
        for one in [one for name in lists for one in as_objects(as_object(assessment.get(policy)).get(name))]:
            # A topic and a pattern have names of their own, a word only itself; the type of a topic is always "DENY".
            category = one.get("name") or one.get("type") or one.get("match")
            blocked = one.get("action") == "BLOCKED"
            yield from _rating(source, category, one.get("confidence"), one.get("score"), blocked=blocked)


_SAFETY: Final[dict[str, Callable[[Fields], Iterator[SafetyRating]]]] = {
    "openai_chat": _chat_safety,
    "openai_responses": _response_safety,
    "gemini": _gemini_safety,
    "bedrock": _bedrock_safety,
}


# --- further answers --------------------------------------------------------------------------------------------------

_CHOICES: Final = {"openai_chat": ("choices", "id", "model"), "gemini": ("candidates", "responseId", "modelVersion")}
"""Where the pieces of further answers are kept, and what a reply calls its id and its model."""


def _answer(message: Message, dialect: str, fields: Fields, pieces: list[bytes]) -> Message:
    """One further answer, which its pieces make a reply of its own: the decoder that read the first reads it too."""
    name, id, model = _CHOICES[dialect]
    about = {id: msgspec.json.encode(message.id or ""), model: msgspec.json.encode(message.model or "")}
    chunks = [join_members({**about, name: b"[" + piece + b"]"}) for piece in pieces]
    body = chunks[0] if not chunks[1:] else b"".join([b"data: " + chunk + b"\n\n" for chunk in [*chunks, b"[DONE]"]])
    profile = Profile(provider=message.provider or "", dialect=dialect)
    call = Call(
        model=message.model or "",
        conversation=Conversation(),
        profile=profile,
        stream=bool(chunks[1:]),
        time=message.time,
    )
    names = {wire: own for wire, own in as_object(value_of(fields.get("tool_names"))).items() if isinstance(own, str)}
    encoded = Encoded(request=WireRequest(path=""), tool_names=names)
    decoder, events = codec_of(cast("Dialect", dialect)).decoder(call, encoded), list[ReplyEvent]()
    try:
        decoder.feed(body, events)
        decoder.finish(events)
    except ProviderError:
        pass  # what came before is there, marked as interrupted
    return fold(events)
