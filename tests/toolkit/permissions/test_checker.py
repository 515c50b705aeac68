from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dragoman.toolkit import (
    PermissionAnswer,
    PermissionChecker,
    PermissionPolicy,
    PermissionRequest,
    Rule,
)
from dragoman.tools import ToolExecutor, ToolRun
from tests.toolkit.permissions.helpers import BY_NAME, TOOLS, allow, ask, call, deny, ran
from tests.tools.cases import Runner, both_colours, one

YES = PermissionAnswer(allowed=True)
NO = PermissionAnswer(allowed=False, reason="not today")


def ALWAYS(request: PermissionRequest) -> PermissionAnswer:  # noqa: N802 -- an answer like the others
    return PermissionAnswer(allowed=True, remember=request.rules[0])


def NEVER(request: PermissionRequest) -> PermissionAnswer:  # noqa: N802
    return PermissionAnswer(allowed=False, reason="not ever", remember=request.rules[0])


@pytest.fixture(autouse=True)
def _nothing_ran_yet() -> None:
    ran.clear()


class Person:
    """Somebody who answers one after the other, and notes what was asked and where."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[PermissionRequest] = []
        self.threads: list[threading.Thread] = []

    def answer(self, request: PermissionRequest) -> Any:
        self.asked.append(request)
        self.threads.append(threading.current_thread())
        said = self.answers.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said(request) if callable(said) else said


class PlainPerson(Person):
    def ask_permission(self, request: PermissionRequest) -> Any:
        return self.answer(request)


class AsyncPerson(Person):
    async def ask_permission(self, request: PermissionRequest) -> Any:
        await asyncio.sleep(0.001)
        return self.answer(request)


class OddPerson(Person):
    """Plain, but what comes back is to be awaited."""

    def ask_permission(self, request: PermissionRequest) -> Any:
        async def later() -> Any:
            await asyncio.sleep(0)
            return self.answer(request)

        return later()


every_person = pytest.mark.parametrize("person", [PlainPerson, AsyncPerson, OddPerson])


def checked(*rules: Rule, **settings: Any) -> tuple[PermissionChecker, Callable[[], ToolExecutor]]:
    checker = PermissionChecker(PermissionPolicy(rules=rules), **settings)
    return checker, lambda: ToolExecutor(TOOLS, permission=checker)


@both_colours
def test_allow_deny_and_ask_on_the_executor(execute_all: Runner, tmp_path: Path) -> None:
    _, executor = checked(
        allow("Bash", command="git status"), deny("Bash", command="rm", reason="nothing is deleted"), workspace=tmp_path
    )
    calls = [
        call("Bash", "1", command="git status"),
        call("Bash", "2", command="rm -rf /"),
        call("Bash", "3", command="git status; ls"),
        call("Read", "4", file_path="a.txt"),
        call("Read", "5", file_path="/etc/passwd"),
    ]
    executed = execute_all(executor(), calls)
    assert [(result.call_id, result.error_type) for result in executed.results] == [
        ("1", None),
        ("2", "denied"),
        ("4", None),
    ]
    assert executed.results[1].text.startswith("the call of 'Bash' was denied: nothing is deleted. Do not repeat")
    assert [(each.call.id, each.reason) for each in executed.pending] == [
        ("3", "no rule allows Bash"),
        ("5", "it reaches out of the workspace"),
    ]
    assert sorted(ran) == [("Bash", "git status"), ("Read", "a.txt")]


@both_colours
@every_person
def test_a_person_is_asked(execute_all: Runner, person: type[Person]) -> None:
    somebody = person(YES, NO, None)
    _, executor = checked(ask("Bash", reason="be careful"), responder=somebody)
    yes, no, nobody = [execute_all(executor(), [call("Bash", command=f"ls {number}")]) for number in range(3)]
    assert [request.reason for request in somebody.asked] == ["be careful"] * 3
    assert one(yes).text == "done"
    assert "was denied: not today" in one(no).text
    assert (nobody.results, len(nobody.pending)) == ((), 1)
    assert ran == [("Bash", "ls 0")]


@both_colours
@every_person
def test_always_and_never_hold_for_the_same_arguments(execute_all: Runner, person: type[Person]) -> None:
    somebody = person(ALWAYS, NEVER, YES)
    checker, executor = checked(responder=somebody)

    def result(command: str, call_id: str = "1") -> str:
        return one(execute_all(executor(), [call("Bash", call_id, command=command)])).error_type or "ok"

    assert [result("ls"), result("ls", "2"), result("ls", "3")] == ["ok"] * 3
    assert [result("rm"), result("rm")] == ["denied"] * 2
    assert len(somebody.asked) == 2
    assert result("ls ") == "ok"
    assert len(somebody.asked) == 3, "one space more is another call"
    checker.forget()
    somebody.answers = [NO]
    assert result("ls") == "denied"


@both_colours
def test_a_rule_can_be_allowed_for_the_session(execute_all: Runner) -> None:
    somebody = PlainPerson()
    checker, executor = checked(deny("Bash", command="git push"), responder=somebody)
    _, wider = checker.suggest(call("Bash", command="git diff --stat a"), BY_NAME["Bash"])
    checker.remember(wider)

    def results(*commands: str) -> list[str | None]:
        calls = [call("Bash", str(number), command=command) for number, command in enumerate(commands)]
        return [result.error_type for result in execute_all(executor(), calls).results]

    assert results("git diff --stat a") == [None]
    assert results("git diff b", "git diff --stat b") == [None, None]
    assert results("git push") == ["denied"]
    assert somebody.asked == []
    somebody.answers = [NO]
    assert results("git diff --output=x") == ["denied"]


ODD_ANSWERS: list[object] = [
    allow("Bash"),
    "yes",
    True,
    1,
    ValueError("the window was closed: hunter2"),
    StopIteration(),
]
ODD_ANSWERS += [PermissionAnswer(allowed=True, remember="session")]  # type: ignore[arg-type]


@both_colours
@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=repr)
def test_an_invalid_answer_is_not_a_yes(execute_all: Runner, answer: object, caplog: pytest.LogCaptureFixture) -> None:
    for person in (PlainPerson, AsyncPerson, OddPerson):
        _, executor = checked(responder=person(answer))
        result = one(execute_all(executor(), [call("Bash", command="ls")]))
        assert result.error_type == "denied"
        assert "hunter2" not in result.text
    assert ran == []
    told = [each for each in caplog.records if each.name == "dragoman.toolkit"]
    assert all(each.exc_info for each in told)
    assert len(told) == (3 if isinstance(answer, Exception) else 0)


def test_a_sync_responder_runs_in_the_callers_thread_or_beside_the_loop() -> None:
    somebody = PlainPerson(YES, YES)
    _, executor = checked(responder=somebody)
    with executor() as running:
        running.execute(call("Bash", command="ls"))
        asyncio.run(running.aexecute(call("Bash", command="ls")))
    assert somebody.threads[0] is threading.current_thread()
    assert somebody.threads[1] is not threading.current_thread()


def test_deadlines_and_ctrl_c_leave_no_question_behind() -> None:
    _, executor = checked(responder=AsyncPerson(YES))
    with executor() as running:
        result = running.execute(call("Bash", command="ls"), ToolRun(deadline=time.monotonic() - 1))
        assert result.error_type == "denied"
        assert "took too long" in result.text
        gc.collect()
        assert running.execute(call("Bash", command="ls")).text == "done", "the next one has its turn"
    _, executor = checked(responder=PlainPerson(KeyboardInterrupt(), YES))
    with executor() as running:
        with pytest.raises(KeyboardInterrupt):
            running.execute(call("Bash", command="ls"))
        assert running.execute(call("Bash", command="ls")).text == "done", "the next one has its turn"


def test_many_threads_and_loops_share_one_checker() -> None:
    somebody = PlainPerson(*[ALWAYS] * 32)
    checker, executor = checked(responder=somebody)
    calls = [call("Bash", command=f"ls {number % 4}") for number in range(12)]

    def plainly() -> list[str]:
        with executor() as running:
            return [running.execute(each).text for each in calls]

    async def on_a_loop() -> list[str]:
        async with executor() as running:
            return [(await running.aexecute(each)).text for each in calls]

    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(each) for each in [plainly, lambda: asyncio.run(on_a_loop())] * 4]
        assert [job.result(60) for job in jobs] == [["done"] * 12] * 8
    # Those who ask at the same moment all ask; nobody asks again what was answered before.
    assert 4 <= len(somebody.asked) <= 32
    assert checker.judge(call("Bash", command="ls 1"), BY_NAME["Bash"]).source == "session"
