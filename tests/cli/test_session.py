"""Model, tools, permissions and store put together, as arguments and configuration say."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dragoman.cli.settings import parse_options
from dragoman.providers import Reasoning
from tests.cli.running import Surroundings, calling, wait_for
from tests.processes import started

RUN_IT = [sys.executable, "-m", "dragoman", "Run it.", "-T", "Bash", "--approve", "auto"]
WRITING = calling("Write", {"file_path": "made.txt", "content": "x"})


def test_approve_auto_and_deny(around: Surroundings) -> None:
    with around.talking([WRITING, "Done.", WRITING, "Not done."]):
        assert around.here("Write.", "-T", "Write", "--approve", "deny").code == 0
        assert not (around.work / "made.txt").exists()
        assert around.here("Write.", "-T", "Write", "--approve", "auto").code == 0
    assert (around.work / "made.txt").exists()


def test_permission_rules_of_the_configuration_apply(around: Surroundings) -> None:
    rules = '[[permissions.rules]]\naction = "{}"\ntool = "Write"\n'
    with around.talking([WRITING, "Done.", WRITING, "Not done."]):
        around.configure(rules.format("allow"))
        assert around.here("Write.", "-T", "Write").code == 0
        (around.work / "made.txt").unlink()
        around.configure(rules.format("deny"))
        done = around.here("Write.", "-T", "Write", "--approve", "auto", "--json")
        assert done.json["tool_calls"][0]["is_error"]
        assert not (around.work / "made.txt").exists(), "a rule that denies beats --approve auto"


def test_tools_and_approval_of_the_configuration(around: Surroundings) -> None:
    around.configure('[cli]\ntools = ["Write"]\napprove = "auto"\n')
    assert around.ask([WRITING, "Done."], "Write.").code == 0
    assert (around.work / "made.txt").exists()


def test_a_tool_that_requires_approval_is_refused_without_a_terminal(around: Surroundings) -> None:
    (around.work / "mine.py").write_text(
        "from dragoman import tool\n\n"
        "@tool(requires_approval=True, read_only=True)\ndef look() -> str:\n    return 'seen'\n"
    )
    done = around.ask([calling("look", {}), "Not seen."], "Look.", "-T", "mine.py", "--json")
    assert done.code == 4
    assert done.json["exit_code"] == 4
    assert done.json["tool_calls"][0]["is_error"]


def test_messages_to_the_user_need_no_approval(around: Surroundings) -> None:
    done = around.ask([calling("send_update", {"message": "half\x1b[2J done"}), "Done."], "Work.", "-T", "send_update")
    assert (done.code, done.out) == (0, "Done.\n")
    assert "> half\\u001b[2J done" in done.err


def test_a_profile_of_the_configuration(around: Surroundings) -> None:
    around.configure('[profiles.terse]\nsystem_prompt = "Be terse."\n')
    with around.talking() as simulator:
        assert around.here("Hi there.", "--profile", "terse").code == 0
        assert simulator.requests[0].body["messages"][0]["content"] == "Be terse."
        assert "terse" in around.here("Hi there.", "--profile", "tears").err


@pytest.mark.slow
@pytest.mark.parametrize("approve", ["auto", "ask"])
def test_a_call_that_may_have_run_is_not_repeated_unasked(approve: str, around: Surroundings) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with around.talking([calling("Bash", {"command": "echo ran >> log; sleep 1000"}), "I see."]) as simulator:
        with started(RUN_IT, **pipes, env=around.env, cwd=around.work) as child:
            wait_for(around.work / "log")
            child.send_signal(signal.SIGKILL)
        done = around.here("-c", "-T", "Bash", "--approve", approve)
    assert done.out == "I see.\n"
    assert done.code == (4 if approve == "ask" else 0)
    assert (around.work / "log").read_text() == "ran\n"
    assert "may have done its work" in simulator.requests[-1].body["messages"][-1]["content"]


@pytest.mark.slow
def test_a_background_job_survives_ctrl_c(around: Surroundings) -> None:
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]  # as a shell without job control starts it with `&`
    waiting = "echo x > begun; for i in $(seq 1200); do test -e go && break; sleep 0.05; done"
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    script = [calling("Bash", {"command": waiting}), "I see."]
    with around.talking(script), started([*ignoring, *RUN_IT], env=around.env, cwd=around.work, **pipes) as child:
        wait_for(around.work / "begun")
        child.send_signal(signal.SIGINT)
        (around.work / "go").touch()
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, "I see.\n"), err


def test_options_of_models() -> None:
    assert parse_options([("reasoning", "high"), ("top-p", "0.5"), ("seed", "7")]) == {
        "reasoning": Reasoning(effort="high"),
        "top_p": 0.5,
        "seed": 7,
    }
    assert parse_options([("reasoning", "2000")]) == {"reasoning": Reasoning(budget=2000)}


def test_nothing_is_written_outside_the_users_directories(around: Surroundings) -> None:
    with around.talking():
        around.here("Hello.")
    assert [path.name for path in around.work.iterdir()] == []
    kept = around.home / ".local" / "share" / "dragoman"
    assert oct(kept.stat().st_mode)[-3:] == "700"
    assert oct((kept / "conversations.db").stat().st_mode)[-3:] == "600"
