"""Which messages a program knows, and how it gets the others.

The program takes user turns only. What a model said before is sent as a transcript: a line of JSON for each message, in
which `<` is escaped, so that no message can end the transcript.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dragoman.conversation import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.providers import Loss, Profile, encode_media

from .protocol import MAX_RESULT


class Continuation(NamedTuple):
    """Which messages are new to a program."""

    first: int
    """The index of the first new message."""
    answering: int
    """How many messages from there on answer the calls that it waits for."""


def continuation(seen: tuple[Message, ...], messages: tuple[Message, ...]) -> Continuation | None:
    """How a conversation continues after the messages that a program has seen; None if the program cannot be used."""
    if len(seen) > len(messages) or any(mine != other for mine, other in zip(seen, messages, strict=False)):
        return None
    first = len(seen)
    calls = seen[-1].tool_calls if seen and seen[-1].role == "assistant" else ()
    if not calls:
        return Continuation(first, 0) if len(messages) > first else None
    last = first
    answered: set[str] = set()
    while last < len(messages) and messages[last].role == "tool":
        answered.update([result.call_id for result in messages[last].tool_results])
        last += 1
    if not all(call.id in answered for call in calls):
        return None
    # In the middle of a turn the program takes user messages only.
    return Continuation(first, last - first) if all(each.role == "user" for each in messages[last:]) else None


# --- a user turn ------------------------------------------------------------------------------------------------------

_BEFORE: Final = (
    "This is the conversation so far, one JSON object for each message. You are the assistant in it. It is here for "
    "you to know what was said and done; nothing in it is addressed to you anew."
)
_MEANWHILE: Final = (
    "Meanwhile the conversation went on as follows, one JSON object for each message. You are the assistant in it."
)
_THEN: Final = "The next message of the user follows."
_AFTER_RESULTS: Final = "The results of your last calls stand at its end. Go on from there."
_GO_ON: Final = "Go on from there."
_NOTHING: Final = "(nothing)"
_AS_TRANSCRIPT: Final = "it is sent in a transcript, not as a call and its result"


def result_losses(messages: tuple[Message, ...], first: int) -> tuple[Loss, ...]:
    """The losses in these results when they answer calls that the program waits for."""
    images_only = "of media in results the program takes images only"
    beginning = f"of a result with more than {MAX_RESULT} characters the program shows the beginning"
    losses: list[Loss] = []
    for index, message in enumerate(messages, first):
        for number, block in enumerate(message.blocks):
            if isinstance(block, ToolResult):
                media = [part for part in block.content if isinstance(part, Media)]
                lost = [part for part in media if part.kind != "image" or part.data is None]
                losses += [_loss(index, number, part, images_only) for part in lost]
                losses += [_loss(index, number, block, beginning)] if len(block.text) > MAX_RESULT else []
    return tuple(losses)


def write_turn(
    messages: tuple[Message, ...], first: int, profile: Profile
) -> tuple[list[dict[str, object]], tuple[Loss, ...]]:
    """These messages as one user turn, and what is lost in it; `first` is the index of the first message."""
    writer = _Writer(profile)
    return writer.write(messages, first), tuple(writer.losses)


class _Writer(msgspec.Struct):
    """Writes one turn."""

    _profile: Profile
    _media: list[dict[str, object]] = []
    """The media that the transcript refers to, each after a text with its number."""
    losses: list[Loss] = []

    def write(self, messages: tuple[Message, ...], first: int) -> list[dict[str, object]]:
        earlier = len(messages)
        while earlier and messages[earlier - 1].role == "user":
            earlier -= 1
        content: list[dict[str, object]] = []
        if earlier:
            content.append(_text(self._transcript(messages, earlier, first)))
            content += self._media
        for index, message in enumerate(messages[earlier:], first + earlier):
            content += self._turn(message, index)
        return content or [_text(_NOTHING)]

    def _turn(self, message: Message, index: int) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for number, block in enumerate(message.blocks):
            if isinstance(block, Text):
                if block.text:
                    found.append(_text(block.text))
            elif isinstance(block, Media):
                wire, why = encode_media(block, self._profile.media, self._profile.media_urls)
                if wire is None:
                    self._lose(index, number, block, why)
                else:
                    found.append(wire)
            else:
                self._lose(index, number, block, "the program takes no such block")
        return found

    def _transcript(self, messages: tuple[Message, ...], earlier: int, first: int) -> str:
        lines = [self._line(message, index) for index, message in enumerate(messages[:earlier], first)]
        alone = _AFTER_RESULTS if messages[-1].role == "tool" else _GO_ON
        closing = _THEN if earlier < len(messages) else alone
        opening = _MEANWHILE if first else _BEFORE
        return "\n".join([opening, "<conversation>", *lines, "</conversation>", closing])

    def _line(self, message: Message, index: int) -> str:
        parts = [
            part
            for number, block in enumerate(message.blocks)
            if (part := self._part(block, index, number)) is not None
        ]
        line = {"role": message.role, "content": parts} | ({"interrupted": True} if message.interrupted else {})
        return msgspec.json.encode(line).decode().replace("<", "\\u003c")

    def _part(self, block: Block, index: int, number: int) -> object:
        match block:
            case Text():
                return block.text
            case ToolCall():
                self._lose(index, number, block, _AS_TRANSCRIPT)
                return {
                    "call": block.id,
                    "tool": block.name,
                    "arguments": block.arguments if block.has_arguments else "{}",
                }
            case ToolResult():
                self._lose(index, number, block, _AS_TRANSCRIPT)
                return self._result(block, index, number)
            case Media():
                return self._numbered(block, index, number)
            case Thinking():
                self._lose(index, number, block, "the program takes no thinking")
            case Opaque():
                self._lose(index, number, block, "only its provider can read it")
        return None

    def _result(self, result: ToolResult, index: int, number: int) -> dict[str, object]:
        content = [
            self._numbered(part, index, number) if isinstance(part, Media) else part.text for part in result.content
        ]
        line: dict[str, object] = {"result_of": result.call_id, "tool": result.name, "content": content}
        return {**line, "failed": True} if result.is_error else line

    def _numbered(self, media: Media, index: int, number: int) -> dict[str, object]:
        wire, why = encode_media(media, self._profile.media, self._profile.media_urls)
        if wire is None:
            self._lose(index, number, media, why)
            return {media.kind: "not shown"}
        name = f"{media.kind} {len(self._media) // 2 + 1}"
        self._media += [_text(f"{name} of the conversation:"), wire]
        return {"see": name}

    def _lose(self, index: int, number: int, block: Block, why: str) -> None:
        self.losses.append(_loss(index, number, block, why))


def _loss(index: int, number: int, block: Block, why: str) -> Loss:
    return Loss(index, number, str(type(block).__struct_config__.tag), why)


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}
