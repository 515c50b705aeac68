"""`Grep`: findings, caps, and expressions that never end."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from dragoman.toolkit import GrepLimits, Workspace
from dragoman.toolkit.search import grep_tool
from dragoman.tools import AnyTool, ToolConfig, ToolRun
from tests.toolkit.calling import Call, acall, bad, both_colours, call, good

ENDLESS = r"^(a|a|b?a)*$"
BAIT = "a" * 60 + "!"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "a.py": "import os\n\ndef f():\n    return os\n",
        "src/b.py": "OS = 1\r\nlast os\r\n",
        "src/c.txt": "no match\n",
        ".git/d": "os\n",
        "out/e": "os\n",
        ".gitignore": "out/\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content.encode())
    return tmp_path


@pytest.fixture
def grep(root: Path) -> AnyTool:
    return grep_tool(Workspace(root))


@both_colours
def test_lines_with_their_places(called: Call, grep: AnyTool) -> None:
    assert good(called(grep, pattern=r"\bos\b")).splitlines() == [
        "a.py:1:import os",
        "a.py:4:    return os",
        "src/b.py:2:last os",
    ]


def test_ways_to_search(grep: AnyTool) -> None:
    assert good(call(grep, pattern="os", mode="files")) == "a.py\nsrc/b.py"
    assert good(call(grep, pattern="os", mode="count")) == "a.py:2\nsrc/b.py:1"
    assert good(call(grep, pattern="os", mode="count", ignore_case=True)) == "a.py:2\nsrc/b.py:2"
    assert good(call(grep, pattern="o", glob="*.txt")) == "src/c.txt:1:no match"
    assert good(call(grep, pattern="o", glob="src/*.txt")) == "src/c.txt:1:no match"
    assert good(call(grep, pattern="o", path="src/c.txt")) == "src/c.txt:1:no match"
    assert good(call(grep, pattern="os", path="src")) == "src/b.py:2:last os"
    assert good(call(grep, pattern="nowhere")) == "[No line fits.]"
    assert "out/e:1:os" in good(call(grep, pattern="os", include_ignored=True))
    assert good(call(grep, pattern="1$")) == "src/b.py:1:OS = 1"


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{2,1}", "(?P<x", "*", "(?<=a+)b", "\\", "a**", "(?z)", "x" * 20_000 + "("]
)
def test_what_is_no_expression(grep: AnyTool, pattern: str) -> None:
    assert "not a regular expression" in bad(call(grep, pattern=pattern), "validation")


@both_colours
@pytest.mark.parametrize("pattern", [ENDLESS, r"^(a+)+$", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(.*a){25}b"])
def test_an_expression_that_never_ends_is_ended(called: Call, root: Path, pattern: str) -> None:
    (root / "bait").write_text("a" * 40 + "!" * 3 + "\n" + "a" * 5000)
    grep = grep_tool(Workspace(root), limits=GrepLimits(seconds=0.5))
    text = good(called(grep, pattern=pattern))
    assert "[Stopped after 0.5 seconds, in bait. Use a simpler pattern" in text
    assert no_worker_is_left()


def no_worker_is_left() -> bool:
    mine = os.getpid()
    for process in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            command = (process / "cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if parent == mine and b"match_worker.py" in command:
            return False
    return True


def test_the_time_of_the_run_counts_too(root: Path, grep: AnyTool) -> None:
    (root / "1").write_text(BAIT)
    text = good(call(grep, config=ToolConfig(execution_timeout=1.5), pattern=ENDLESS, path="1"))
    assert "[Stopped after 1." in text


@pytest.mark.parametrize("called", [call, acall], ids=["plain", "async"])
def test_a_search_that_is_cancelled_ends_its_child(called: Call, root: Path, grep: AnyTool) -> None:
    (root / "1").write_text(BAIT)
    run = ToolRun()
    threading.Timer(0.3, run.cancel).start()
    bad(called(grep, run=run, pattern=ENDLESS, path="1"), "cancelled")
    for _ in range(100):  # on an event loop the thread is left behind and ends a moment later
        if no_worker_is_left():
            return
        time.sleep(0.05)
    pytest.fail("the child still runs")


def test_what_is_not_searched_is_told(root: Path, grep: AnyTool) -> None:
    (root / "binary").write_bytes(b"os\0os")
    (root / "large").write_bytes(b"os\n" * 2_000_000)
    (root / "wide").write_text("os", encoding="utf-16")
    (root / "link").symlink_to("a.py")
    (root / "away").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    text = good(call(grep, pattern="os$", mode="files"))
    assert text.splitlines() == ["a.py", "src/b.py", "wide", "[Not searched: 1 binary, 1 too large.]"]
    assert bad(call(grep, pattern="os", path="away"), "denied")
    assert good(call(grep, pattern="import", path="link")) == "a.py:1:import os"
    assert "a pipe" in bad(call(grep, pattern="os", path="pipe"), "execution")
    assert "does not exist" in bad(call(grep, pattern="os", path="nothing"), "execution")
