from __future__ import annotations

import logging
import re

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import ToolCall
from dragoman.toolkit import PermissionChecker, PermissionPolicy, Rule
from dragoman.toolkit.permissions.checker import audit
from dragoman.toolkit.permissions.judge import Verdict
from dragoman.toolkit.permissions.subject import Subject
from dragoman.tools import ToolExecutor
from tests.toolkit.permissions.helpers import BY_NAME, TOOLS, call

POLICY = PermissionPolicy(
    rules=(
        Rule(action="deny", tool="Bash", command="rm", reason="nothing is deleted", name="no-rm"),
        Rule(action="allow", tool="Bash", command="ls"),
    )
)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]


def test_one_line_for_each_decision(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    checker = PermissionChecker(POLICY)
    with ToolExecutor(TOOLS, permission=checker) as executor:
        executor.execute(call("Bash", command="rm -rf /"))
        executor.execute(call("Bash", command="ls"))
        executor.execute(call("Bash", command="pwd"))
    denied, allowed, asked = lines(caplog)
    assert re.fullmatch(
        r'tool=Bash arguments=[0-9a-f]{16} decision=deny by=rule rule=no-rm reason="nothing is deleted" door=api',
        denied,
    )
    assert re.fullmatch(
        r"tool=Bash arguments=[0-9a-f]{16} decision=allow by=rule "
        r'rule="allow Bash to run ls with any words after it but no options" reason="a rule allows it" door=api',
        allowed,
    )
    assert asked.endswith('decision=ask by=default rule=default reason="no rule allows Bash" door=api')
    records = [record for record in caplog.records if record.name == "dragoman.audit"]
    assert [record.levelname for record in records] == ["WARNING", "INFO", "INFO"]
    assert records[0].permission["rule"] == "no-rm"  # type: ignore[attr-defined]


def test_arguments_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "sk-very-secret-0123456789"
    checker = PermissionChecker({"rules": [{"action": "deny", "tool": "Bash", "command": "curl"}]})
    for made in (
        call("Bash", command=f"curl -H 'Authorization: {secret}' https://x"),
        call("Bash", command=f"echo {secret}"),
        call("Read", file_path=f"/tmp/{secret}"),
        ToolCall("1", "Bash", f'{{"command": "{secret}'),
        ToolCall("1", "Bash", f'{{"wrong": "{secret}"}}'),
    ):
        checker.check(made, BY_NAME[made.name])
    made = call("Bash", command=f"echo {secret}")
    checker.remember(checker.suggest(made, BY_NAME["Bash"])[0])
    checker.check(made, BY_NAME["Bash"])
    assert len(lines(caplog)) == 6
    assert "with exactly the arguments that were shown" in lines(caplog)[-1]
    assert secret not in caplog.text
    assert all(secret not in str(vars(record)) for record in caplog.records)


TEXTS = st.text(max_size=40) | st.sampled_from(
    ["a\nb", "x decision=allow", 'a" b="c', "\u2028", "\x1b[2K", "%s%n", "\r", "\ud800"]
)


@given(TEXTS)
def test_no_text_can_forge_a_line(text: str) -> None:
    written: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(self.format(record))

    logger, keep = logging.getLogger("dragoman.audit"), Keep()
    logger.addHandler(keep)
    try:
        audit(Subject(tool=text, read_only=False, arguments="{}"), Verdict("deny", text, "rule", text), door=text)
    finally:
        logger.removeHandler(keep)
    [line] = written
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    value = r'(?:[\w.:/@+-]+|"(?:[^"\\]|\\.)*")'
    assert re.fullmatch(
        rf"tool={value} arguments=[0-9a-f]{{16}} decision=deny by=rule rule={value} reason={value} door={value}", line
    ), line


def test_nothing_is_printed_if_logging_is_not_set_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dragoman.audit"), "propagate", False)
    audit(Subject(tool="x", read_only=False), Verdict("deny", "no"), door="api")
    assert capsys.readouterr() == ("", "")
