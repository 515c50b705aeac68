"""A program that speaks like `claude`, for tests: `stand_in.py -p --input-format stream-json …`.

Without a script it behaves as the real one was seen to: it asks the model behind ANTHROPIC_BASE_URL, lets our side run
our tools, disposes itself of calls of tools that are not there, and hears the user while tools run. With
STAND_IN_SCRIPT it plays the steps of that file, for everything that goes wrong.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SERVER = "dragoman"
Json = dict[str, Any]


def say(message: Json) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Program:
    """The program between its two streams."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.session = "session"
        self.inbox: queue.Queue[Json | None] = queue.Queue()
        self.answers: dict[str, Json] = {}
        self.queued: list[Any] = []
        self.history: list[Json] = []
        self.system = ""
        self.schema = json.loads(self.option("--json-schema")) if "--json-schema" in arguments else None
        self.tools: list[Json] = []
        self.asking = False
        self.requests = 0
        self.cost = 0.0

    def option(self, name: str) -> str:
        return self.arguments[self.arguments.index(name) + 1]

    # --- the streams ---

    def listen(self) -> None:
        for line in sys.stdin:
            self.inbox.put(json.loads(line))
        self.inbox.put(None)

    def hear(self, *, block: bool) -> Json | None:
        """Take in one message; answers are put where they are looked for."""
        message = self.inbox.get() if block else self.inbox.get_nowait()
        if message is None:
            if self.asking:  # as the real one does: the call has failed, and the model is told so
                raise EOFError
            os._exit(0)
        if message["type"] == "control_response":
            self.answers[message["response"]["request_id"]] = message["response"]
            return None
        return message

    def look(self) -> None:
        """Whether anything came in while we were busy."""
        while not self.inbox.empty():
            message = self.hear(block=False)
            if message is not None and message["type"] == "user":
                self.queued.append(message["message"]["content"])

    def ask(self, request: Json) -> Json:
        """Put a request to our side and wait for its answer."""
        self.requests += 1
        id = f"r{self.requests}"
        say({"type": "control_request", "request_id": id, "request": request})
        self.asking = True
        while id not in self.answers:
            try:
                message = self.hear(block=True)
            except EOFError:
                self.asking = False
                failed = {"content": [{"type": "text", "text": "Stream closed"}], "isError": True}
                self.inbox.put(None)
                return {"response": {"mcp_response": {"result": failed}}}
            if message is not None and message["type"] == "user":
                self.queued.append(message["message"]["content"])
        self.asking = False
        return self.answers.pop(id)

    def mcp(self, method: str, parameters: Json | None = None, *, notice: bool = False) -> Json:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if not notice:
            message["id"] = self.requests
        if parameters is not None:
            message["params"] = parameters
        return self.ask({"subtype": "mcp_message", "server_name": SERVER, "message": message})

    # --- a life ---

    def run(self) -> None:
        threading.Thread(target=self.listen, daemon=True).start()
        while True:
            if self.queued:
                self.turn(self.queued.pop(0))
                continue
            message = self.hear(block=True)
            if message is None:
                continue
            if message["type"] == "user":
                self.turn(message["message"]["content"])
            elif message["request"]["subtype"] == "initialize":
                self.begin(message)

    def begin(self, message: Json) -> None:
        request = message["request"]
        self.system = request.get("systemPrompt", "")
        self.schema = request.get("jsonSchema", self.schema)
        if request.get("sdkMcpServers"):
            # The real one asks before it has answered.
            self.mcp("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
            self.mcp("notifications/initialized", notice=True)
            self.tools = self.mcp("tools/list")["response"]["mcp_response"]["result"]["tools"]
        answer = {"subtype": "success", "request_id": message["request_id"], "response": {"commands": []}}
        say({"type": "control_response", "response": answer})

    # --- a turn ---

    def turn(self, content: Any) -> None:
        self.history.append({"role": "user", "content": content})
        names = [self.name_of(tool) for tool in self.tools] + (["StructuredOutput"] if self.schema else [])
        about = {"session_id": self.session, "tools": names, "claude_code_version": "2.1.197"}
        say({"type": "system", "subtype": "init", **about})
        try:
            while True:
                blocks = self.one_reply()
                calls = [block for block in blocks if block["type"] == "tool_use"]
                if not calls:
                    text = "".join(block.get("text", "") for block in blocks)
                    say(self.result(result=text))
                    return
                given = next((call for call in calls if call["name"] == "StructuredOutput"), None)
                results = [self.carry_out(call) for call in calls]
                if self.queued:
                    text = f"<system-reminder>\nThe user said meanwhile:\n{self.queued.pop(0)}\n</system-reminder>"
                    results[-1]["content"] = [*results[-1]["content"], {"type": "text", "text": text}]
                self.history.append({"role": "user", "content": results})
                say({"type": "user", "message": self.history[-1], "parent_tool_use_id": None})
                if given is not None:
                    say(self.result(result="", structured_output=given["input"]))
                    return
        except Refused as refused:
            self.history.pop()
            made_up = {"id": "made up", "model": "<synthetic>", "role": "assistant", "type": "message"}
            made_up |= {"content": [{"type": "text", "text": refused.text}], "stop_reason": "stop_sequence"}
            say({"type": "assistant", "message": made_up, "parent_tool_use_id": None, "error": refused.word})
            say(self.result(is_error=True, result=refused.text, api_error_status=refused.status))

    def carry_out(self, call: Json) -> Json:
        known = {self.name_of(tool): tool["name"] for tool in self.tools}
        if call["name"] == "StructuredOutput":
            answer: Json = {"content": [{"type": "text", "text": "provided"}]}
        elif call["name"] not in known:
            text = f"No such tool available: {call['name']}"
            answer = {"content": [{"type": "text", "text": text}], "isError": True}
        else:
            meta = {"claudecode/toolUseId": call["id"]}
            parameters = {"name": known[call["name"]], "arguments": call["input"], "_meta": meta}
            answer = self.mcp("tools/call", parameters)["response"]["mcp_response"]["result"]
        content = [part for part in answer["content"] if part["type"] == "text"]
        failed = bool(answer.get("isError"))
        return {"type": "tool_result", "tool_use_id": call["id"], "content": content, "is_error": failed}

    @staticmethod
    def name_of(tool: Json) -> str:
        return f"mcp__{SERVER}__{tool['name']}"

    def result(self, *, is_error: bool = False, **more: Any) -> Json:
        self.cost += 0.001
        common = {"session_id": self.session, "total_cost_usd": self.cost, "num_turns": 1}
        return {"type": "result", "subtype": "success", "is_error": is_error, **common, **more}

    # --- the model ---

    def one_reply(self) -> list[Json]:
        tools = [
            {"name": self.name_of(tool), "description": tool["description"], "input_schema": tool["inputSchema"]}
            for tool in self.tools
        ]
        if self.schema:
            tools.append({"name": "StructuredOutput", "description": "The answer.", "input_schema": self.schema})
        body: Json = {"model": self.option("--model"), "max_tokens": 1000, "stream": True, "messages": self.history}
        body |= {"tools": tools} if tools else {}
        body |= {"system": self.system} if self.system else {}
        blocks: list[Json] = []
        id = ""
        for event in events_of(body):
            self.look()
            say({"type": "stream_event", "event": event, "session_id": self.session, "parent_tool_use_id": None})
            match event["type"]:
                case "message_start":
                    id = event["message"]["id"]
                    self.history.append({"role": "assistant", "content": blocks})
                case "content_block_start":
                    blocks.append({**event["content_block"], "pieces": ""})
                case "content_block_delta":
                    delta = event["delta"]
                    blocks[-1]["pieces"] += delta.get("text", "") + delta.get("partial_json", "")
                case "content_block_stop":
                    self.end_block(blocks[-1], id)
        return blocks

    def end_block(self, block: Json, id: str) -> None:
        pieces = block.pop("pieces")
        if block["type"] == "text":
            block["text"] = pieces
        elif block["type"] == "tool_use":
            try:
                block["input"] = json.loads(pieces or "{}")
            except ValueError:
                block["input"] = {"unparsed": pieces}
        message = {"id": id, "type": "message", "role": "assistant", "content": [block], "stop_reason": None}
        say({"type": "assistant", "message": message, "parent_tool_use_id": None})


class Refused(Exception):
    """The API did not answer well."""

    WORDS = {401: "authentication_failed", 429: "rate_limit", 400: "invalid_request"}  # noqa: RUF012

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = f"API Error: {status} {text}"
        self.word = self.WORDS.get(status, "server_error")


def events_of(body: Json) -> Any:
    """The events of a streamed reply."""
    url = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
    headers = {"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"]}
    headers["anthropic-version"] = "2023-06-01"
    connection.request("POST", f"{url.path}/v1/messages", json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != 200:
        raise Refused(response.status, json.loads(response.read())["error"]["message"])
    try:
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        connection.close()


# --- with a script ---------------------------------------------------------------------------------------------------


def play(steps: list[Json]) -> None:
    """Do what the script says, whatever our side says."""
    for step in steps:
        ((what, value),) = step.items()
        match what:
            case "say":
                say(value)
            case "raw":
                sys.stdout.write(value)
                sys.stdout.flush()
            case "stderr":
                sys.stderr.write(value)
                sys.stderr.flush()
            case "await":
                wait_for(value)
            case "spawn":  # a child that holds our pipes open; its number stands in this file
                child = subprocess.Popen(["/bin/sleep", "600"])
                Path(value).write_text(str(child.pid))
            case "sleep":
                time.sleep(value)
            case "exit":
                os._exit(value)
            case _:
                raise ValueError(what)


def wait_for(words: str) -> None:
    """Read lines until one has these words in it."""
    log = os.environ.get("STAND_IN_LOG")
    while line := sys.stdin.readline():
        if log:
            with Path(log).open("a") as file:
                file.write(line)
        if words in line:
            return
    os._exit(0)


if __name__ == "__main__":
    if "STAND_IN_SCRIPT" in os.environ:
        play(json.loads(Path(os.environ["STAND_IN_SCRIPT"]).read_text()))
    else:
        Program(sys.argv[1:]).run()
