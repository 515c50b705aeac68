"""Log probabilities, safety ratings and further answers, read on demand from the raw JSON that a reply keeps.

Malformed data is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Conversation, Fold, Message, Native, ReplyEvent, Text
from dragoman.errors import ProviderError

from .catalogue import Dialect, codec_of
from .codec import Call, Encoded, WireRequest
from .profile import Profile
from .wire import as_items, as_object, as_objects, elements, integer, is_object, join_members, members, value_of

Fields: TypeAlias = Mapping[str, Raw]


class TokenLogprob(Struct, frozen=True):
    """The natural logarithm of a token's probability, and the alternatives to the token."""

    token: str
    logprob: float
    alternatives: tuple[TokenLogprob, ...] = ()


_Source: TypeAlias = Literal["prompt", "answer"]


class SafetyRating(Struct, frozen=True):
    """The result of a provider's filter for a prompt or an answer."""

    category: str
    """The provider's own name, as is the level."""
    source: _Source
    level: str | None = None
    score: float | None = None
    blocked: bool = False
    """Whether the content was withheld because of it."""


def _dialect(native: Native | None) -> str:
    return "" if native is None else native.provider.partition(":")[0]


def logprobs_of(message: Message) -> tuple[TokenLogprob, ...]:
    """The tokens of a reply with their log probabilities; empty unless `ModelOptions.logprobs` asked for them."""
    natives = [message.native, *[block.native for block in message.blocks if isinstance(block, Text)]]
    readable = [each for each in natives if each is not None and _dialect(each) in _LOGPROBS]
    return tuple([token for native in readable for token in _LOGPROBS[_dialect(native)](native.fields)])


def safety_of(message: Message) -> tuple[SafetyRating, ...]:
    """The provider's safety ratings, those of the prompt first; the last one of each category counts."""
    native, found = message.native, dict[tuple[_Source, str], SafetyRating]()
    if native is None or (dialect := _dialect(native)) not in _SAFETY:
        return ()
    for source, category, level, score, blocked in _SAFETY[dialect](native.fields):
        if isinstance(category, str) and category:
            word = level if isinstance(level, str) and level else None
            found[source, category] = SafetyRating(category, source, word, _float(score), blocked is True)
    return tuple(sorted(found.values(), key=lambda rating: rating.source != "prompt"))


def choices_of(message: Message) -> tuple[Message, ...]:
    """All answers of a reply, the reply itself first; the others have no usage."""
    native, further = message.native, dict[int, list[bytes]]()
    if native is None or (dialect := _dialect(native)) not in _CHOICES:
        return (message,)
    for raw in filter(is_object, elements(native.fields.get(_CHOICES[dialect][0]))):
        piece = members(raw)
        further.setdefault(integer(piece.get("index")) or 0, []).append(join_members({**piece, "index": b"0"}))
    return (message, *[_answer(message, dialect, native.fields, further[index]) for index in sorted(further)])


# --- log probabilities ------------------------------------------------------------------------------------------------


def _inside(fields: Fields, name: str, *path: str) -> object:
    value = value_of(fields.get(name))
    for step in path:
        value = as_object(value).get(step)
    return value


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return float(value)


def _tokens(one: object, others: object, name: str = "logprob") -> Iterator[TokenLogprob]:
    """A token with its alternatives; nothing if the object is not one."""
    token, logprob = as_object(one).get("token"), _float(as_object(one).get(name))
    if isinstance(token, str) and logprob is not None:
        alternatives = [found for other in as_items(others) for found in _tokens(other, (), name)]
        yield TokenLogprob(token, logprob, tuple(alternatives))


def _openai_logprobs(fields: Fields) -> Iterator[TokenLogprob]:
    """In a text of the responses API, or in the choice of the chat API."""
    for path in (("logprobs",), ("choice", "logprobs", "content"), ("choice", "logprobs", "refusal")):
        for one in as_objects(_inside(fields, *path)):
            yield from _tokens(one, one.get("top_logprobs"))


def _gemini_logprobs(fields: Fields) -> Iterator[TokenLogprob]:
    chosen, tops = [as_items(_inside(fields, "logprobsResult", f"{name}Candidates")) for name in ("chosen", "top")]
    for one, top in zip_longest(chosen, tops[: len(chosen)]):
        yield from _tokens(one, as_object(top).get("candidates"), "logProbability")


_LOGPROBS: Final[dict[str, Callable[[Fields], Iterator[TokenLogprob]]]] = {
    "openai_chat": _openai_logprobs,
    "openai_responses": _openai_logprobs,
    "gemini": _gemini_logprobs,
}


# --- safety ratings ---------------------------------------------------------------------------------------------------

_Ratings: TypeAlias = Iterator[tuple[_Source, object, object, object, object]]
"""Source, category, level, score and whether it was blocked, not validated yet."""


def _azure_results(source: _Source, results: object) -> _Ratings:
    """Azure's results by category: with a severity, or only whether it was detected."""
    for category, result in as_object(results).items():
        about = as_object(result)
        if "filtered" in about:
            level = about.get("severity") or ("detected" if about.get("detected") is True else None)
            yield source, category, level, None, about["filtered"]


def _openai_safety(fields: Fields) -> _Ratings:
    """Azure's results: beside the prompts and the choice of the chat API, or in a list of the responses API."""
    for prompt in as_objects(_inside(fields, "prompt_filter_results")):
        yield from _azure_results("prompt", prompt.get("content_filter_results"))
    yield from _azure_results("answer", _inside(fields, "choice", "content_filter_results"))
    for side in as_objects(_inside(fields, "content_filters")):
        source: _Source = "prompt" if side.get("source_type") == "prompt" else "answer"
        yield from _azure_results(source, side.get("content_filter_results"))


def _gemini_safety(fields: Fields) -> _Ratings:
    of_prompt, of_answer = _inside(fields, "promptFeedback", "safetyRatings"), _inside(fields, "safetyRatings")
    sides: tuple[tuple[_Source, object], ...] = (("prompt", of_prompt), ("answer", of_answer))
    for source, ratings in sides:
        for one in as_objects(ratings):
            yield source, one.get("category"), one.get("probability"), one.get("probabilityScore"), one.get("blocked")


# The lists of findings of a guardrail's policies.
_POLICIES: Final = (
    ("topicPolicy", "topics"),
    ("contentPolicy", "filters"),
    ("wordPolicy", "customWords"),
    ("wordPolicy", "managedWordLists"),
    ("sensitiveInformationPolicy", "piiEntities"),
    ("sensitiveInformationPolicy", "regexes"),
    ("contextualGroundingPolicy", "filters"),
)


def _bedrock_safety(fields: Fields) -> _Ratings:
    sides: tuple[tuple[_Source, str], ...] = (("prompt", "inputAssessment"), ("answer", "outputAssessments"))
    for source, side in sides:
        for each in as_object(_inside(fields, "trace", "guardrail", side)).values():
            for assessment in as_objects(as_items(each) or [each]):
                yield from _findings_of(source, assessment)


def _findings_of(source: _Source, assessment: dict[str, object]) -> _Ratings:
    for policy, name in _POLICIES:
        for one in as_objects(as_object(assessment.get(policy)).get(name)):
            # Topics and patterns have names, words only a match; the type of a topic is always the same.
            category = one.get("name") or one.get("type") or one.get("match")
            yield source, category, one.get("confidence"), one.get("score"), one.get("action") == "BLOCKED"


_SAFETY: Final[dict[str, Callable[[Fields], _Ratings]]] = {
    "openai_chat": _openai_safety,
    "openai_responses": _openai_safety,
    "gemini": _gemini_safety,
    "bedrock": _bedrock_safety,
}


# --- further answers --------------------------------------------------------------------------------------------------

_CHOICES: Final = {"openai_chat": ("choices", "id", "model"), "gemini": ("candidates", "responseId", "modelVersion")}
"""The member with the further answers, and the names of a reply's id and model."""


def _answer(message: Message, dialect: str, fields: Fields, pieces: list[bytes]) -> Message:
    """One further answer: its pieces are written as a reply of its own and decoded."""
    name, id, model = _CHOICES[dialect]
    about = {id: msgspec.json.encode(message.id or ""), model: msgspec.json.encode(message.model or "")}
    chunks = [join_members({**about, name: b"[" + piece + b"]"}) for piece in pieces]
    body = chunks[0] if not chunks[1:] else b"".join([b"data: " + chunk + b"\n\n" for chunk in [*chunks, b"[DONE]"]])
    call = Call(
        model=message.model or "",
        conversation=Conversation(),
        profile=Profile(provider=message.provider or "", dialect=dialect),
        time=message.time,
    )
    names = {wire: own for wire, own in as_object(_inside(fields, "tool_names")).items() if isinstance(own, str)}
    encoded = Encoded(request=WireRequest(path=""), tool_names=names)
    decoder, events, state = codec_of(cast("Dialect", dialect)).decoder(call, encoded), list[ReplyEvent](), Fold()
    with suppress(ProviderError):  # what was read before it is kept, marked as interrupted
        decoder.feed(body, events)
        decoder.finish(events)
    state.extend(events)
    return state.message()
