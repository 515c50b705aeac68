"""Replies of a given schema, also from models that have no feature of their own for them.

Owns: how they are asked for. "tool": the answer is the call of a tool made up for it, whose arguments have the schema.
"prompt": the model is asked for bare JSON. Either way the reply becomes a text of JSON, as with the native feature.
Where an answer has to be an object but is not meant to be one, it is asked for as the one property of an object.
Must not know: any dialect. A call is changed before a codec sees it; answers.py undoes it in the events.

A model may write some words before it calls the tool; `answer_text` takes the answer alone.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Message, OneTool, Text, ToolChoice, ToolSpec

from .answers import WRAPPING, AnswerReader
from .codec import Call
from .options import ResponseFormat
from .schema.read import Document, reference_of
from .schema.rules import Schema, is_array, is_object, map_subschemas

__all__ = ["AnswerReader", "answer_text", "prepare"]


def prepare(call: Call) -> tuple[Call, AnswerReader | None]:
    """The call as the model can take it, and what reads its reply; the call itself where nothing is to be done."""
    wanted = call.options.response_format
    if wanted is None:
        return call, None
    if call.profile.structured == "native":
        return _natively(call, wanted)
    if call.profile.structured == "tool" and call.profile.tools:
        return _with_tool(call, wanted)
    return _with_prompt(call, wanted), AnswerReader(fenced=True)


def _natively(call: Call, wanted: ResponseFormat) -> tuple[Call, AnswerReader | None]:
    schema, wrapped = _as_object(wanted.schema)
    if not wrapped:
        return call, None
    options = msgspec.structs.replace(call.options, response_format=msgspec.structs.replace(wanted, schema=schema))
    return msgspec.structs.replace(call, options=options), AnswerReader(wrapped=True)


# --- by a tool --------------------------------------------------------------------------------------------------------


def _with_tool(call: Call, wanted: ResponseFormat) -> tuple[Call, AnswerReader]:
    name = _free_name(wanted.name, {spec.name for spec in call.tools})
    schema, wrapped = _as_object(wanted.schema)
    description = wanted.description or "The answer in its final form."
    spec = ToolSpec(name, f"{description} Call this tool once, to give it.", schema, wanted.strict or None)
    choice = _choice(call, name)
    options = msgspec.structs.replace(call.options, response_format=None, tool_choice=choice)
    if not call.tools and call.profile.parallel_tool_calls and options.parallel_tool_calls is None:
        options = msgspec.structs.replace(options, parallel_tool_calls=False)
    # Where no tool can be named, the caller's "none" is kept by offering no other tool.
    others = call.tools if call.options.tool_choice != "none" or choice == OneTool(name) else ()
    changed = msgspec.structs.replace(call, tools=(*others, spec), options=options)
    if choice != OneTool(name):
        changed = _instructed(changed, f"When you have the answer, give it by calling the tool {name!r}, not as text.")
    return changed, AnswerReader(tool=name, wrapped=wrapped)


def _choice(call: Call, name: str) -> ToolChoice:
    """The strongest choice that leads to the answer and leaves the caller's own tools their part."""
    wanted, possible = call.options.tool_choice, call.profile.tool_choices
    if isinstance(wanted, OneTool):
        return wanted  # the caller wants that one first
    reasoning = call.options.reasoning
    if reasoning is not None and reasoning.effort != "none":
        return "auto"  # models that think refuse to be forced
    alone = not call.tools or wanted == "none"
    if alone and "tool" in possible:
        return OneTool(name)
    return "required" if "required" in possible else "auto"


def _free_name(name: str, taken: Container[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


# --- by asking --------------------------------------------------------------------------------------------------------


def _with_prompt(call: Call, wanted: ResponseFormat) -> Call:
    about = f" ({wanted.description.strip()})" if wanted.description.strip() else ""
    instruction = (
        f"Answer with one JSON value{about} that is valid against the JSON Schema below, and with nothing else: "
        f"no explanation before or after it, no code fence around it.\n\n{bytes(wanted.schema).decode()}"
    )
    options = msgspec.structs.replace(call.options, response_format=None)
    return _instructed(msgspec.structs.replace(call, options=options), instruction)


def _instructed(call: Call, instruction: str) -> Call:
    """The call with one more paragraph of instructions."""
    system = call.conversation.system
    conversation = call.conversation.with_system(f"{system}\n\n{instruction}" if system else instruction)
    return msgspec.structs.replace(call, conversation=conversation)


# --- answers that are no objects --------------------------------------------------------------------------------------

_DEFINITIONS: Final = ("$defs", "definitions")
_LEADS_INSIDE: Final = re.compile(r"#(?:$|/(?!\$defs/|definitions/))")


def _as_object(raw: Raw) -> tuple[Raw, bool]:
    """The schema of an object that is or holds the answer, and whether it holds it."""
    schema = cast("object", msgspec.json.decode(raw))
    document = Document(schema if is_object(schema) else {})
    if _describes_object(schema, document, frozenset()):
        return raw, False
    inner: Schema = schema if is_object(schema) else {"not": {}} if schema is False else {}
    kept = {word: inner[word] for word in _DEFINITIONS if word in inner}
    moved = _moved({word: value for word, value in inner.items() if word not in kept}, "")
    whole: Schema = {"type": "object", "properties": {WRAPPING: moved}, "required": [WRAPPING]}
    definitions = {word: map_subschemas({word: value}, "", _moved)[word] for word, value in kept.items()}
    return Raw(msgspec.json.encode({**whole, "additionalProperties": False, **definitions})), True


def _describes_object(schema: object, document: Document, seen: frozenset[str]) -> bool:
    """Whether a schema is about one kind of object; of alternatives nobody would know which one is meant."""
    if not is_object(schema) or schema.keys() & {"anyOf", "oneOf", "enum", "const"}:
        return False
    if schema.get("type") == "object" or ("type" not in schema and "properties" in schema):
        return True
    if (reference := reference_of(schema)) is not None and "type" not in schema:
        pointer = document.pointer(reference, "")
        return pointer not in seen and _describes_object(document.at(pointer), document, seen | {pointer})
    members = schema.get("allOf")
    return is_array(members) and any(_describes_object(member, document, seen) for member in members)


def _moved(schema: object, _at: str) -> object:
    """A schema whose references still lead to the same places, now that these are inside of an object."""
    if not is_object(schema):
        return schema
    copy = map_subschemas(schema, "", _moved)
    reference = copy.get("$ref")
    if isinstance(reference, str) and _LEADS_INSIDE.match(reference):
        copy["$ref"] = f"#/properties/{WRAPPING}{reference.removeprefix('#')}"
    return copy


# --- the answer alone -------------------------------------------------------------------------------------------------

_FENCED = re.compile(r"```[^\n`]*\n(.*?)\s*```", re.DOTALL)


def answer_text(message: Message) -> str:
    """The JSON of a structured reply: its last text, or what stands in the last code fence of it."""
    texts = [block.text.strip() for block in message.blocks if isinstance(block, Text) and block.text.strip()]
    if not texts:
        return ""
    fenced = _FENCED.findall(texts[-1])
    return fenced[-1] if fenced and texts[-1][:1] not in ("{", "[", '"') else texts[-1]
