"""What is said between us and one claude program, without any I/O: a line in, and what is to be done about it.

Owns: the program's messages and control requests, ours to it, our tools as it sees them (an MCP server at the other end
of its control channel), and the calls that wait for their results.
Must not know: processes, event loops; and what a conversation is, but for the reply that is being read.

The program asks for our tools one after the other or several at once, before or after the model's message is whole, and
of some calls (of a tool that is not there, with arguments that are no JSON) it disposes itself. So results are kept
until they are asked for, and questions until there is a result.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._version import __version__
from dragoman.conversation import Json, Media, ReplyEvent, ResultPart, Text, ToolCall, ToolResult, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import ToolNames, description_with_examples
from dragoman.tools import Allow, Ask, Deny

from .decode import PREFIX, STRUCTURED, ReplyReader

SERVER: Final = "dragoman"
MAX_RESULT: Final = 500_000
"""Characters of a result that reach the model; of longer ones the program shows the beginning and keeps a file."""

_TOO_OLD: Final = ("0.", "1.", "2.0.")
"""Versions whose `initialize` does not take the system prompt: they would leave it out without a word."""
_LONGER: Final = [2, 1, 325]
"""The version since which descriptions of tools are cut later."""
_NOT_YOURS: Final = "Only the conversation itself can call this tool, not a part of the program that works by itself."
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError, TypeError, AttributeError)
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_Message: TypeAlias = dict[str, Any]


class Question(NamedTuple):
    """The program asks whether it may use a tool of its own."""

    request: str
    call: ToolCall


class Heard(Struct):
    """What came of one line."""

    out: list[bytes] = []
    """Lines to be written."""
    events: list[ReplyEvent] = []
    questions: list[Question] = []
    result: _Message | None = None
    """The turn is over."""
    retried: _Message | None = None
    """The program tries a request of its own again."""


class Dialogue(Struct, eq=False):
    """One program's side of the talk, as far as we know it."""

    tools: Sequence[Raw]
    names: Mapping[str, str]
    structured: bool
    session: str = ""
    word: str | None = None
    """What the program called the last failure."""
    longest: int = 2048
    """Characters after which it cuts the description of a tool."""
    greeted: bool = False
    """Whether it has said anything."""
    cost: float = 0.0
    """In dollars, since the program was started."""
    charged: float = 0.0
    """Of the turn under way, what replies that called tools were charged."""
    reader: ReplyReader | None = None
    """Of the reply that is being read."""
    own_tools: frozenset[str] = frozenset()
    """The names of the tools that the program runs itself."""
    _own_calls: set[str] = set()
    _calls: list[ToolCall] = []
    """Calls of our tools in the last reply that have no result yet."""
    _asked: dict[str, tuple[str, object]] = {}
    """Calls that wait for their results: the program's request, and the id of the message in it."""
    _results: dict[str, ToolResult] = {}

    def asks_for(self, calls: Iterable[ToolCall]) -> bool:
        """Whether the program asks us for at least one of these calls, sooner or later."""
        ours = frozenset(self.names.values())
        return any(call.name in ours and isinstance(_arguments(call), dict) for call in calls)

    # --- what we say ---

    @staticmethod
    def opening(request: Mapping[str, object]) -> bytes:
        return _line({"type": "control_request", "request_id": "opening", "request": request})

    @staticmethod
    def turn(content: list[dict[str, object]]) -> bytes:
        said = {"role": "user", "content": content}
        return _line({"type": "user", "message": said, "parent_tool_use_id": None, "session_id": ""})

    def take_calls(self) -> None:
        """The reply that was read ends with calls of our tools; their results are still to come."""
        self._calls = [] if self.reader is None else list(self.reader.calls)
        self._results.clear()  # of earlier calls that the program never asked for
        self.reader = None

    def give(self, results: Iterable[ToolResult]) -> list[bytes]:
        """Results of the last calls: the answers to those that have been asked for; the others are kept."""
        for result in results:
            self._results[result.call_id] = result
        return [self._answer(id) for id in list(self._asked) if id in self._results]

    def _answer(self, id: str) -> bytes:
        (request, message), result = self._asked.pop(id), self._results.pop(id)
        self._calls = [call for call in self._calls if call.id != id]
        return _success(request, {"mcp_response": result_of(message, result)})

    @staticmethod
    def decide(question: Question, decision: Allow | Deny | Ask) -> bytes:
        """The answer to a question about one of the program's own tools."""
        if isinstance(decision, Allow):
            given = Raw(question.call.arguments.encode())
            return _success(question.request, {"behavior": "allow", "updatedInput": given})
        reason = decision.reason or "not permitted"
        if isinstance(decision, Ask):
            reason = f"a person would have to approve this first{f': {decision.reason}' if decision.reason else ''}"
        return _success(question.request, {"behavior": "deny", "message": reason})

    # --- what it says ---

    def receive(self, line: bytes) -> Heard:
        """One line of the program. What is no message of the protocol is ignored, as is any message we do not know."""
        heard = Heard()
        with suppress(*_UNREADABLE):  # a known message in a shape we do not know is no better than an unknown one
            message = _decode(line)
            handler = self._HANDLERS.get(message["type"])
            self.greeted = True
            # What a helper says that the program has sent out is no part of the conversation.
            if handler is not None and message.get("parent_tool_use_id") is None:
                handler(self, message, heard)
        return heard

    def _stream(self, message: _Message, heard: Heard) -> None:
        if self.reader is not None and not self.reader.complete:
            self.reader.stream(message["event"], heard.events)

    def _assistant(self, message: _Message, heard: Heard) -> None:
        said = message["message"]
        self.word = message.get("error")
        if self.reader is None or self.reader.complete:
            return
        for block in said.get("content", ()):
            if block.get("type") == "tool_use" and block.get("name") in self.own_tools:
                self._own_calls.add(block["id"])
        self.reader.whole(said, heard.events)

    def _user(self, message: _Message, heard: Heard) -> None:
        """Results of tools, as the program tells them to its model."""
        if self.reader is None:
            return
        self.reader.settle(heard.events)
        content = message["message"].get("content")
        for block in () if isinstance(content, str) else content:
            if block.get("tool_use_id") in self._own_calls:
                self._own_calls.discard(block["tool_use_id"])
                self.reader.own_result(block, heard.events)

    def _result(self, message: _Message, heard: Heard) -> None:
        heard.result = message

    def _system(self, message: _Message, heard: Heard) -> None:
        if message["subtype"] == "init":
            self.session = str(message.get("session_id") or "")
            version = str(message.get("claude_code_version"))
            if version.startswith(_TOO_OLD):
                problem = f"The claude program is of version {version}; 2.1 or newer is needed."
                raise ConfigurationError(problem, hint="Run `claude update`.")
            with suppress(ValueError):
                self.longest = 4096 if list(map(int, version.split(".")[:3])) >= _LONGER else 2048
            self.own_tools = frozenset([name for name in message["tools"] if not name.startswith(PREFIX)])
        elif message["subtype"] == "api_retry":
            heard.retried = message

    # --- its requests ---

    def _control(self, message: _Message, heard: Heard) -> None:
        id = str(message["request_id"])
        try:
            request = message["request"]
            if request["subtype"] == "mcp_message":
                self._mcp(id, request["message"], heard)
            elif request["subtype"] == "can_use_tool":
                self._can_use(id, request, heard)
            else:
                heard.out.append(_failure(id, f"dragoman does not know the request {request['subtype']!r}"))
        except _UNREADABLE as error:
            heard.out.append(_failure(id, f"the request cannot be read ({type(error).__name__})"))

    def _mcp(self, request: str, message: _Message, heard: Heard) -> None:
        if message.get("method") == "notifications/cancelled":
            self._forget(lambda asked: asked[1] == message["params"]["requestId"])
        if message.get("method") != "tools/call" or "id" not in message:
            heard.out.append(_success(request, {"mcp_response": answer_mcp(message, self.tools)}))
            return
        if self.reader is not None:
            self.reader.settle(heard.events)
        id = self._id_of(message["params"])
        if id is None:
            refusal = result_of(message["id"], ToolResult("", "", (Text(_NOT_YOURS),), is_error=True))
            heard.out.append(_success(request, {"mcp_response": refusal}))
            return
        self._asked[id] = (request, message["id"])
        if id in self._results:
            heard.out.append(self._answer(id))

    def _id_of(self, parameters: _Message) -> str | None:
        """Which call of the reply this is; None if it is none of them."""
        id = parameters.get("_meta", {}).get("claudecode/toolUseId")
        # While a message is streamed, its call may be asked for before it is whole.
        begun = self.reader.ids if self.reader is not None else frozenset[str]()
        return id if id in begun or id in self._results or any(call.id == id for call in self._calls) else None

    def _can_use(self, id: str, request: _Message, heard: Heard) -> None:
        name, arguments = str(request["tool_name"]), msgspec.json.encode(request["input"]).decode()
        question = Question(id, ToolCall(str(request.get("tool_use_id") or id), name, arguments))
        if name.startswith(PREFIX) or (self.structured and name == STRUCTURED):
            heard.out.append(self.decide(question, Allow()))  # our executor decides when it runs it
        else:
            heard.questions.append(question)

    def _cancelled(self, message: _Message, _heard: Heard) -> None:
        """The program no longer wants an answer to one of its requests."""
        self._forget(lambda asked: asked[0] == message["request_id"])

    def _forget(self, is_it: Callable[[tuple[str, object]], bool]) -> None:
        self._asked = {id: asked for id, asked in self._asked.items() if not is_it(asked)}

    def _answered(self, message: _Message, _heard: Heard) -> None:
        """An answer to our opening, which may be refused."""
        response = message["response"]
        if response["subtype"] == "error":
            problem = f"The claude program refused to begin: {response.get('error') or 'no reason was given'}."
            hint = "Run `claude update`, and see that nothing in ClaudeSettings is odd."
            raise ConfigurationError(problem, hint=hint)

    _HANDLERS: ClassVar[dict[str, Callable[[Dialogue, _Message, Heard], None]]] = {
        "stream_event": _stream,
        "assistant": _assistant,
        "user": _user,
        "result": _result,
        "system": _system,
        "control_request": _control,
        "control_response": _answered,
        "control_cancel_request": _cancelled,
    }


def _arguments(call: ToolCall) -> object:
    try:
        return msgspec.json.decode(call.arguments or "{}")
    except msgspec.MsgspecError:
        return None


def _line(message: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _success(id: str, response: Mapping[str, object]) -> bytes:
    answer = {"subtype": "success", "request_id": id, "response": response}
    return _line({"type": "control_response", "response": answer})


def _failure(id: str, why: str) -> bytes:
    return _line({"type": "control_response", "response": {"subtype": "error", "request_id": id, "error": why}})


# --- our tools, in MCP's form -----------------------------------------------------------------------------------------


def wire_tools(tools: Sequence[ToolSpec], names: ToolNames) -> list[Raw]:
    """The tools as `tools/list` gives them: shown to the model from the start, and with all that they say."""
    meta = {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": MAX_RESULT}
    found: list[Raw] = []
    for spec in tools:
        description = description_with_examples(spec)
        told = {"name": names.wire(spec.name), "description": description, "inputSchema": spec.schema}
        found.append(Raw(msgspec.json.encode({**told, "_meta": meta})))
    return found


def answer_mcp(message: _Message, tools: Sequence[Raw]) -> dict[str, object]:
    """The answer to anything but a call: what we are, which tools there are."""
    method, id = message.get("method"), message.get("id")
    if id is None:  # a notification wants no answer, but the request that carried it does
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
        content = [{"type": "text", "text": "The tool failed and gave no reason."}]
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
