"""What is said between us and one claude program, without any I/O: a line in, and what is to be done about it.

Owns: the program's messages and control requests, ours to it, and the calls that wait for their results.
Must not know: processes, threads, event loops; and what a conversation is, but for the reply that is being read.

The program asks for our tools one after the other or several at once, before or after the model's message is whole, and
of some calls (of a tool that is not there, with arguments that are no JSON) it disposes itself. So results are kept
until they are asked for, and questions until there is a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import ReplyEvent, Text, ToolCall, ToolResult
from dragoman.errors import ConfigurationError
from dragoman.providers.wire import read_members as members
from dragoman.providers.wire import read_text as text
from dragoman.tools.permission import Allow, Ask, Deny

from .failures import too_old
from .launch import Launch
from .mcp import PREFIX, answer_to, result_of
from .reading import STRUCTURED, ReplyReader

__all__ = ["Dialogue", "Heard", "Question", "Retried"]

_LEAST: Final = (2, 1)
"""The version whose `initialize` takes the system prompt; older ones would leave it out without a word."""
_NOT_YOURS: Final = "Only the conversation itself can call this tool, not a part of the program that works by itself."
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError)


class Question(NamedTuple):
    """The program asks whether it may use a tool of its own."""

    request: str
    call: ToolCall
    input: Raw


class Retried(NamedTuple):
    """The program tries a request of its own again."""

    status: int | None
    word: str
    wait: float


class Heard:
    """What came of one line."""

    __slots__ = ("events", "out", "questions", "result", "retried")

    def __init__(self) -> None:
        self.out: list[bytes] = []
        """Lines to be written."""
        self.events: list[ReplyEvent] = []
        self.questions: list[Question] = []
        self.result: dict[str, Raw] | None = None
        """The turn is over."""
        self.retried: Retried | None = None


class _Asked(NamedTuple):
    """A call that waits for its result."""

    request: str
    id: object


class Dialogue:
    """One program's side of the talk, as far as we know it."""

    def __init__(self, launch: Launch) -> None:
        self.session: str = ""
        self.message: str = ""
        """The program's id of the last message of its model."""
        self.word: str | None = None
        """What the program called the last failure."""
        self.greeted: bool = False
        """Whether it has said anything."""
        self.cost: float = 0.0
        """In dollars, since the program was started."""
        self.reader: ReplyReader | None = None
        """Of the reply that is being read."""
        self._launch: Launch = launch
        self._own_tools: frozenset[str] = frozenset()
        self._own_calls: set[str] = set()
        self._calls: list[ToolCall] = []
        """Calls of our tools in the last reply that have no result yet."""
        self._asked: dict[str, _Asked] = {}
        self._results: dict[str, ToolResult] = {}
        self._requests: int = 0

    @property
    def own_tools(self) -> frozenset[str]:
        """The names of the tools that the program runs itself."""
        return self._own_tools

    def asks_for(self, calls: Iterable[ToolCall]) -> bool:
        """Whether the program asks us for at least one of these calls, sooner or later."""
        ours = frozenset(self._launch.names.values())
        return any(call.name in ours and isinstance(_arguments(call), dict) for call in calls)

    # --- what we say ---

    def opening(self) -> bytes:
        """The first line."""
        return self._request(dict(self._launch.opening))

    def interrupt(self) -> bytes:
        """Stop the turn."""
        return self._request({"subtype": "interrupt"})

    def _request(self, request: dict[str, object]) -> bytes:
        self._requests += 1
        return _line({"type": "control_request", "request_id": f"dragoman-{self._requests}", "request": request})

    @staticmethod
    def turn(content: list[dict[str, object]]) -> bytes:
        """The user speaks."""
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

    def give_up(self, why: str) -> list[bytes]:
        """Answer the calls that nobody will run."""
        left = [ToolResult(id, "", (Text(why),), is_error=True) for id in self._asked]
        return self.give(left)

    def _answer(self, id: str) -> bytes:
        asked, result = self._asked.pop(id), self._results.pop(id)
        self._calls = [call for call in self._calls if call.id != id]
        return _mcp(asked.request, result_of(asked.id, result))

    @staticmethod
    def decide(question: Question, decision: Allow | Deny | Ask) -> bytes:
        """The answer to a question about one of the program's own tools."""
        match decision:
            case Allow():
                answer: dict[str, object] = {"behavior": "allow", "updatedInput": question.input}
            case Deny():
                answer = {"behavior": "deny", "message": decision.reason or "not permitted"}
            case Ask():
                reason = f": {decision.reason}" if decision.reason else ""
                answer = {"behavior": "deny", "message": f"a person would have to approve this first{reason}"}
        return _success(question.request, answer)

    # --- what it says ---

    def receive(self, line: bytes) -> Heard:
        """One line of the program. What is no message of the protocol is ignored, as is any message we do not know."""
        heard = Heard()
        try:
            line.decode()
            message = members(line)
            kind = text(message.get("type")) or ""
        except _UNREADABLE:
            return heard
        self.greeted = True
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            with suppress(*_UNREADABLE):  # a known message in a shape we do not know is no better than an unknown one
                handler(self, message, heard)
        return heard

    def _stream(self, message: Mapping[str, Raw], heard: Heard) -> None:
        if self.reader is not None and not self.reader.complete and _is_main(message):
            self.reader.stream(message["event"], heard.events)

    def _assistant(self, message: Mapping[str, Raw], heard: Heard) -> None:
        if not _is_main(message):
            return
        said = members(message["message"])
        self.word = text(message.get("error"))
        self.message = text(message.get("uuid")) or self.message
        if self.reader is None or self.reader.complete:
            return
        for block in msgspec.json.decode(said.get("content", Raw(b"[]")), type=list[Raw]):
            fields = members(block)
            if text(fields.get("type")) == "tool_use" and text(fields.get("name")) in self._own_tools:
                self._own_calls.add(text(fields.get("id")) or "")
        self.reader.whole(said, heard.events)

    def _user(self, message: Mapping[str, Raw], heard: Heard) -> None:
        """Results of tools, as the program tells them to its model."""
        if not _is_main(message) or self.reader is None:
            return
        self.reader.settle(heard.events)
        content = bytes(members(message["message"]).get("content", b""))
        for block in msgspec.json.decode(content, type=list[Raw]) if content.startswith(b"[") else []:
            id = text(members(block).get("tool_use_id"))
            if id in self._own_calls:
                self._own_calls.discard(id or "")
                self.reader.own_result(block, heard.events)

    def _result(self, message: Mapping[str, Raw], heard: Heard) -> None:
        heard.result = {name: raw.copy() for name, raw in message.items()}

    def _system(self, message: Mapping[str, Raw], heard: Heard) -> None:
        subtype = text(message.get("subtype"))
        if subtype == "init":
            self.session = text(message.get("session_id")) or ""
            _check_version(text(message.get("claude_code_version")))
            tools = msgspec.json.decode(message.get("tools", Raw(b"[]")), type=list[str])
            self._own_tools = frozenset([name for name in tools if not name.startswith(PREFIX)])
        elif subtype == "api_retry":
            fields = cast("dict[str, object]", msgspec.json.decode(_object(message)))
            status, wait = fields.get("error_status"), fields.get("retry_delay_ms")
            heard.retried = Retried(
                status if isinstance(status, int) else None,
                str(fields.get("error") or "failed"),
                wait / 1000 if isinstance(wait, int | float) else 0.0,
            )

    # --- its requests ---

    def _control(self, message: Mapping[str, Raw], heard: Heard) -> None:
        id = text(message.get("request_id")) or ""
        try:
            request = members(message["request"])
            subtype = text(request.get("subtype"))
            if subtype == "mcp_message":
                self._mcp(id, request, heard)
            elif subtype == "can_use_tool":
                self._can_use(id, request, heard)
            else:
                heard.out.append(_failure(id, f"dragoman does not know the request {subtype!r}"))
        except _UNREADABLE as error:
            heard.out.append(_failure(id, f"the request cannot be read ({type(error).__name__})"))

    def _mcp(self, request_id: str, request: Mapping[str, Raw], heard: Heard) -> None:
        message = msgspec.json.decode(request["message"], type=dict[str, object])
        if message.get("method") == "tools/call" and "id" in message:
            self._tool_call(request_id, message, heard)
            return
        if message.get("method") == "notifications/cancelled":
            self._forget(lambda asked: asked.id == _member(message.get("params"), "requestId"))
        heard.out.append(_mcp(request_id, answer_to(message, self._launch.tools)))

    def _tool_call(self, request_id: str, message: Mapping[str, object], heard: Heard) -> None:
        if self.reader is not None:
            self.reader.settle(heard.events)
        parameters = message.get("params")
        id = self._id_of(parameters)
        asked = _Asked(request_id, message["id"])
        if id is None:
            result = ToolResult("", "", (Text(_NOT_YOURS),), is_error=True)
            heard.out.append(_mcp(request_id, result_of(asked.id, result)))
            return
        self._asked[id] = asked
        if id in self._results:
            heard.out.append(self._answer(id))

    def _id_of(self, parameters: object) -> str | None:
        """Which call of the reply this is: by its id, or, where the program does not say it, by name and arguments."""
        calls = [*self._calls, *(self.reader.calls if self.reader is not None else ())]
        id = _member(_member(parameters, "_meta"), "claudecode/toolUseId")
        if isinstance(id, str):
            # While a message is streamed, its call may be asked for before it is whole.
            begun = self.reader.ids if self.reader is not None else frozenset[str]()
            return id if id in begun or id in self._results or any(call.id == id for call in calls) else None
        own = self._launch.names
        name = own.get(f"{PREFIX}{_member(parameters, 'name')}", _member(parameters, "name"))
        arguments = _member(parameters, "arguments")
        free = [call for call in calls if call.name == name and call.id not in self._asked]
        same = [call for call in free if _arguments(call) == arguments]
        return next((call.id for call in [*same, *free]), None)

    def _can_use(self, id: str, request: Mapping[str, Raw], heard: Heard) -> None:
        name, given = text(request["tool_name"]) or "", request["input"].copy()
        call = ToolCall(text(request.get("tool_use_id")) or id, name, bytes(given).decode())
        question = Question(id, call, given)
        if name.startswith(PREFIX) or (self._launch.structured and name == STRUCTURED):
            heard.out.append(self.decide(question, Allow()))  # our executor decides when it runs it
        else:
            heard.questions.append(question)

    def _cancelled(self, message: Mapping[str, Raw], _heard: Heard) -> None:
        """The program no longer wants an answer to one of its requests."""
        id = text(message.get("request_id"))
        self._forget(lambda asked: asked.request == id)

    def _forget(self, is_it: Callable[[_Asked], bool]) -> None:
        self._asked = {id: asked for id, asked in self._asked.items() if not is_it(asked)}

    def _answered(self, message: Mapping[str, Raw], _heard: Heard) -> None:
        """An answer to a request of ours; only a refused opening matters."""
        response = members(message["response"])
        if text(response.get("subtype")) == "error" and text(response.get("request_id")) == "dragoman-1":
            said = text(response.get("error")) or "no reason was given"
            problem = f"The claude program refused to begin: {said}."
            raise ConfigurationError(
                problem, hint="Run `claude update`, and see that nothing in ClaudeSettings is odd."
            )

    _HANDLERS: ClassVar[dict[str, Callable[[Dialogue, Mapping[str, Raw], Heard], None]]] = {
        "stream_event": _stream,
        "assistant": _assistant,
        "user": _user,
        "result": _result,
        "system": _system,
        "control_request": _control,
        "control_response": _answered,
        "control_cancel_request": _cancelled,
    }


def _check_version(version: str | None) -> None:
    try:
        found = tuple([int(part) for part in (version or "").split(".")[:2]])
    except ValueError:
        return
    if found and found < _LEAST:
        raise too_old(version or "", ".".join(map(str, _LEAST)))


def _is_main(message: Mapping[str, Raw]) -> bool:
    """Whether a message belongs to the conversation, and not to a helper that the program has sent out."""
    return text(message.get("parent_tool_use_id")) is None


def _member(value: object, name: str) -> object:
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def _arguments(call: ToolCall) -> object:
    try:
        return msgspec.json.decode(call.arguments or "{}")
    except msgspec.MsgspecError:
        return None


def _object(fields: Mapping[str, Raw]) -> bytes:
    return msgspec.json.encode(dict(fields))


def _line(message: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _success(id: str, response: Mapping[str, object]) -> bytes:
    answer = {"subtype": "success", "request_id": id, "response": response}
    return _line({"type": "control_response", "response": answer})


def _mcp(id: str, answer: Mapping[str, object]) -> bytes:
    return _success(id, {"mcp_response": answer})


def _failure(id: str, why: str) -> bytes:
    return _line({"type": "control_response", "response": {"subtype": "error", "request_id": id, "error": why}})
