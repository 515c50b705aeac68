from __future__ import annotations

import asyncio

import pytest

from dragoman.conversation import Text, ToolCall, ToolResult
from dragoman.tools import (
    Allow,
    AnyTool,
    Approval,
    Ask,
    Decision,
    Deny,
    PendingApproval,
    ToolContext,
    ToolExecutor,
    ToolRegistry,
    ToolRun,
    approve,
    deny,
    tool,
)
from dragoman.tools.run import fingerprint
from tests.tools.cases import Runner, one

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran_yet() -> None:
    ran.clear()


@tool
def delete(path: str) -> str:
    ran.append(path)
    return "deleted"


CALL = ToolCall("1", "delete", '{"path": "a"}')


def policy(call: ToolCall, defined: AnyTool, context: ToolContext[object]) -> Decision:
    """A check that looks at everything it is given."""
    assert defined.name == call.name == context.tool_name
    match call.parsed["path"]:
        case "forbidden":
            return Deny("not this one.")
        case "precious":
            return Ask("it is precious")
        case _:
            return Allow()


async def async_policy(call: ToolCall, defined: AnyTool, context: ToolContext[object]) -> Decision:
    await asyncio.sleep(0)
    return policy(call, defined, context)


@pytest.mark.parametrize("check", [policy, async_policy])
def test_allow_deny_and_ask(execute_all: Runner, check: object) -> None:
    calls = [
        ToolCall("1", "delete", '{"path": "a"}'),
        ToolCall("2", "delete", '{"path": "forbidden"}'),
        ToolCall("3", "delete", '{"path": "precious"}'),
    ]
    executed = execute_all(ToolExecutor([delete], permission=check), calls)  # type: ignore[arg-type]
    allowed, denied = executed.results
    assert (allowed.text, denied.error_type) == ("deleted", "denied")
    assert denied.text.startswith("the call of 'delete' was denied: not this one. Do not repeat")
    [pending] = executed.pending
    assert (pending.call, pending.reason) == (calls[2], "it is precious")
    again = execute_all(ToolExecutor([delete], permission=check), calls, ToolRun(approvals=map(approve, calls)))  # type: ignore[arg-type]
    assert [result.error_type for result in again.results] == [None, "denied", None]  # an approval overrules no denial
    assert ran == ["a", "a", "precious"]


def test_an_approved_call_runs_and_a_refused_one_does_not(execute_all: Runner) -> None:
    executor = ToolExecutor([tool(delete.function, name="delete", requires_approval=True)])
    [pending] = execute_all(executor, [CALL]).pending
    assert "delete needs approval" in pending.reason
    refused = one(execute_all(executor, [CALL], ToolRun(approvals=[deny(CALL, reason="keep it")])))
    assert (refused.error_type, "keep it" in refused.text, ran) == ("denied", True, [])
    assert "the user refused" in one(execute_all(executor, [CALL], ToolRun(approvals=[deny(CALL)]))).text
    run = ToolRun()
    run.answer(approve(pending.call))
    assert one(execute_all(executor, [CALL], run)).text == "deleted"
    assert ran == ["a"]


def test_an_approval_holds_for_the_exact_call_only(execute_all: Runner) -> None:
    executor = ToolExecutor([tool(delete.function, name="delete", requires_approval=True)])
    # Even a changed space is not what was shown.
    for id_, arguments in (("1", '{"path": "b"}'), ("1", '{"path":"a"}'), ("2", '{"path": "a"}')):
        stolen = Approval(call_id=id_, fingerprint=fingerprint(CALL), approved=True)
        for approval in (approve(CALL), stolen):
            changed = ToolCall(id_, "delete", arguments)
            assert execute_all(executor, [changed], ToolRun(approvals=[approval])).pending
    assert ran == []


def test_a_tool_may_decide_by_the_call_whether_it_needs_approval(execute_all: Runner) -> None:
    careful = tool(delete.function, name="delete", requires_approval=lambda call: call.parsed["path"] != "tmp")
    executed = execute_all(ToolExecutor([careful]), [CALL, ToolCall("2", "delete", '{"path": "tmp"}')])
    assert [pending.call.id for pending in executed.pending] == ["1"]
    assert [result.call_id for result in executed.results] == ["2"]


@pytest.mark.parametrize("how", ["plain", "async", "slow"])
def test_a_check_that_fails_or_takes_longer_than_the_run_has_not_allowed_anything(
    execute_all: Runner, how: str
) -> None:
    def broken(_call: ToolCall, _tool: AnyTool, _context: ToolContext[object]) -> Decision:
        raise OSError("rules unreadable")

    async def abroken(call: ToolCall, defined: AnyTool, context: ToolContext[object]) -> Decision:
        if how == "slow":
            await asyncio.sleep(30)
        return broken(call, defined, context)

    run = ToolRun(deadline=0.0 if how == "slow" else None)  # long ago
    executor = ToolExecutor([delete], permission=broken if how == "plain" else abroken)
    result = one(execute_all(executor, [CALL], run))
    assert (result.error_type, ran) == ("denied", [])
    assert ("took too long" if how == "slow" else "rules unreadable") in result.text


def test_a_single_call_without_approval_is_not_run_and_says_so() -> None:
    with ToolExecutor([tool(delete.function, name="delete", requires_approval=True)]) as executor:
        result = executor.execute(CALL)
        assert (result.error_type, ran) == ("denied", [])
        assert "A person must approve it first" in result.text
        assert executor.execute(CALL, ToolRun(approvals=[approve(CALL)])).text == "deleted"


# --- other arguments -------------------------------------------------------------------------------------------------


def instead(arguments: str) -> object:
    return lambda *_: Allow(arguments=arguments)


def test_a_check_can_say_what_runs_instead(execute_all: Runner) -> None:
    executor = ToolExecutor([delete], permission=instead('{"path": "b"}'))  # type: ignore[arg-type]
    result = one(execute_all(executor, [CALL]))
    assert (result.text, result.call_id, ran) == ("deleted", CALL.id, ["b"])


def test_other_arguments_must_be_valid_too(execute_all: Runner) -> None:
    for arguments in ("{}", "no JSON", '{"path": 1}'):
        executor = ToolExecutor([delete], permission=instead(arguments))  # type: ignore[arg-type]
        assert one(execute_all(executor, [CALL])).error_type == "validation"
    assert ran == []


def test_other_arguments_hold_for_each_attempt(execute_all: Runner) -> None:
    def fails_once(path: str) -> str:
        ran.append(path)
        if len(ran) == 1:
            raise OSError("busy")
        return "deleted"

    executor = ToolExecutor([tool(fails_once, name="delete", retries=1)], permission=instead('{"path": "b"}'))  # type: ignore[arg-type]
    assert one(execute_all(executor, [CALL])).text == "deleted"
    assert ran == ["b", "b"]


def test_an_approval_is_about_the_arguments_that_were_shown(execute_all: Runner) -> None:
    asked: list[ToolCall] = []
    careful = tool(delete.function, name="delete", requires_approval=lambda call: asked.append(call) or True)
    executor = ToolExecutor([careful], permission=instead('{"path": "b"}'))  # type: ignore[arg-type]
    [pending] = execute_all(executor, [CALL]).pending
    assert (pending.call, asked, ran) == (CALL, [CALL], [])
    assert one(execute_all(executor, [CALL], ToolRun(approvals=[approve(CALL)]))).text == "deleted"
    assert ran == ["b"]


def test_what_a_provider_runs_cannot_be_given_other_arguments(execute_all: Runner) -> None:
    call = ToolCall("a", "delete", "{}", hosted=True)
    executor = ToolExecutor([delete], permission=instead('{"path": "b"}'))  # type: ignore[arg-type]
    [pending] = execute_all(executor, [call]).pending
    assert (pending.call, "its provider cannot be given" in pending.reason) == (call, True)


# --- middleware ------------------------------------------------------------------------------------------------------


def test_middleware_sees_calls_and_results_from_the_outside_in_and_may_answer(execute_all: Runner) -> None:
    seen: list[str] = []

    def named(name: str) -> object:
        def middleware(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
            seen.append(f"{name} before {call.id}")
            result = yield
            seen.append(f"{name} after {result.text}")

        return middleware

    def cached(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        if call.id != "1":
            return ToolResult(call.id, call.name, (Text("from memory"),), is_error=call.id == "3")
        yield

    executor = ToolExecutor([delete], middleware=[named("outer"), named("inner"), cached])  # type: ignore[list-item]
    assert one(execute_all(executor, [CALL])).text == "deleted"
    assert seen == ["outer before 1", "inner before 1", "inner after deleted", "outer after deleted"]
    for id_, is_error in (("2", False), ("3", True)):
        result = one(execute_all(executor, [ToolCall(id_, "delete", CALL.arguments)]))
        assert (result.text, result.is_error, ran) == ("from memory", is_error, ["a"])


def test_middleware_may_change_the_call_and_the_result(execute_all: Runner) -> None:
    def elsewhere(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        result = yield ToolCall("other id", call.name, '{"path": "b"}' if call.id == "1" else '{"path": "forbidden"}')
        return None if result.is_error else ToolResult(result.call_id, result.name, (Text("hidden"),))

    executor = ToolExecutor([delete], middleware=[elsewhere], permission=policy)
    changed, worse = execute_all(executor, [CALL, ToolCall("2", "delete", CALL.arguments)]).results
    assert (changed.call_id, changed.text, ran) == ("1", "hidden", ["b"])
    assert worse.error_type == "denied"  # what middleware makes of a call is checked like any other


def test_middleware_that_fails_fails_the_call_only_and_is_always_closed(execute_all: Runner) -> None:
    closed: list[str] = []

    def outer(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        try:
            yield
        finally:
            closed.append("closed")

    def before(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        raise OSError("before")
        yield

    def twice(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        yield
        yield

    first = one(execute_all(ToolExecutor([delete], middleware=[outer, before]), [CALL]))
    assert (first.error_type, "before" in first.text, ran) == ("execution", True, [])
    assert closed == ["closed"]
    second = one(execute_all(ToolExecutor([delete], middleware=[twice]), [CALL]))
    assert (second.error_type, "exactly once" in second.text) == ("execution", True)
    asking = ToolExecutor([delete], middleware=[outer], permission=lambda *_: Ask())
    assert execute_all(asking, [CALL]).pending
    assert closed == ["closed"] * 2


def test_fingerprints_do_not_run_together() -> None:
    calls = [ToolCall("a", "bc", ""), ToolCall("ab", "c", ""), ToolCall("", "abc", ""), ToolCall("", "", "abc")]
    assert len({fingerprint(call) for call in calls}) == len(calls)
    fingerprint(ToolCall("a", "b", "\ud800"))  # a broken text has one too


def test_a_call_that_the_provider_runs_is_none_of_the_tool_of_its_name() -> None:
    own, hosted = ToolCall("a", "delete", "{}"), ToolCall("a", "delete", "{}", hosted=True)
    assert not approve(own).answers(hosted)
    tools = ToolRegistry([delete])
    assert PendingApproval(call=own).tool_among(tools) is delete
    assert PendingApproval(call=hosted).tool_among(tools) is None
