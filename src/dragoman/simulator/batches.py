"""Batches from the server's side: OpenAI's files and batches, Anthropic's message batches, Gemini's inline batches.

A batch makes progress when its client asks for its status: half of it the first time, the rest the second time. Each
of its requests is answered like one that came alone, by the script and with its faults.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import msgspec

from .anthropic import ANTHROPIC
from .dialect import Refusal, Route
from .exchange import JsonObject, Request, members, objects, string
from .gemini import GEMINI
from .openai_chat import CREATED, OPENAI_CHAT

Ask: TypeAlias = Callable[[Request], Awaitable[tuple[int, JsonObject]]]
"""Answers a request as if it had come alone, with the status and the body."""


@dataclass
class _Entry:
    """One request of a batch, and the answer to it."""

    key: str
    request: Request
    status: int = 0
    """0: not answered."""
    body: JsonObject = field(default_factory=dict[str, object])

    @property
    def is_good(self) -> bool:
        return 0 < self.status < 300


@dataclass
class _Batch:
    id: str
    entries: list[_Entry]
    show: Callable[[_Batch], JsonObject]
    """Writes what the provider says about it."""
    state: Literal["running", "done", "cancelled"] = "running"
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a status request answers entries."""

    def __post_init__(self) -> None:
        if not self.entries:
            raise Refusal(400, "A batch needs at least one request.")

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many requests succeeded, failed and were not answered."""
        good = sum(each.is_good for each in self.entries)
        open = sum(not each.status for each in self.entries)
        return good, len(self.entries) - good - open, open


class Batches:
    """The batches of one simulator; OpenAI reads requests from `files`, and writes results to them."""

    def __init__(self, ask: Ask, files: dict[str, bytes]) -> None:
        self._ask = ask
        self._batches: dict[str, _Batch] = {}
        self._files = files
        claude, gemini, openai = r".*/messages/batches/[^/:]+", r".*/batches/gem[^/:]+", r".*/batches/[^/:]+"
        self.routes = (
            Route("POST", r".*/messages/batches", ANTHROPIC, self._submit_claude),
            Route("GET", claude, ANTHROPIC, self._status),
            Route("POST", claude + "/cancel", ANTHROPIC, self._cancel),
            Route("GET", claude + "/results", ANTHROPIC, self._claude_results),
            Route("POST", r".*/models/(?P<model>[^/:]+):batchGenerateContent", GEMINI, self._submit_gemini),
            Route("GET", gemini, GEMINI, self._status),
            Route("POST", gemini + ":cancel", GEMINI, self._cancel),
            Route("POST", r".*/v1/batches", OPENAI_CHAT, self._submit_openai),
            Route("GET", openai, OPENAI_CHAT, self._status),
            Route("POST", openai + "/cancel", OPENAI_CHAT, self._cancel),
        )

    # --- all providers ---

    def _add(self, prefix: str, entries: Iterable[_Entry], show: Callable[[_Batch], JsonObject]) -> JsonObject:
        batch = _Batch(f"{prefix}sim{len(self._batches):06d}", list(entries), show)
        self._batches[batch.id] = batch
        return show(batch)

    def _find(self, request: Request) -> _Batch:
        named = re.search(r"/batches/([^/:]+)", request.path)
        batch = self._batches.get(named[1]) if named is not None else None
        if batch is None:
            raise Refusal(404, "There is no such batch.")
        return batch

    async def _status(self, request: Request) -> JsonObject:
        batch = self._find(request)
        async with batch.lock:
            waiting = [each for each in batch.entries if not each.status and batch.state == "running"]
            half = (len(batch.entries) + 1) // 2
            for entry in waiting[:half]:
                status, body = await self._ask(entry.request)
                if batch.state != "running":  # it was cancelled in the meantime
                    break
                entry.status, entry.body = status, body
            if batch.state == "running" and len(waiting) <= half:
                batch.state = "done"
        return batch.show(batch)

    async def _cancel(self, request: Request) -> JsonObject:
        batch = self._find(request)
        batch.state = "cancelled" if batch.state == "running" else batch.state
        return batch.show(batch)

    # --- OpenAI ---

    async def _submit_openai(self, request: Request) -> JsonObject:
        body = request.body
        data = self._files.get(string(body.get("input_file_id")))
        if data is None or body.get("completion_window") != "24h":
            raise Refusal(400, "A batch needs an input_file_id that exists, and the completion_window '24h'.")
        lines = [members(msgspec.json.decode(line)) for line in data.splitlines() if line.strip()]
        if {line.get("url") for line in lines} != {body.get("endpoint")}:
            raise Refusal(400, "The url of every request must be the endpoint of its batch.")
        entries = (_entry(request, line.get("custom_id"), string(line.get("url")), line.get("body")) for line in lines)
        return self._add("batch_", entries, self._show_openai)

    def _show_openai(self, batch: _Batch) -> JsonObject:
        good, bad, _ = batch.counts
        shown: JsonObject = {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.entries[0].request.path,
            "status": {"running": "in_progress", "done": "completed", "cancelled": "cancelled"}[batch.state],
            "created_at": CREATED,
            "completion_window": "24h",
            "request_counts": {"total": len(batch.entries), "completed": good, "failed": bad},
        }
        answered = [each for each in batch.entries if each.status and batch.state != "running"]
        for is_good, member in ((True, "output_file_id"), (False, "error_file_id")):
            # In another order than the requests, as the real service may send them.
            lines = [_openai_line(each) for each in reversed(answered) if each.is_good is is_good]
            shown[member] = f"file-{batch.id}-{member}" if lines else None
            if lines:
                self._files[f"file-{batch.id}-{member}"] = b"\n".join(map(msgspec.json.encode, lines))
        return shown

    # --- Anthropic ---

    async def _submit_claude(self, request: Request) -> JsonObject:
        given = objects(request.body.get("requests"))
        entries = (_entry(request, each.get("custom_id"), "/v1/messages", each.get("params")) for each in given)
        return self._add("msgbatch_", entries, _show_claude)

    async def _claude_results(self, request: Request) -> bytes:
        batch = self._find(request)
        if batch.state == "running":
            raise Refusal(404, "The batch has no results yet.")
        return b"\n".join([msgspec.json.encode(_claude_line(each)) for each in reversed(batch.entries)])

    # --- Gemini ---

    async def _submit_gemini(self, request: Request) -> JsonObject:
        batch = members(request.body.get("batch"))
        if not batch.get("displayName"):
            raise Refusal(400, "batch.displayName is required.")
        path = request.path.replace(":batchGenerateContent", ":generateContent")
        entries = (
            _entry(request, members(each.get("metadata")).get("key") or "none", path, each.get("request"))
            for each in objects(members(members(batch.get("inputConfig")).get("requests")).get("requests"))
        )
        return self._add("gem", entries, _show_gemini)


def _entry(request: Request, key: object, path: str, body: object) -> _Entry:
    if not isinstance(key, str) or not key or not isinstance(body, dict):
        raise Refusal(400, "Every request of a batch needs an id and a body.")
    headers = {name: value for name, value in request.headers.items() if name != "content-type"}
    return _Entry(key, replace(request, path=path, query={}, headers=headers, raw=msgspec.json.encode(body)))


def _openai_line(entry: _Entry) -> JsonObject:
    response = {"status_code": entry.status, "request_id": f"req_{entry.key}", "body": entry.body}
    return {"id": f"batch_req_{entry.key}", "custom_id": entry.key, "response": response, "error": None}


def _claude_line(entry: _Entry) -> JsonObject:
    result: JsonObject = {"type": "succeeded", "message": entry.body}
    if not entry.is_good:
        result = {"type": "errored", "error": entry.body} if entry.status else {"type": "canceled"}
    return {"custom_id": entry.key, "result": result}


def _show_claude(batch: _Batch) -> JsonObject:
    running, (good, bad, open) = batch.state == "running", batch.counts
    processing, canceled = (open, 0) if running else (0, open)
    counts = {"processing": processing, "succeeded": good, "errored": bad, "canceled": canceled, "expired": 0}
    moment = "2026-01-01T00:00:00Z"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "in_progress" if running else "ended",
        "request_counts": counts,
        "created_at": moment,
        "expires_at": moment,
        "ended_at": None if running else moment,
    }


def _show_gemini(batch: _Batch) -> JsonObject:
    good, bad, _ = batch.counts
    counts = {"requestCount": len(batch.entries), "successfulRequestCount": good, "failedRequestCount": bad}
    states = {"running": "RUNNING", "done": "SUCCEEDED", "cancelled": "CANCELLED"}
    metadata: JsonObject = {
        "model": f"models/{batch.entries[0].request.model}",
        "state": f"BATCH_STATE_{states[batch.state]}",
        "batchStats": {name: str(count) for name, count in counts.items()},
    }
    shown: JsonObject = {"name": f"batches/{batch.id}", "metadata": metadata, "done": batch.state != "running"}
    if batch.state == "done":
        answers = [
            {"response": each.body} if each.is_good else {"error": each.body.get("error")} for each in batch.entries
        ]
        shown["response"] = metadata["output"] = {"inlinedResponses": {"inlinedResponses": answers}}
    return shown
