"""Types are inspected one at a time: a thread that decodes never meets a type that another one is still inspecting."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "dragoman"

# The annotation of `Inner` is Python code, which runs while msgspec inspects `Outer`.
FIRST_USE = """
import sys, threading, msgspec
from dragoman import _decoding

inspecting, tried = threading.Event(), threading.Event()

def slow():
    inspecting.set()
    tried.wait(0.3)
    return int

class Inner(msgspec.Struct):
    number: "slow()"

class Outer(msgspec.Struct):
    inner: Inner

found = []

def first():
    found.append({first})

def second():
    inspecting.wait(60)
    found.append({second})
    tried.set()

threads = [threading.Thread(target=each) for each in (first, second)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert found == [Outer(Inner(1))] * 2, found
"""
WAYS = {
    "decode": """_decoding.decode_as(b'{"inner": {"number": 1}}', Outer)""",
    "decoder": """_decoding.decoder_of(Outer).decode(b'{"inner": {"number": 1}}')""",
    "convert": """_decoding.convert_to({"inner": {"number": 1}}, Outer)""",
}


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_two_threads_may_use_a_type_for_the_first_time(first: str, second: str) -> None:
    program = FIRST_USE.replace("{first}", WAYS[first]).replace("{second}", WAYS[second])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


FORKED = """
import os, threading, msgspec
from dragoman import _decoding

inspecting, done = threading.Event(), threading.Event()

def slow():
    inspecting.set()
    done.wait(0.3)
    return int

class Inner(msgspec.Struct):
    number: "slow()"

class Outer(msgspec.Struct):
    inner: Inner

thread = threading.Thread(target=lambda: _decoding.decoder_of(Outer))
thread.start()
inspecting.wait(60)
child = os.fork()
if child == 0:
    found = _decoding.decode_as(b'{"inner": {"number": 1}}', Outer)
    os._exit(0 if found == Outer(Inner(1)) else 1)
done.set()
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_has_no_type_that_is_half_inspected() -> None:
    program = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def inspections(source: str) -> list[int]:
    """The lines in which msgspec is given a type by somebody else than `_decoding`."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and _names_a_type(node)]


def _names_a_type(call: ast.Call) -> bool:
    match ast.unparse(call.func).split("."):
        case ["msgspec", "convert"]:
            return True
        case ["msgspec", _, "Decoder"]:
            return bool(call.args or call.keywords)
        case ["msgspec", _, "decode"]:
            return len(call.args) > 1 or any(each.arg == "type" for each in call.keywords)
        case _:
            return False


def test_no_other_file_lets_msgspec_inspect_a_type() -> None:
    assert inspections("import msgspec\nmsgspec.json.decode(b'', type=int)\nmsgspec.json.decode(b'')") == [2]
    assert inspections("msgspec.convert(1, int)\nmsgspec.msgpack.Decoder(int)\nmsgspec.json.Decoder()") == [1, 2]
    found = {
        str(path.relative_to(SOURCES)): lines
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "_decoding.py" and (lines := inspections(path.read_text(encoding="utf-8")))
    }
    assert not found, "use dragoman._decoding there"
    assert not [
        path for path in SOURCES.rglob("*.py") if "from msgspec.json import" in path.read_text(encoding="utf-8")
    ]
