"""Items of a reply that wait for the client: the calls that they become, and the items that answer them.

Such a call is sent back as the item that it was, and its result as the item that answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Media, ToolResult
from dragoman.providers.history import content_of
from dragoman.providers.wire import as_items, as_object, is_empty, string, texts_in, value_of

# --- from items to calls ----------------------------------------------------------------------------------------------


class WaitingItem(NamedTuple):
    """An item that the client must answer."""

    tool: str
    """The tool of ours that it calls; empty if the item names it."""
    arguments: str
    """The member that holds the arguments."""
    answer: str
    """The type of the item that answers it."""


WAITING: Final[Mapping[str, WaitingItem]] = {
    "custom_tool_call": WaitingItem("", "input", "custom_tool_call_output"),
    "local_shell_call": WaitingItem("local_shell", "action", "local_shell_call_output"),
    "shell_call": WaitingItem("shell", "action", "shell_call_output"),
    "apply_patch_call": WaitingItem("apply_patch", "operation", "apply_patch_call_output"),
    "computer_call": WaitingItem("computer", "actions", "computer_call_output"),
    "tool_search_call": WaitingItem("tool_search", "arguments", "tool_search_output"),
    "mcp_approval_request": WaitingItem("", "arguments", "mcp_approval_response"),
}


def waiting_item(item: Mapping[str, Raw]) -> WaitingItem | None:
    """How an item is answered; None if it does not wait, or the service answers it itself."""
    found = WAITING.get(string(item.get("type")))
    if found is None or found.tool not in {"shell", "tool_search"}:
        return found
    if found.tool == "tool_search":
        return found if string(item.get("execution")) == "client" else None
    place = as_object(value_of(item.get("environment"))).get("type")
    return found if place in {None, "local"} else None


def call_of(kind: WaitingItem, item: Mapping[str, Raw]) -> tuple[str, str, str]:
    """The name of the tool that is called, its arguments as JSON text, and what a person must approve first."""
    name = kind.tool or string(item.get("name"))
    if kind.answer == "mcp_approval_response":
        server = string(item.get("server_label"))
        return f"{server}.{name}", string(item.get("arguments")), f"{server} is to run {name} at the provider"
    said: object = item.get(kind.arguments, Raw(b"{}"))
    if kind.arguments == "input":
        said = {"input": item.get("input", "")}
    elif kind.arguments == "actions":  # models before GPT-5.4 ask for one at a time
        several = "actions" in item and not is_empty(item["actions"])
        said = {"actions": said if several else [item.get("action", Raw(b"{}"))]}
    checks = value_of(item.get("pending_safety_checks"))
    reasons = texts_in(checks, "message") or texts_in(checks, "code") or texts_in(checks, "id")
    return name, msgspec.json.encode(said).decode(), "; ".join(reasons)


def named_by(tools: Iterable[Raw]) -> list[str]:
    """The tools of ours that are called by items of these tools."""
    read = [as_object(value_of(raw)) for raw in tools]
    kinds = [str(tool.get("type")).removesuffix("_use_preview") for tool in read]
    own = [str(tool.get("name")) for tool in read if tool.get("type") == "custom"]
    return own + [kind for kind in kinds if kind in {item.tool for item in WAITING.values()}]


# --- from results to answers ------------------------------------------------------------------------------------------


def answer_to(item: Mapping[str, Raw], call_id: str) -> dict[str, object]:
    """The members of the answer to an item, whatever the result. `call_id` is used if the item has no id."""
    kind, id = WAITING[string(item.get("type"))].answer, string(item.get("id")) or call_id
    if kind == "mcp_approval_response":
        return {"type": kind, "approval_request_id": id}
    # The SDK's type of a local shell's output has an `id` instead; the service and the vendor's agents use this.
    answer: dict[str, object] = {"type": kind, "call_id": string(item.get("call_id")) or id}
    if kind == "tool_search_output":
        answer |= {"execution": "client", "status": "completed"}
    if "caller" in item and not is_empty(item["caller"]):
        answer["caller"] = item["caller"]
    if longest := as_object(value_of(item.get("action"))).get("max_output_length"):
        answer["max_output_length"] = longest
    if checks := value_of(item.get("pending_safety_checks")):
        answer["acknowledged_safety_checks"] = checks
    return answer


def text_of(result: ToolResult) -> str:
    return "\n".join([part.text for part in content_of(result, error_said=True) if not isinstance(part, Media)])


def _objects_in(result: ToolResult) -> list[dict[str, object]]:
    """The objects in a JSON result: one, or a list of them; none for other results."""
    value = result.value if not result.is_error else None
    several = as_items(cast("object", value)) if isinstance(value, list) else [value]
    return [cast("dict[str, object]", each) for each in several if isinstance(each, dict)]


_OF_SHELL: Final = frozenset(["stdout", "stderr", "exit_code", "outcome"])


def _answer_shell(answer: dict[str, object], result: ToolResult) -> dict[str, object]:
    """The output of a shell: a text, or `stdout`, `stderr` and `exit_code` (or `outcome`) of each command."""
    outputs: list[dict[str, object]] = []
    several = _objects_in(result)
    in_its_form = all(not given or not _OF_SHELL.isdisjoint(given) for given in several)
    for given in several if in_its_form else ():
        code = given.get("exit_code", 0)
        streams = {name: given.get(name, "") for name in ("stdout", "stderr")}
        outputs.append({**streams, "outcome": given.get("outcome", {"type": "exit", "exit_code": code})})
    if not outputs:
        ended = {"type": "exit", "exit_code": int(result.is_error)}
        outcome = {"type": "timeout"} if result.error_type == "timeout" else ended
        stream, other = ("stderr", "stdout") if result.is_error else ("stdout", "stderr")
        outputs.append({stream: result.text, other: "", "outcome": outcome})
    return {**answer, "output": outputs}


def _answer_patch(answer: dict[str, object], result: ToolResult) -> dict[str, object]:
    return {**answer, "status": "failed" if result.is_error else "completed", "output": result.text}


def tools_found(result: ToolResult) -> list[dict[str, object]] | None:
    """The tools that a search found, as the API declares them: a list, or an object that has one; None for anything
    else, which the API has no place for."""
    value: object = result.value if not result.is_error else None
    if isinstance(value, dict):
        value = cast("dict[str, object]", value).get("tools", [cast("object", value)])
    several = as_items(value)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in several):
        return None
    return cast("list[dict[str, object]]", several)


def _answer_search(answer: dict[str, object], result: ToolResult) -> dict[str, object]:
    return {**answer, "tools": tools_found(result) or []}


def _answer_approval(answer: dict[str, object], result: ToolResult) -> dict[str, object]:
    reason = {"reason": result.text} if result.is_error and result.text else {}
    return {**answer, "approve": not result.is_error, **reason}


ANSWERS: Final[Mapping[str, Callable[[dict[str, object], ToolResult], dict[str, object]]]] = {
    "local_shell_call_output": lambda answer, result: {**answer, "output": text_of(result)},
    "shell_call_output": _answer_shell,
    "apply_patch_call_output": _answer_patch,
    "tool_search_output": _answer_search,
    "mcp_approval_response": _answer_approval,
}
"""The answer of each type; history.py has those of functions and of a computer."""
