"""Batches from the server's side: OpenAI's files and batches, Anthropic's message batches, Gemini's inline ones.

A batch is answered while its client asks how far it is: half of it the first time, the rest the second time. Each
request of it is answered as if it had come by itself, so the script and its faults hold for it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, cast

import msgspec

from .anthropic import ANTHROPIC
from .dialect import Refusal, Route
from .exchange import JsonObject, Request, members, objects, string
from .gemini import GEMINI
from .openai_chat import CREATED, OPENAI_CHAT

Ask: TypeAlias = Callable[[Request], Awaitable[tuple[int, JsonObject]]]
"""Answers a request as if it had come by itself: the status and the body."""

_MOMENT: Final = "2026-01-01T00:00:00Z"


@dataclass
class _Entry:
    """One request of a batch, and what became of it."""

    key: str
    request: Request
    status: int = 0
    """0: not answered."""
    body: JsonObject = field(default_factory=dict[str, object])


@dataclass
class _Batch:
    id: str
    entries: list[_Entry]
    show: Callable[[_Batch], JsonObject]
    """What its provider says of it."""
    state: Literal["running", "done", "cancelled"] = "running"

    def count(self, *, good: bool) -> int:
        return len([each for each in self.entries if each.status and (each.status < 300) is good])

    @property
    def unanswered(self) -> list[_Entry]:
        return [each for each in self.entries if not each.status]


class Batches:
    """The batches of one simulator."""

    def __init__(self, ask: Ask, files: dict[str, bytes]) -> None:
        self._ask: Ask = ask
        self._batches: dict[str, _Batch] = {}
        self._files: dict[str, bytes] = files
        """By id: the one of OpenAI takes requests from files, and gives results in files."""

    @property
    def routes(self) -> tuple[Route, ...]:
        claude, gemini, openai = r".*/messages/batches/[^/:]+", r".*/batches/gem[^/:]+", r".*/batches/[^/:]+"
        return (
            Route("POST", r".*/messages/batches", ANTHROPIC, self._claude_submit),
            Route("GET", claude, ANTHROPIC, self._status),
            Route("POST", claude + "/cancel", ANTHROPIC, self._cancel),
            Route("GET", claude + "/results", ANTHROPIC, self._claude_results),
            Route("POST", r".*/models/(?P<model>[^/:]+):batchGenerateContent", GEMINI, self._gemini_submit),
            Route("GET", gemini, GEMINI, self._status),
            Route("POST", gemini + ":cancel", GEMINI, self._cancel),
            Route("POST", r".*/v1/batches", OPENAI_CHAT, self._openai_submit),
            Route("GET", openai, OPENAI_CHAT, self._status),
            Route("POST", openai + "/cancel", OPENAI_CHAT, self._cancel),
        )

    # --- what all have in common ---

    def _begin(self, prefix: str, entries: list[_Entry], show: Callable[[_Batch], JsonObject]) -> JsonObject:
        if not entries:
            raise Refusal(400, "A batch needs at least one request.")
        batch = _Batch(f"{prefix}sim{len(self._batches):06d}", entries, show)
        self._batches[batch.id] = batch
        return show(batch)

    def _find(self, request: Request) -> _Batch:
        found = _ID.search(request.path)
        batch = self._batches.get(found[1]) if found is not None else None
        if batch is None:
            raise Refusal(404, "There is no such batch.")
        return batch

    async def _status(self, request: Request) -> JsonObject:
        """How far a batch is, after half of it was answered, or, at the second time, the rest."""
        batch = self._find(request)
        waiting = batch.unanswered
        if batch.state == "running":
            half = (len(batch.entries) + 1) // 2
            for entry in waiting[:half] if len(waiting) == len(batch.entries) > 1 else waiting:
                entry.status, entry.body = await self._ask(entry.request)
            if not batch.unanswered:
                batch.state = "done"
        return batch.show(batch)

    async def _cancel(self, request: Request) -> JsonObject:
        batch = self._find(request)
        batch.state = "cancelled" if batch.state == "running" else batch.state
        return batch.show(batch)

    # --- OpenAI ---

    async def _openai_submit(self, request: Request) -> JsonObject:
        body = request.body
        data = self._files.get(string(body.get("input_file_id")))
        if data is None or body.get("completion_window") != "24h":
            raise Refusal(400, "A batch needs an input_file_id that exists, and the completion_window '24h'.")
        lines = [cast("JsonObject", msgspec.json.decode(line)) for line in data.splitlines() if line.strip()]
        if {line.get("url") for line in lines} != {body.get("endpoint")}:
            raise Refusal(400, "The url of every request must be the endpoint of its batch.")
        entries = [_entry(request, line.get("custom_id"), string(line.get("url")), line.get("body")) for line in lines]
        return self._begin("batch_", entries, self._openai_object)

    def _openai_object(self, batch: _Batch) -> JsonObject:
        names = {"running": "in_progress", "done": "completed", "cancelled": "cancelled"}
        counts = {"total": len(batch.entries), "completed": batch.count(good=True), "failed": batch.count(good=False)}
        found: JsonObject = {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.entries[0].request.path,
            "status": names[batch.state],
            "created_at": CREATED,
            "completion_window": "24h",
            "request_counts": counts,
            "output_file_id": None,
            "error_file_id": None,
            "errors": None,
        }
        if batch.state != "running":
            for good, member in ((True, "output_file_id"), (False, "error_file_id")):
                lines = [_openai_line(each) for each in batch.entries if each.status and (each.status < 300) is good]
                if lines:
                    name = f"file-{batch.id}-{member}"
                    # In another order than they were asked in, as the real service may give them.
                    self._files[name] = b"\n".join([msgspec.json.encode(line) for line in reversed(lines)]) + b"\n"
                    found[member] = name
        return found

    # --- Anthropic ---

    async def _claude_submit(self, request: Request) -> JsonObject:
        entries = [
            _entry(request, each.get("custom_id"), "/v1/messages", each.get("params"))
            for each in objects(request.body.get("requests"))
        ]
        return self._begin("msgbatch_", entries, _claude_object)

    async def _claude_results(self, request: Request) -> bytes:
        batch = self._find(request)
        if batch.state == "running":
            raise Refusal(404, "The batch has no results yet.")
        return b"".join([msgspec.json.encode(_claude_line(each)) + b"\n" for each in reversed(batch.entries)])

    # --- Gemini ---

    async def _gemini_submit(self, request: Request) -> JsonObject:
        given = members(request.body.get("batch"))
        inline = objects(members(members(given.get("inputConfig")).get("requests")).get("requests"))
        path = request.path.replace(":batchGenerateContent", ":generateContent")
        entries = [
            _entry(request, members(each.get("metadata")).get("key") or "none", path, each.get("request"))
            for each in inline
        ]
        if not given.get("displayName"):
            raise Refusal(400, "batch.displayName is required.")
        return self._begin("gem", entries, _gemini_object)


_ID: Final = re.compile(r"/batches/([^/:]+)")


def _entry(request: Request, key: object, path: str, body: object) -> _Entry:
    if not isinstance(key, str) or not key or not isinstance(body, dict):
        raise Refusal(400, "Every request of a batch needs an id and a body.")
    headers = {name: value for name, value in request.headers.items() if name != "content-type"}
    inner = replace(request, method="POST", path=path, query={}, headers=headers, raw=msgspec.json.encode(body))
    return _Entry(key, inner)


def _openai_line(entry: _Entry) -> JsonObject:
    response = {"status_code": entry.status, "request_id": f"req_{entry.key}", "body": entry.body}
    return {"id": f"batch_req_{entry.key}", "custom_id": entry.key, "response": response, "error": None}


def _claude_line(entry: _Entry) -> JsonObject:
    if not entry.status:
        return {"custom_id": entry.key, "result": {"type": "canceled"}}
    if entry.status >= 300:
        return {"custom_id": entry.key, "result": {"type": "errored", "error": entry.body}}
    return {"custom_id": entry.key, "result": {"type": "succeeded", "message": entry.body}}


def _claude_object(batch: _Batch) -> JsonObject:
    waiting = len(batch.unanswered)
    counts = {
        "processing": waiting if batch.state == "running" else 0,
        "succeeded": batch.count(good=True),
        "errored": batch.count(good=False),
        "canceled": waiting if batch.state == "cancelled" else 0,
        "expired": 0,
    }
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "in_progress" if batch.state == "running" else "ended",
        "request_counts": counts,
        "created_at": _MOMENT,
        "expires_at": _MOMENT,
        "ended_at": None if batch.state == "running" else _MOMENT,
        "results_url": None,
    }


def _gemini_object(batch: _Batch) -> JsonObject:
    states = {"running": "RUNNING", "done": "SUCCEEDED", "cancelled": "CANCELLED"}
    stats = {
        "requestCount": str(len(batch.entries)),
        "successfulRequestCount": str(batch.count(good=True)),
        "failedRequestCount": str(batch.count(good=False)),
    }
    metadata: JsonObject = {
        "model": f"models/{batch.entries[0].request.model}",
        "state": f"BATCH_STATE_{states[batch.state]}",
        "batchStats": stats,
    }
    found: JsonObject = {
        "name": f"batches/{batch.id}",
        "metadata": metadata,
        "done": batch.state != "running",
    }
    if batch.state == "done":
        answers = [_gemini_answer(each) for each in batch.entries]
        found["response"] = metadata["output"] = {"inlinedResponses": {"inlinedResponses": answers}}
    return found


def _gemini_answer(entry: _Entry) -> JsonObject:
    if entry.status >= 300:
        return {"error": members(entry.body.get("error"))}
    return {"response": entry.body}
