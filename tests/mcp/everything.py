"""The server that the official conformance runner asks for, built on ours.

Its tools, resources and prompts have the names and the answers that the runner's requirements list. Run it with
`python -m tests.mcp.everything PORT`.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from dragoman import Media, Text, Tool, ToolRegistry, errors, tool
from dragoman.mcp import McpServer, Offer, ask_client, ask_user, current_request, report_progress, serve_http

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = bytes.fromhex("524946462400000057415645666d74201000000001000100401f0000401f00000100080064617461" + 8 * "0")


@tool
def test_tool_with_progress() -> str:
    """Tell how far it is, from a plain function in a worker thread."""
    for done in (0, 50, 100):
        report_progress(done, 100, f"Completed step {done} of 100")
        time.sleep(0.05)
    return "done"


# What only MCP has: these tools talk to their client through the SDK's own context.


@tool
async def test_tool_with_logging() -> str:
    """Send log messages while it runs."""
    request = current_request()
    assert request is not None
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # logging is deprecated, and still tested
            await request.session.send_log_message("info", text, "everything", related_request_id=request.request_id)
        await asyncio.sleep(0.05)
    return "logged"


def _sampling(text: str, most: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=most))


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties)}


STRING = {"type": "string"}
NAME = _object(name=STRING)


def _fail() -> str:
    raise errors.ToolExecutionError("This tool intentionally returns an error for testing")


def _ask_several() -> dict[str, object]:
    question = types.ElicitRequestFormParams(message="What is your name?", requested_schema=NAME)
    return ask_client(
        user_name=types.ElicitRequest(params=question),
        greeting=_sampling("Generate a greeting", 50),
        client_roots=types.ListRootsRequest(),
    )


def _ask_all(*questions: tuple[str, dict[str, object], str]) -> str:
    return str([ask_user(message, schema, key=key) for message, schema, key in questions])


CONFIRM = ("Please confirm", _object(ok={"type": "boolean"}), "confirm")
COLOUR = ("Step 2: What is your favorite color?", _object(color=STRING), "step2")
DEFAULTS: dict[str, object] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
CHOICES = ["option1", "option2", "option3"]
ENUMS: dict[str, object] = {
    "untitledSingle": {"type": "string", "enum": CHOICES},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": CHOICES}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}

SIMPLE: dict[str, Callable[[], object]] = {
    "test_simple_text": lambda: "This is a simple text response for testing.",
    "test_image_content": lambda: Media.from_bytes(PIXEL, "image/png"),
    "test_audio_content": lambda: Media.from_bytes(SILENCE, "audio/wav"),
    "test_embedded_resource": lambda: Media.from_bytes(
        b"This is an embedded resource content.", "text/plain", name="test://embedded-resource"
    ),
    "test_multiple_content_types": lambda: [
        Text("Multiple content types test:"),
        Media.from_bytes(PIXEL, "image/png"),
        Media.from_bytes(b'{"test":"data","value":123}', "application/json", name="test://mixed-content-resource"),
    ],
    "test_error_handling": _fail,
    "test_input_required_result_elicitation": lambda: _ask_all(("What is your name?", NAME, "user_name")),
    "test_input_required_result_sampling": lambda: str(
        ask_client(capital_question=_sampling("What is the capital of France?"))
    ),
    "test_input_required_result_list_roots": lambda: str(ask_client(client_roots=types.ListRootsRequest())),
    "test_input_required_result_request_state": lambda: f"state-ok {_ask_all(CONFIRM)}",
    "test_input_required_result_tampered_state": lambda: f"state-ok {_ask_all(CONFIRM)}",
    "test_input_required_result_multiple_inputs": lambda: str(_ask_several()),
    "test_input_required_result_capabilities": lambda: str(_ask_several()),
    # Two rounds: the second question needs the answer to the first.
    "test_input_required_result_multi_round": lambda: _ask_all(("Step 1: What is your name?", NAME, "step1"), COLOUR),
    "test_elicitation_sep1034_defaults": lambda: (
        "Elicitation completed: " + _ask_all(("Please review", {"type": "object", "properties": DEFAULTS}, "review"))
    ),
    "test_elicitation_sep1330_enums": lambda: (
        "Elicitation completed: " + _ask_all(("Please choose", {"type": "object", "properties": ENUMS}, "choose"))
    ),
    # Answers in several steps, and never asks by a request of its own.
    "test_streaming_elicitation": lambda: report_progress(1, 2) or "done",
}


@tool
def test_sampling(prompt: str) -> str:
    """Ask the client's model."""
    answer = ask_client(answer=_sampling(prompt))["answer"]
    assert isinstance(answer, types.CreateMessageResult)
    return f"LLM response: {answer.content}"


@tool
def test_elicitation(message: str) -> str:
    """Ask the client's user."""
    return f"User response: {ask_user(message, _object(username=STRING, email=STRING))}"


@tool
def test_missing_capability() -> str:
    """Need something that the client does not have."""
    request = current_request()
    assert request is not None
    needed = types.ClientCapabilities(sampling=types.SamplingCapability())
    if not request.session.check_client_capability(needed):
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "sampling is needed",
            data.model_dump(mode="json", by_alias=True, exclude_none=True),
        )
    return "it is there"


@tool
def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    if "test_dynamic" in TOOLS:
        TOOLS.unregister("test_dynamic")
    else:
        TOOLS.register(Tool.from_function(lambda: "new", name="test_dynamic", description="Was added."))
    return "changed"


@tool
def test_trigger_prompt_change() -> str:
    """Say that the list of prompts has changed."""
    SERVER.changed("prompts")
    return "changed"


test_x_mcp_header = Tool.from_schema(
    lambda **given: f"called with {sorted(given)}",
    {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "query": {"type": "string"},
        },
        "required": ["region", "query"],
    },
    name="test_x_mcp_header",
    description="Has an argument that is repeated in a header.",
)

JSON_SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
json_schema_2020_12_tool = Tool.from_schema(
    lambda **given: f"called with {sorted(given)}",
    JSON_SCHEMA_2020_12,
    name="json_schema_2020_12_tool",
    description="Has a schema with many features.",
)


RESOURCES = [
    Offer(
        "Static Text Resource",
        "A static text resource for testing",
        lambda: "This is the content of the static text resource.",
        "test://static-text",
    ),
    Offer("Static Binary Resource", "A static image for testing", lambda: PIXEL, "test://static-binary", "image/png"),
    Offer("Watched Resource", "A resource", lambda: "Watched resource content", "test://watched-resource"),
    Offer("Template", "A template", lambda id: f"Data for ID: {id}", "test://template/{id}/data"),
]


def with_arguments(arg1: str, arg2: str) -> str:
    return f"Prompt with arguments: arg1={arg1!r}, arg2={arg2!r}"


def with_resource(resourceUri: str) -> list[Text | Media]:  # noqa: N803 -- the runner's name
    return [Media.from_bytes(b"Embedded resource content.", "text/plain", name=resourceUri), Text("Please process it.")]


def asking() -> str:
    return f"{ask_user('What context should the prompt use?', _object(context=STRING), key='user_context')}"


PROMPTS = [
    Offer("test_simple_prompt", "A simple prompt", lambda: "This is a simple prompt for testing."),
    Offer("test_prompt_with_arguments", "With arguments", with_arguments, complete=lambda _, typed: [f"{typed}ing"]),
    Offer("test_prompt_with_embedded_resource", "With a resource", with_resource),
    Offer("test_prompt_with_image", "An image", lambda: [Media.from_bytes(PIXEL, "image/png"), Text("Look.")]),
    Offer("test_input_required_result_prompt", "Asks", asking),
]

TOOLS = ToolRegistry([each for each in list(globals().values()) if isinstance(each, Tool)])
for name, function in SIMPLE.items():
    TOOLS.register(Tool.from_function(function, name=name, description="For the conformance runner."))
TOOLS.register(test_tool_with_logging.renamed("test_logging_tool"))


async def _set_level(_context: object, _params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


def _with_logging(wire: Server[Any]) -> None:
    """Log messages to the client are not ours; the SDK's handlers can be added."""
    wire.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)


SERVER = McpServer(
    TOOLS,
    name="dragoman-everything",
    resources=RESOURCES,
    prompts=PROMPTS,
    watch_seconds=0.1,
    extend=_with_logging,
)


if __name__ == "__main__":
    serve_http(SERVER, port=int(sys.argv[1]))
