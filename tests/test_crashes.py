"""Every place that turns any error into something else: whether the program is told, and why not where it is not."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dragoman
from dragoman._crashes import log_crash, name_error
from tests.logs import crashes, never_set_up

SOURCES = Path(str(dragoman.__file__)).parent

# --- every place ------------------------------------------------------------------------------------------------------

SILENT: dict[tuple[str, str], str] = {
    ("_crashes.py", "_traceback_of"): "the error itself cannot be shown, and is named",
    ("_crashes.py", "name_error"): "the same",
    ("chat/credentials.py", "_open_keyring"): "the error says that there is no usable keyring",
    ("cli/program.py", "main"): "it is printed, and the exit code says so",
    ("engines/local/child.py", ""): "the starting program reads it from the log, and raises",
    ("mcp/catalogue.py", "_return_hint"): "a hint that cannot be read: the tool has no output schema",
    ("mcp/connection.py", "Connection._connect_once"): "it is the server's status, raised or logged",
    ("mcp/connection.py", "Connection._subscribe"): "a server's fault; it works without",
    ("simulator/answerer.py", "Answerer.answer"): "in `simulator.errors`, and the reply says it",
    ("stores/postgres_driver.py", "_limit"): "a connection that is broken is dropped",
    ("toolkit/permissions/checker.py", "PermissionChecker._await_answer"): "told where the answer is read",
    ("toolkit/permissions/checker.py", "_attempt"): "the same",
    ("tools/arguments/functions.py", "_arguments"): "raised by `refuse`",
    ("tools/arguments/nodes.py", "_json_default"): "a default that cannot be shown to the model",
    ("tools/arguments/reader.py", "Reader.decode"): "arguments that do not fit; the problems are looked for",
    ("tools/arguments/reader.py", "_OfType.__init__"): "raised by `refuse`",
    ("tools/threads.py", "Job.run"): "told where the end of the job is read",
    ("tools/threads.py", "Job.arun"): "the same",
    ("tools/threads.py", "WorkerThreads.submit.work"): "raised by the future",
    ("tools/threads.py", "LoopThread._run"): "raised by the thread that waits",
    ("transport/socket_transport.py", "look_up.run"): "the same",
}
"""The file and the function of each place that catches any error, raises none and logs none, and why."""

TELLING = {"log_crash", "tell", "_note", "_crashed", "_check_failed"}
ANY = {"Exception", "BaseException"}


def list_silent(node: ast.AST, within: tuple[str, ...] = ()) -> Iterator[str]:
    """The function of each place in a syntax tree that keeps any error to itself."""
    for child in ast.iter_child_nodes(node):
        inside = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = (*within, child.name)
        if isinstance(child, ast.ExceptHandler) and catches_any(child.type):
            parts = list(ast.walk(child))
            called = {
                getattr(each.func, "attr", getattr(each.func, "id", "")) for each in parts if isinstance(each, ast.Call)
            }
            if not called & TELLING and not any(isinstance(each, ast.Raise) for each in parts):
                yield ".".join(within)
        if (
            isinstance(child, ast.Call)
            and getattr(child.func, "id", "") == "suppress"
            and any(map(catches_any, child.args))
        ):
            yield ".".join(within)
        yield from list_silent(child, inside)


def catches_any(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return kind is None or any(isinstance(each, ast.Name) and each.id in ANY for each in kinds)


@cache
def read_sources() -> dict[str, ast.Module]:
    """The syntax tree of each of our files."""
    files = SOURCES.rglob("*.py")
    return {each.relative_to(SOURCES).as_posix(): ast.parse(each.read_text(encoding="utf-8")) for each in files}


def test_every_place_that_keeps_an_error_to_itself_is_known() -> None:
    found = {(file, function) for file, tree in read_sources().items() for function in list_silent(tree)}
    assert found == set(SILENT), "log it with log_crash, or say here why nobody needs to know"


def test_errors_are_logged_by_one_function() -> None:
    """So that their texts are escaped."""
    calls = [(file, node) for file, tree in read_sources().items() for node in ast.walk(tree) if is_logging(node)]
    assert calls == []


def is_logging(node: ast.AST) -> bool:
    """Whether this passes an error to a logger."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    of_logger = isinstance(function, ast.Attribute) and ast.unparse(function.value).lower().endswith(("log", "logger"))
    return "exc_info" in {each.arg for each in node.keywords} or (of_logger and function.attr == "exception")


# --- what is written --------------------------------------------------------------------------------------------------

LOGGER = logging.getLogger("dragoman.tools")


def fail() -> None:
    raise ValueError("a\x1b[2Jb")


def test_a_crash_is_a_warning_with_an_escaped_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="a") as failed:
        fail()
    error = failed.value
    log_crash(LOGGER, "the %s crashed", "hook", error=error)
    [record] = caplog.records
    with never_set_up() as stderr:
        log_crash(LOGGER, "the %s crashed", "hook", error=error)
    assert record.exc_info == (ValueError, error, error.__traceback__)  # for handlers that report it elsewhere
    assert (record.levelname, record.name, record.message) == ("WARNING", "dragoman.tools", "the hook crashed")
    assert Path(record.pathname).name == "test_crashes.py"
    assert crashes(stderr) == ["the hook crashed", r"ValueError: a\u001b[2Jb"]
    assert ", in fail\n" in stderr.getvalue()


def test_a_level_or_a_filter_applies_to_crashes_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "dragoman.tools"):
        log_crash(LOGGER, "it crashed", error=ValueError("x"))
    assert caplog.records == []


@pytest.mark.parametrize(("error", "named"), [(ValueError("x"), "ValueError: x"), (ValueError(), "ValueError")])
def test_an_error_is_named_by_its_kind_and_text(error: Exception, named: str) -> None:
    assert name_error(error) == named
