"""The ready responders, and the tools that speak to a person, in both colours."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.conversation import ToolCall
from dragoman.toolkit import (
    CallbackResponder,
    ConsoleResponder,
    PermissionAnswer,
    PermissionRequest,
    Rule,
)
from dragoman.toolkit.responder import responder_tools
from dragoman.tools import ToolConfig, ToolErrorHandling, ToolExecutor
from tests.toolkit.calling import Call, bad, both_colours, good

EXACTLY = Rule(action="allow", tool="Bash", arguments='{"command": "ls"}')
WIDER = Rule(action="allow", tool="Bash", command="ls")
ASKED = PermissionRequest(
    call=ToolCall("1", "Bash", '{"command": "ls"}'),
    reason="not read-only",
    rules=(EXACTLY, WIDER),
    about="Runs commands.",
)


def console(*answers: str) -> tuple[ConsoleResponder, io.StringIO]:
    out, left = io.StringIO(), list(answers)

    def ask(prompt: str) -> str:
        out.write(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    return ConsoleResponder(show=lambda text: out.write(f"{text}\n"), ask=ask), out


def test_nothing_is_shown_while_a_question_is_open() -> None:
    shown: list[str] = []
    threads: list[threading.Thread] = []

    def ask(prompt: str) -> str:
        shown.append(prompt)
        for say in (responder.update, responder.reaction):
            threads.append(threading.Thread(target=say, args=("ls wants to run:",)))
            threads[-1].start()
            threads[-1].join(0.05)
        shown.append("answered")
        return "n"

    responder = ConsoleResponder(show=shown.append, ask=ask)
    responder.ask_permission(ASKED)
    for thread in threads:
        thread.join(30)
    assert shown.index("answered") == len(shown) - 3
    assert sorted(shown[-2:]) == ["> ls wants to run:", "[ls wants to run:]"]


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        (["y"], PermissionAnswer(allowed=True)),
        ([" YES "], PermissionAnswer(allowed=True)),
        (["a"], PermissionAnswer(allowed=True, remember=EXACTLY)),
        (["1"], PermissionAnswer(allowed=True, remember=WIDER)),
        (["2", "no"], PermissionAnswer(allowed=False, reason="the user refused")),
        (["n"], PermissionAnswer(allowed=False, reason="the user refused")),
        (["never"], PermissionAnswer(allowed=False, reason="the user refused", remember=EXACTLY)),
        (["what?", "", "no"], PermissionAnswer(allowed=False, reason="the user refused")),
        (
            ["a bit risky", "y but not with -f", "1 of them", "n"],
            PermissionAnswer(allowed=False, reason="the user refused"),
        ),
        (["what?"] * 5 + ["y"], None),
        (["n too dear"], PermissionAnswer(allowed=False, reason="too dear")),
        ([], None),
        ([""], None),
    ],
)
def test_questions_on_the_console(answers: list[str], answer: PermissionAnswer | None) -> None:
    responder, out = console(*answers)
    assert responder.ask_permission(ASKED) == answer
    seen = out.getvalue()
    assert seen.startswith('Bash wants to run (not read-only):\n  Runs commands.\n  {\n    "command": "ls"\n  }\n')
    assert "\n  [1] from now on: allow Bash to run ls with any words after it but no options\n" in seen
    assert "\n[y]es, [n]o, [a]lways exactly this, [1]? " in seen
    assert ("Until the end of this session: allow Bash" in seen) is (answers in (["a"], ["1"]))


@pytest.mark.parametrize(
    "evil", ["\x1b[2J", "\x1b]0;title\x07", "\r", "\x9b31m", "\u202e", "\u2066", "\x08\x08", "\x00", "\ud800"]
)
def test_the_model_cannot_command_the_terminal(evil: str) -> None:
    responder, out = console("n")
    responder.reaction("👨‍👩‍👧")
    responder.update("half\ndone")
    assert out.getvalue() == "[👨‍👩‍👧]\n> half\ndone\n"
    responder.update(f"a{evil}b")
    responder.reaction(evil)
    rules = (EXACTLY, Rule(action="allow", tool=f"x{evil}", path=f"a{evil}"))
    asked = ToolCall("1", f"x{evil}\nBash", f'{{"a": "{evil}"}}')
    responder.ask_permission(PermissionRequest(call=asked, reason=evil, rules=rules))
    assert evil not in out.getvalue()
    assert [each for each in out.getvalue() if not each.isprintable() and each not in "\n\u200d"] == []


# --- tools -----------------------------------------------------------------------------------------------------------


def said_by(said: list[str], *, is_async: bool, error: Exception | None = None) -> Callable[[str], Any]:
    """A method of a responder, plain or async, that notes what is said, or fails."""

    def take(text: str) -> None:
        said.append(text)
        if error is not None:
            raise error

    async def take_later(text: str) -> None:
        await asyncio.sleep(0)
        take(text)

    return take_later if is_async else take


either_responder = pytest.mark.parametrize("is_async", [False, True], ids=["plain responder", "async responder"])


@both_colours
@either_responder
def test_the_tools_call_the_responder(called: Call, is_async: bool) -> None:
    said: list[str] = []
    take = said_by(said, is_async=is_async)
    react, update = responder_tools(CallbackResponder(reaction=take, update=take))
    assert good(called(react, emoji="👍")) == "reaction added"
    assert good(called(update, message="half done")) == "update sent"
    assert said == ["👍", "half done"]


@both_colours
@either_responder
def test_errors_of_the_responder_are_returned_to_the_model(called: Call, is_async: bool) -> None:
    said: list[str] = []
    fails = said_by(said, is_async=is_async, error=OSError("the channel is archived"))
    react, update = responder_tools(CallbackResponder(reaction=fails, update=fails))
    assert bad(called(react, emoji="x"), "execution").endswith("OSError: the channel is archived")
    called(update, config=ToolConfig(tool_error_handling=ToolErrorHandling.RETRY), message="hi")
    assert said == ["x", "hi"], "it may have arrived, and is not sent twice"


def test_a_cancelled_update_leaves_no_coroutine_behind() -> None:
    async def late(_text: str) -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        tool = responder_tools(CallbackResponder(update=late))[1]
        async with ToolExecutor([tool]) as executor:
            tasks = [
                asyncio.create_task(executor.aexecute(ToolCall("1", tool.name, json.dumps({"message": "hi"}))))
                for _ in range(20)
            ]
            for number, task in enumerate(tasks):
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    for _ in range(10):  # at other moments each time
        asyncio.run(main())
    gc.collect()  # a coroutine that nobody awaited would warn now, and warnings are errors
