"""The protocol between us and one claude program, without I/O: a line in, and what to do about it.

It has messages and control requests, ours and the program's. Our tools are an MCP server at the other end of its
control channel. The program requests tool calls one by one or several at once, before or after the model's message is
complete, and handles some itself (of an unknown tool, or with arguments that are not JSON). So results are kept until
they are requested, and requests until there is a result.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import check_depth, decoder_of
from dragoman._version import __version__
from dragoman.conversation import Json, Media, ReplyEvent, ResultPart, Text, ToolCall, ToolResult, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import ToolNames, description_with_examples
from dragoman.tools import Allow, Ask, Deny

from .decode import PREFIX, STRUCTURED, ReplyReader, parse_arguments

SERVER: Final = "dragoman"
MAX_RESULT: Final = 500_000
"""Characters of a result that reach the model; of a longer one the program shows the beginning."""

_TOO_OLD: Final = ("0.", "1.", "2.0.")
"""Versions whose `initialize` silently ignores the system prompt."""
_NOT_YOURS: Final = "Only the conversation itself can call this tool, not a subagent of the program."
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, KeyError, TypeError, AttributeError)
_decode = decoder_of(dict[str, Any]).decode

_Message: TypeAlias = dict[str, Any]


class Question(NamedTuple):
    """The program asks whether it may use one of its own tools."""

    request: str
    call: ToolCall


class Received(Struct):
    """What one line of the program led to."""

    out: list[bytes] = []
    """Lines to write to the program."""
    events: list[ReplyEvent] = []
    questions: list[Question] = []
    result: _Message | None = None
    """The turn is over."""
    retry: _Message | None = None
    """The program retries a request to the provider."""


class Dialogue(Struct, eq=False):
    """The state of the protocol with one program."""

    tools: Sequence[Raw]
    names: Mapping[str, str]
    structured: bool
    session: str = ""
    failure: str | None = None
    """The program's name for the last failure."""
    greeted: bool = False
    """Whether it has written anything."""
    cost: float = 0.0
    """In dollars, since the program was started."""
    charged: float = 0.0
    """What the replies of this turn that called tools were charged."""
    reader: ReplyReader | None = None
    """Of the current reply."""
    own_tools: set[str] = set()
    """The names of the tools that the program runs itself."""
    _own_calls: set[str] = set()
    _calls: list[ToolCall] = []
    """Calls of our tools in the last reply that have no result yet."""
    _requested: dict[str, tuple[str, object]] = {}
    """Calls whose results the program waits for: its request, and the id of the message in it."""
    _results: dict[str, ToolResult] = {}

    def will_request(self, calls: Iterable[ToolCall]) -> bool:
        """Whether the program requests at least one of these calls from us, sooner or later."""
        ours = frozenset(self.names.values())
        return any(call.name in ours and isinstance(parse_arguments(call.arguments), dict) for call in calls)

    # --- our lines ---

    @staticmethod
    def opening(request: Mapping[str, object]) -> bytes:
        return _line({"type": "control_request", "request_id": "opening", "request": request})

    @staticmethod
    def turn(content: list[dict[str, object]]) -> bytes:
        message = {"role": "user", "content": content}
        return _line({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""})

    def end_with_calls(self) -> None:
        """The current reply is over: it ends with calls of our tools, whose results follow."""
        self._calls = [] if self.reader is None else list(self.reader.calls)
        self._results.clear()  # of earlier calls that the program never requested
        self.reader = None

    def give(self, results: Iterable[ToolResult]) -> list[bytes]:
        """Take the results of the last calls. Returns the answers to those that were requested already."""
        for result in results:
            self._results[result.call_id] = result
        return [self._answer(id) for id in list(self._requested) if id in self._results]

    def _answer(self, id: str) -> bytes:
        (request, message), result = self._requested.pop(id), self._results.pop(id)
        self._calls = [call for call in self._calls if call.id != id]
        return _success(request, {"mcp_response": result_of(message, result)})

    @staticmethod
    def decide(question: Question, decision: Allow | Deny | Ask) -> bytes:
        """The answer to a question about one of the program's own tools."""
        if isinstance(decision, Allow):
            arguments = Raw((decision.arguments or question.call.arguments).encode())
            return _success(question.request, {"behavior": "allow", "updatedInput": arguments})
        reason = decision.reason or "not permitted"
        if isinstance(decision, Ask):
            reason = f"a person would have to approve this first{f': {decision.reason}' if decision.reason else ''}"
        return _success(question.request, {"behavior": "deny", "message": reason})

    # --- its lines ---

    def receive(self, line: bytes) -> Received:
        """Handle one line of the program. Whatever is not a known message is ignored."""
        received = Received()
        with suppress(*_UNREADABLE):  # including a known message of an unknown shape
            check_depth(line)
            message = _decode(line)
            handler = self._HANDLERS.get(message["type"])
            self.greeted = True
            if handler is not None and message.get("parent_tool_use_id") is None:  # not of a subagent
                handler(self, message, received)
        return received

    def _stream(self, message: _Message, received: Received) -> None:
        if self.reader is not None and not self.reader.complete:
            self.reader.stream(message["event"], received.events)

    def _assistant(self, message: _Message, received: Received) -> None:
        reply = message["message"]
        self.failure = message.get("error")
        if self.reader is None or self.reader.complete:
            return
        for block in reply.get("content", ()):
            if block.get("type") == "tool_use" and block.get("name") in self.own_tools:
                self._own_calls.add(block["id"])
        self.reader.whole(reply, received.events)

    def _user(self, message: _Message, received: Received) -> None:
        """Tool results, as the program sends them to its model."""
        if self.reader is None:
            return
        self.reader.settle(received.events)
        content = message["message"].get("content")
        for block in () if isinstance(content, str) else content:
            if block.get("tool_use_id") in self._own_calls:
                self._own_calls.discard(block["tool_use_id"])
                self.reader.own_result(block, received.events)

    def _result(self, message: _Message, received: Received) -> None:
        received.result = message

    def _system(self, message: _Message, received: Received) -> None:
        if message["subtype"] == "init":
            self.session = str(message.get("session_id") or "")
            version = str(message.get("claude_code_version"))
            if version.startswith(_TOO_OLD):
                problem = f"The claude program has version {version}; 2.1 or newer is needed."
                raise ConfigurationError(problem, hint="Run `claude update`.")
            own_tools = [name for name in message["tools"] if not name.startswith(PREFIX)]
            self.own_tools.clear()
            self.own_tools.update(own_tools)
        elif message["subtype"] == "api_retry":
            received.retry = message

    # --- its requests ---

    def _control(self, message: _Message, received: Received) -> None:
        id = str(message["request_id"])
        try:
            request = message["request"]
            if request["subtype"] == "mcp_message":
                self._mcp(id, request["message"], received)
            elif request["subtype"] == "can_use_tool":
                self._can_use(id, request, received)
            else:
                received.out.append(_failure(id, f"dragoman does not know the request {request['subtype']!r}"))
        except _UNREADABLE as error:
            received.out.append(_failure(id, f"the request cannot be read ({type(error).__name__})"))

    def _mcp(self, request: str, message: _Message, received: Received) -> None:
        if message.get("method") == "notifications/cancelled":
            self._forget(lambda pending: pending[1] == message["params"]["requestId"])
        if message.get("method") != "tools/call" or "id" not in message:
            received.out.append(_success(request, {"mcp_response": answer_mcp(message, self.tools)}))
            return
        if self.reader is not None:
            self.reader.settle(received.events)
        id = self._id_of(message["params"])
        if id is None:
            refusal = result_of(message["id"], ToolResult("", "", (Text(_NOT_YOURS),), is_error=True))
            received.out.append(_success(request, {"mcp_response": refusal}))
            return
        self._requested[id] = (request, message["id"])
        if id in self._results:
            received.out.append(self._answer(id))

    def _id_of(self, parameters: _Message) -> str | None:
        """The id of the call in the reply; None if it is not in the reply."""
        id = parameters.get("_meta", {}).get("claudecode/toolUseId")
        # While a message is streamed, its call may be requested before it is complete.
        begun = self.reader.ids if self.reader is not None else frozenset[str]()
        return id if id in begun or id in self._results or any(call.id == id for call in self._calls) else None

    def _can_use(self, id: str, request: _Message, received: Received) -> None:
        name, arguments = str(request["tool_name"]), msgspec.json.encode(request["input"]).decode()
        question = Question(id, ToolCall(str(request.get("tool_use_id") or id), name, arguments))
        if name.startswith(PREFIX) or (self.structured and name == STRUCTURED):
            received.out.append(self.decide(question, Allow()))  # our executor decides when it runs it
        else:
            received.questions.append(question)

    def _cancelled(self, message: _Message, _received: Received) -> None:
        """The program no longer wants an answer to one of its requests."""
        self._forget(lambda pending: pending[0] == message["request_id"])

    def _forget(self, matches: Callable[[tuple[str, object]], bool]) -> None:
        self._requested = {id: pending for id, pending in self._requested.items() if not matches(pending)}

    def _answered(self, message: _Message, _received: Received) -> None:
        """The answer to our opening, which may be a refusal."""
        response = message["response"]
        if response["subtype"] == "error":
            problem = f"The claude program refused to start: {response.get('error') or 'no reason was given'}."
            raise ConfigurationError(problem, hint="Run `claude update`, and check ClaudeSettings.")

    _HANDLERS: ClassVar[dict[str, Callable[[Dialogue, _Message, Received], None]]] = {
        "stream_event": _stream,
        "assistant": _assistant,
        "user": _user,
        "result": _result,
        "system": _system,
        "control_request": _control,
        "control_response": _answered,
        "control_cancel_request": _cancelled,
    }


def _line(message: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _success(id: str, response: Mapping[str, object]) -> bytes:
    answer = {"subtype": "success", "request_id": id, "response": response}
    return _line({"type": "control_response", "response": answer})


def _failure(id: str, why: str) -> bytes:
    return _line({"type": "control_response", "response": {"subtype": "error", "request_id": id, "error": why}})


# --- our tools, in MCP's form -----------------------------------------------------------------------------------------


def wire_tools(tools: Sequence[ToolSpec], names: ToolNames) -> list[Raw]:
    """The tools as `tools/list` returns them, always visible to the model."""
    meta = {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": MAX_RESULT}
    found: list[Raw] = []
    for spec in tools:
        description = description_with_examples(spec)
        schema = {"type": "object", **spec.schema}
        row = {"name": names.wire(spec.name), "description": description, "inputSchema": schema, "_meta": meta}
        found.append(Raw(msgspec.json.encode(row)))
    return found


def answer_mcp(message: _Message, tools: Sequence[Raw]) -> dict[str, object]:
    """The answer to any MCP message but a tool call."""
    method, id = message.get("method"), message.get("id")
    if id is None:  # a notification needs no answer, but the request that carries it does
        return {"jsonrpc": "2.0", "result": {}}
    if method == "initialize":
        version = message.get("params", {}).get("protocolVersion", "2025-06-18")
        server = {"name": SERVER, "version": __version__}
        return _mcp_result(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
    if method == "tools/list":
        return _mcp_result(id, {"tools": list(tools)})
    if method == "ping":
        return _mcp_result(id, {})
    error = {"code": -32601, "message": f"there is no method {method!r} here"}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def _mcp_result(id: object, result: dict[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def result_of(id: object, result: ToolResult) -> dict[str, object]:
    content = [_part(part) for part in result.content]
    if not content and result.is_error:
        content = [{"type": "text", "text": "The tool failed without a reason."}]
    return _mcp_result(id, {"content": content, "isError": result.is_error})


def _part(part: ResultPart) -> dict[str, object]:
    match part:
        case Text() | Json():
            return {"type": "text", "text": part.text}
        case Media(kind="image", data=bytes() as data):
            return {"type": "image", "data": b64encode(data).decode(), "mimeType": part.mime_type}
        case Media():
            where = part.url or part.name or part.mime_type
            return {"type": "text", "text": f"[{part.kind}: {where}]"}
