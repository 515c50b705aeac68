"""Tools, calls, results and schemas as texts that a small model reads.

A conversation becomes plain messages that alternate between user and assistant, which every chat template can take:
whether a model's own template knows tools, and how, makes no difference. The wording was chosen by measuring
(bench/local_quality.py). The fence is not the usual one for JSON, so that somebody who asks for JSON while there are
tools gets JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import (
    Conversation,
    Json,
    Media,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.providers import Loss, description_with_examples

FENCE: Final = "```tool_call"
CLOSING: Final = "}\n```"
INSTEAD: Final = "\n\nThere is no such function, so I answer in plain text:\n\n"
"""What a model is made to write after a call of a function that it does not have; it and the call are not shown."""

_TOOLS: Final = """# Tools

You may call one function to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

{when}return a JSON object with its name and arguments in a tool_call code block:
```tool_call
{{"name": <function-name>, "arguments": <args-json-object>}}
```"""
_MAY: Final = "If a function is needed, "
_MUST: Final = "Call a function: "
_INSTEAD: Final = "\nIf no function is needed, answer the user directly in plain text."
_NOBODY: Final = "You are a helpful assistant."

_REMINDER: Final = (
    "{question}\n\n(If one of the functions {names} is needed for this, reply with its tool_call code block. Otherwise "
    "answer in plain text.)"
)
_RESULT: Final = "Function result of {name}:\n{text}\n\nUse this result to answer the user in plain text."
_ERROR: Final = "The function {name} failed:\n{text}\n\nTell the user, or call it again with other arguments."
_ANSWER: Final = "{question}\n\nAnswer with one JSON value{about} that is valid against this JSON Schema:\n{schema}"


def call_start(name: str) -> str:
    """All that stands before the arguments of a call, as the model is told to write it."""
    return f'{FENCE}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


def start_parts(name: str) -> tuple[str, ...]:
    """The same in parts, between which any blanks may stand: models like to spread JSON over many lines."""
    return (FENCE, "{", '"name"', ":", json.dumps(name, ensure_ascii=False), ",", '"arguments"', ":")


def write_call(name: str, arguments: str) -> str:
    """A whole call."""
    return call_start(name) + arguments + CLOSING


def add_tools(system: str | None, tools: Sequence[ToolSpec], *, must_call: bool) -> str | None:
    """The system prompt, with the tools behind it."""
    if not tools:
        return system
    functions = [
        {"name": each.name, "description": description_with_examples(each), "parameters": each.parameters}
        for each in tools
    ]
    lines = [msgspec.json.encode({"type": "function", "function": function}).decode() for function in functions]
    described = _TOOLS.format(tools="\n".join(lines), when=_MUST if must_call else _MAY)
    return f"{system or _NOBODY}\n\n{described}{'' if must_call else _INSTEAD}"


def add_reminder(conversation: Conversation, tools: Sequence[ToolSpec], *, must_call: bool) -> Conversation:
    """The conversation whose last question reminds of the tools: after some talk a small model forgets them.

    Measured with the default model: 11 of 20 right choices after small talk without, 20 with it. The first question
    needs no reminder, and is better off without.
    """
    *earlier, last = conversation.messages
    if last.role != "user" or must_call or not earlier:
        return conversation
    names = ", ".join([spec.name for spec in tools])
    return conversation.up_to(len(earlier)).plus(Message.user(_REMINDER.format(question=last.text, names=names)))


def ask_for_schema(conversation: Conversation, schema: Raw, description: str) -> Conversation:
    """The conversation whose last question asks for an answer of a schema."""
    about = f" ({description.strip()})" if description.strip() else ""
    *earlier, last = conversation.messages
    question = _ANSWER.format(question=last.text, about=about, schema=bytes(schema).decode())
    if last.role != "user":  # the model is to go on after its own words
        return conversation.plus(Message.user(question.removeprefix(last.text).strip()))
    return conversation.up_to(len(earlier)).plus(Message.user(question))


# --- a conversation as texts ------------------------------------------------------------------------------------------


def to_plain_text(conversation: Conversation, system: str | None) -> tuple[Conversation, tuple[Loss, ...]]:
    """The conversation in texts alone, and what of it is not in them."""
    losses: list[Loss] = []
    turns: list[tuple[str, list[str]]] = []
    for at, message in enumerate(conversation.messages):
        role = "assistant" if message.role == "assistant" else "user"
        texts = [text for place, block in enumerate(message.blocks) if (text := _text(at, place, block, losses))]
        if not texts:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(texts)
        else:
            turns.append((role, texts))
    makers = {"assistant": Message.assistant, "user": Message.user}
    messages = [makers[role]("\n\n".join(texts)) for role, texts in turns]
    return Conversation(system).plus(*messages), tuple(losses)


def _text(at: int, place: int, block: object, losses: list[Loss]) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return write_call(block.name, block.arguments.strip() or "{}")
        case ToolResult():
            return _result(at, place, block, losses)
        case Thinking():
            if block.provider != "local":  # its own is not sent back, as usual with such models
                losses.append(Loss(at, place, "thinking", "a local model cannot read it"))
        case Media():
            losses.append(Loss(at, place, "media", f"a local model takes no {block.kind}"))
        case Opaque():
            losses.append(Loss(at, place, "opaque", f"only {block.provider} can read it"))
        case _:
            raise TypeError(block)
    return ""


def _result(at: int, place: int, result: ToolResult, losses: list[Loss]) -> str:
    texts: list[str] = []
    for part in result.content:
        if isinstance(part, Text | Json):
            texts.append(part.text)
        else:
            losses.append(Loss(at, place, "media", f"a local model takes no {part.kind}"))
            texts.append(f"[{part.kind}, left out]")
    if not texts and result.structured is not None:
        texts.append(result.structured.text)
    form = _ERROR if result.is_error else _RESULT
    return form.format(name=result.name, text="\n".join(texts).strip() or "(nothing)")
