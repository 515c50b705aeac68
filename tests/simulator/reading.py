"""The text, thinking and calls of a reply, read by hand from each dialect: an oracle that shares no code with us."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.raw_client import Answer


@dataclass
class Said:
    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    stop: str | None = None
    input: int | None = None
    output: int | None = None


def said(dialect: str, answer: Answer, *, stream: bool) -> Said:
    return READERS[dialect, stream](answer)


def _chat(answer: Answer) -> Said:
    choice = answer.json["choices"][0]
    message = choice["message"]
    usage = answer.json.get("usage") or {}
    return Said(
        message["content"] or message["refusal"] or "",
        message.get("reasoning_content", ""),
        [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"))
            for call in message.get("tool_calls", [])
        ],
        choice["finish_reason"],
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
    )


def _chat_stream(answer: Answer) -> Said:
    result = Said()
    calls: dict[int, list[str]] = {}
    for chunk in answer.datas:
        if chunk.get("usage"):
            result.input, result.output = chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]
        for choice in chunk["choices"]:
            delta = choice["delta"]
            result.text += delta.get("content") or delta.get("refusal") or ""
            result.thinking += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    calls[call["index"]] = [call["id"], call["function"]["name"], ""]
                calls[call["index"]][2] += call["function"]["arguments"]
            result.stop = choice["finish_reason"] or result.stop
    result.calls = [(call[0], call[1], json.loads(call[2] or "{}")) for call in calls.values()]
    return result


def _response(response: dict[str, Any]) -> Said:
    result = Said(stop=(response["incomplete_details"] or {}).get("reason") or response["status"])
    for item in response["output"]:
        if item["type"] == "message":
            result.text += "".join(part.get("text", part.get("refusal", "")) for part in item["content"])
        elif item["type"] == "reasoning":
            result.thinking += "".join(part["text"] for part in item["summary"])
        elif item["type"] == "function_call":
            result.calls.append((item["call_id"], item["name"], json.loads(item["arguments"] or "{}")))
    if response["usage"]:
        result.input, result.output = response["usage"]["input_tokens"], response["usage"]["output_tokens"]
    return result


def _responses(answer: Answer) -> Said:
    return _response(answer.json)


def _responses_stream(answer: Answer) -> Said:
    """From the deltas; that they agree with the items and the response at the end is checked here too."""
    result = Said()
    arguments: dict[int, str] = {}
    for number, event in enumerate(answer.datas):
        assert event["sequence_number"] == number
        kind = event["type"].removeprefix("response.")
        if kind in {"output_text.delta", "refusal.delta"}:
            result.text += event["delta"]
        elif kind == "reasoning_summary_text.delta":
            result.thinking += event["delta"]
        elif kind == "function_call_arguments.delta":
            arguments[event["output_index"]] = arguments.get(event["output_index"], "") + event["delta"]
        elif kind == "output_item.done" and event["item"]["type"] == "function_call":
            item = event["item"]
            assert item["arguments"] == arguments.get(event["output_index"], "")
            result.calls.append((item["call_id"], item["name"], json.loads(item["arguments"] or "{}")))
    final = _response(answer.datas[-1]["response"])
    assert (final.text, final.thinking, final.calls) == (result.text, result.thinking, result.calls)
    return final


def _anthropic(answer: Answer) -> Said:
    message = answer.json
    result = Said(stop=message["stop_reason"])
    for block in message["content"]:
        if block["type"] == "text":
            result.text += block["text"]
        elif block["type"] == "thinking":
            assert block["signature"]
            result.thinking += block["thinking"]
        elif block["type"] == "tool_use":
            result.calls.append((block["id"], block["name"], block["input"]))
    usage = message.get("usage")
    if usage:
        result.input = sum(value for name, value in usage.items() if name.endswith("input_tokens"))
        result.output = usage["output_tokens"]
    return result


def _anthropic_stream(answer: Answer) -> Said:
    result = Said()
    calls: dict[int, list[str]] = {}
    for (name, _), event in zip(answer.events, answer.datas, strict=True):
        assert name == event["type"]
        if name == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls[event["index"]] = [event["content_block"]["id"], event["content_block"]["name"], ""]
        elif name == "content_block_delta":
            delta = event["delta"]
            result.text += delta.get("text", "")
            result.thinking += delta.get("thinking", "")
            if "partial_json" in delta:
                calls[event["index"]][2] += delta["partial_json"]
        elif name == "message_delta":
            result.stop = event["delta"]["stop_reason"]
            if usage := event.get("usage"):
                result.input = sum(value for key, value in usage.items() if key.endswith("input_tokens"))
                result.output = usage["output_tokens"]
    result.calls = [(call[0], call[1], json.loads(call[2] or "{}")) for call in calls.values()]
    return result


def _gemini_responses(responses: list[dict[str, Any]]) -> Said:
    result = Said()
    for response in responses:
        usage = response.get("usageMetadata", {})
        result.input = usage.get("promptTokenCount")
        if "candidatesTokenCount" in usage:
            result.output = usage["candidatesTokenCount"] + usage.get("thoughtsTokenCount", 0)
        for candidate in response.get("candidates", []):
            result.stop = candidate.get("finishReason", result.stop)
            for part in candidate["content"].get("parts", []):
                if "functionCall" in part:
                    call = part["functionCall"]
                    result.calls.append((call["id"], call["name"], call["args"]))
                elif part.get("thought"):
                    result.thinking += part["text"]
                else:
                    result.text += part["text"]
    return result


READERS = {
    ("openai_chat", False): _chat,
    ("openai_chat", True): _chat_stream,
    ("openai_responses", False): _responses,
    ("openai_responses", True): _responses_stream,
    ("anthropic", False): _anthropic,
    ("anthropic", True): _anthropic_stream,
    ("gemini", False): lambda answer: _gemini_responses([answer.json]),
    ("gemini", True): lambda answer: _gemini_responses(answer.datas),
}
